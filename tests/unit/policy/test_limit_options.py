"""Options of limits, and rates."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass import InvalidOption
from windlass._model.limit import Limit
from windlass._model.options import DeclaredType, Defaults
from windlass._policy.order.limit_options import (
    changed_limit,
    check_encrypted_field,
    check_field,
    format_rate,
    new_limit,
    parse_rate,
    set_limit,
)

LIMIT = Limit(name="api", queue="mail", by="account_id", running=5, rate=10.0, burst=20)


def make(name: Any = "api", **options: Any) -> Limit:
    said: Any = options
    return new_limit(name, said)


def change(**options: Any) -> Limit:
    said: Any = options
    return changed_limit(LIMIT, said)


def test_options_become_a_limit() -> None:
    assert make(queue="mail", by="account_id", running=5, rate="600/m", burst=20) == LIMIT
    assert make(running=1, tenant=None) == Limit(name="api", running=1)
    assert make(running=0, type="shop.charge", by="tenant") == Limit(
        name="api", running=0, type="shop.charge", by="tenant"
    )


def test_tasks_without_a_tenant_can_be_limited() -> None:
    assert make(running=1, tenant="").tenant == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "a b", "running": 1}, "the limit 'a b' is not a valid name"),
        ({}, "needs running, rate or both"),
        ({"runing": 1}, "unknown option 'runing' of limit 'api'; did you mean 'running'"),
        ({"xyz": 1}, "unknown option 'xyz' of limit 'api'; the options are queue, type"),
        ({"running": 1, "queue": "a b"}, "the queue 'a b' is not a valid name"),
        ({"running": 1, "type": ""}, "the type '' is not a valid name"),
        ({"running": 1, "tenant": "a b"}, "the tenant 'a b' is not a valid name"),
        ({"running": 1, "tenant": 3}, "the tenant 3 is not a valid name"),
        ({"running": "1"}, "running of limit 'api' must be a whole number, got '1'"),
        ({"running": True}, "whole number, got True"),
        ({"running": 1.5}, "whole number, got 1.5"),
        ({"running": -1}, "0 to 1,000,000"),
        ({"rate": "fast"}, "rate must be greater than 0"),
        ({"rate": 1, "burst": 0}, "burst must be from 1 to"),
        ({"rate": 1, "burst": "2"}, "burst of limit 'api' must be a whole number"),
        ({"running": 1, "burst": 2}, "has a burst but no rate"),
        ({"running": 1, "by": "a.b"}, "a payload field, or that and .host, got 'a.b'"),
        ({"running": 1, "by": 3}, "got 3"),
        ({"running": 1, "by": ".host"}, "got '.host'"),
        ({"running": 1, "by": "password.host"}, "which is secret"),
        ({"running": 1, "by": "x" * 129}, "name of a payload field"),
        ({"running": 1, "by": "queue", "queue": "mail"}, "applies to a single queue"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        make(**options)


def set_on(stored: Limit | None, **changes: Any) -> Limit:
    said: Any = changes
    return set_limit(stored, "api", said)


def test_a_limit_on_all_tasks_must_be_asked_for() -> None:
    of_all = Limit(name="api", running=1)

    for scope in ({"queue": "mail"}, {"type": "t"}, {"tenant": ""}):
        assert set_on(None, running=1, **scope) == make(running=1, **scope)
    assert set_on(None, running=1, all=True) == of_all
    assert set_on(of_all, running=2) == make(running=2)
    assert set_on(LIMIT, all=True) == make(by="account_id", running=5, rate=10, burst=20)
    assert set_on(LIMIT, queue=None, type="t", running=1).type == "t"
    assert set_on(LIMIT, all=False, running=1).queue == "mail"
    with pytest.raises(InvalidOption, match="limit 'api' would apply to all tasks"):
        set_on(None, running=1, by="tenant")
    with pytest.raises(InvalidOption, match="limit 'api' would apply to all tasks"):
        set_on(LIMIT, queue=None)
    with pytest.raises(InvalidOption, match="all and tenant contradict each other"):
        set_on(of_all, all=True, tenant="acme")


def test_only_what_is_named_changes() -> None:
    assert change(running=2) == make(queue="mail", by="account_id", running=2, rate=10, burst=20)
    assert change(by=None, queue=None) == make(running=5, rate=10, burst=20)


def test_a_burst_goes_with_its_rate() -> None:
    assert change(rate=None) == make(queue="mail", by="account_id", running=5)


def test_a_change_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidOption, match="needs running, rate or both"):
        change(rate=None, running=None)
    with pytest.raises(InvalidOption, match="has a burst but no rate"):
        change(rate=None, burst=3)


@pytest.mark.parametrize("by", [None, "tenant"])
def test_only_payload_fields_are_looked_for(by: str | None) -> None:
    check_field(make(type="t", by=by, running=1), frozenset(), ("tenant",))


def test_a_field_that_the_type_takes_is_fine() -> None:
    check_field(make(type="t", by="account_id", running=1), frozenset({"account_id"}), ("card",))
    check_field(make(type="t", by="account_id", running=1), None, ())


def test_the_field_of_a_host_must_be_one_of_the_type() -> None:
    limit = make(type="t", by="url.host", running=1)
    check_field(limit, frozenset({"url"}), ())
    with pytest.raises(InvalidOption, match="counts by 'url', but t has no such"):
        check_field(limit, frozenset({"page"}), ())
    with pytest.raises(InvalidOption, match="'url', which is secret"):
        check_field(limit, None, ("url",))


def test_a_field_that_nobody_takes_is_refused_with_what_was_meant() -> None:
    with pytest.raises(
        InvalidOption, match=r"counts by 'accountid', but t has no .* did you mean 'account_id'"
    ):
        check_field(make(type="t", by="accountid", running=1), frozenset({"account_id"}), ())
    with pytest.raises(InvalidOption, match=r"has no such parameter$"):
        check_field(make(type="t", by="xyz", running=1), frozenset({"account_id"}), ())


def test_a_secret_is_not_counted_by() -> None:
    with pytest.raises(InvalidOption, match="'card', which is secret"):
        check_field(make(type="t", by="card", running=1), frozenset({"card"}), ("card",))


# -- rates -------------------------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("written", "rate"),
    [("10/s", 10), ("90/m", 1.5), ("36/h", 0.01), ("7", 7), ("2.5/s", 2.5), (3, 3), (0.25, 0.25)],
)
def test_a_rate_is_starts_a_second(written: Any, rate: float) -> None:
    assert parse_rate(written) == rate


@pytest.mark.parametrize(
    "written",
    [
        "0/s",
        "-1/s",
        "10/d",
        "10 /s",
        "ten",
        "",
        "1e3",
        "\u0661/s",
        "9" * 12,
        0,
        -2,
        True,
        None,
        [5],
        NAN,
        INF,
    ],
)
def test_what_is_no_rate_is_refused(written: Any) -> None:
    with pytest.raises(InvalidOption, match='text such as "10/s" or "100/m", got'):
        parse_rate(written)


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (10, "10/s"),
        (1.5, "90/m"),
        (100 / 60, "100/m"),
        (5 / 3600, "5/h"),
        (1_000_000, "1000000/s"),
        (2.3456789, "2.34568/s"),
        (0.1234567, "7.4074/m"),
        (1e-5, "0.036/h"),
    ],
)
def test_a_rate_is_shown_in_the_unit_that_fits(rate: float, text: str) -> None:
    assert format_rate(rate) == text


@given(st.integers(1, 100_000), st.sampled_from("smh"))
def test_what_is_shown_says_the_same(number: int, unit: str) -> None:
    rate = parse_rate(f"{number}/{unit}")

    assert parse_rate(format_rate(rate)) == pytest.approx(rate)


@pytest.mark.parametrize("by", ["password", "api_key", "userToken"])
def test_a_field_whose_name_tells_that_it_is_secret_is_not_counted_by(by: str) -> None:
    with pytest.raises(InvalidOption, match="is secret"):
        new_limit("n", {"by": by, "running": 1})


def test_a_field_with_a_secret_in_it_is_not_counted_by() -> None:
    limit = new_limit("n", {"by": "card", "running": 1})

    check_field(limit, None, ("number", "other.card"))
    with pytest.raises(InvalidOption, match="is secret"):
        check_field(limit, None, ("card.number",))


def test_a_limit_cannot_count_by_an_encrypted_field() -> None:
    plain = DeclaredType(name="plain", defaults=Defaults(secret=("card",)))
    pay = DeclaredType(name="pay", aliases=("charge",), defaults=Defaults(secret=("card",)), encrypted=True)

    for type_name in (None, "pay", "charge"):
        with pytest.raises(InvalidOption, match="which is secret"):
            check_encrypted_field(Limit(name="l", type=type_name, by="card", running=1), (plain, pay))
    check_encrypted_field(Limit(name="l", type="plain", by="card", running=1), (plain, pay))
    check_encrypted_field(Limit(name="l", type="pay", by="amount", running=1), (plain, pay))
