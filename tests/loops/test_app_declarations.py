"""What an app refuses where it is declared, and how its declarations name task types."""

from typing import Any

import pytest

from windlass import App, InvalidOption


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retention": "soon"}, "retention must be a Retention, got 'soon'"),
        ({"secret": 5}, "secret must be a sequence of names, got 5"),
        ({"redact": 5}, "redact must be a sequence of patterns, got 5"),
        ({"allow_addresses": "10.0.0.0/8"}, r"for a single one pass \['10.0.0.0/8'\]"),
    ],
)
def test_a_senseless_app_is_refused_where_it_is_written(options: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        App("memory://", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fairness": "fair"}, "one of fifo, round_robin, random"),
        ({"weights": {"acme": 2}}, "weights need round_robin fairness"),
        ({"shares": {"low": 0}}, "1 to 99 percent"),
        ({"shares": {"lo": 10}}, "one of high, medium, low"),
        ({"ageing": "soon"}, "ageing"),
    ],
)
def test_a_senseless_queue_is_refused_where_it_is_written(options: Any, message: str) -> None:
    app = App("memory://")

    with pytest.raises(InvalidOption, match=message):
        app.queue("mail", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bind": True}, "unknown option 'bind'; use a parameter `ctx: Context` of the handler"),
        ({"max_retries": 3}, "unknown option 'max_retries'; use max_attempts=, which counts the first"),
        ({"time_limit": 3}, "unknown option 'time_limit'; use timeout="),
        ({"maxattempts": 3}, "unknown option 'maxattempts'; did you mean 'max_attempts'"),
        ({"zzz": 3}, "unknown option 'zzz'; the options are name, aliases, queue, .* example$"),
    ],
)
def test_an_unknown_option_of_a_task_type_is_refused_with_what_to_use(options: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        App("memory://").task(**options)


def test_a_limit_names_a_task_type_or_its_name() -> None:
    app = App("memory://")

    @app.task(name="shop.charge")
    async def charge(account_id: int) -> None: ...

    app.limit("one", type=charge, by="account_id", running=1)
    app.limit("two", type="shop.charge", by="account_id", running=1)


def test_a_limit_by_a_field_that_nobody_takes_is_refused() -> None:
    app = App("memory://")

    @app.task(secret=("card",))
    async def charge(account_id: int, card: str) -> None: ...

    with pytest.raises(InvalidOption, match="did you mean 'account_id'"):
        app.limit("one", type=charge, by="acount_id", running=1)
    with pytest.raises(InvalidOption, match="which is secret"):
        app.limit("one", type=charge, by="card", running=1)


def test_a_limit_is_declared_once() -> None:
    app = App("memory://")
    app.limit("one", running=1)
    app.limit("one", running=1)

    with pytest.raises(InvalidOption, match="already declared on this app"):
        app.limit("one", running=2)
