"""A limit as people say it."""

from typing import Any

import pytest

from windlass import InvalidOption
from windlass._model.limit import Limit
from windlass._policy.order.limit_options import changed_limit, check_field, new_limit

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
        ({"name": "a b", "running": 1}, "the limit 'a b' is not a name"),
        ({}, "limits nothing"),
        ({"runing": 1}, "has no 'runing'; did you mean 'running'"),
        ({"xyz": 1}, "has no 'xyz'; what can be set is queue, type"),
        ({"running": 1, "queue": "a b"}, "the queue 'a b' is not a name"),
        ({"running": 1, "type": ""}, "the type '' is not a name"),
        ({"running": 1, "tenant": "a b"}, "the tenant 'a b' is not a name"),
        ({"running": 1, "tenant": 3}, "the tenant 3 is not a name"),
        ({"running": "1"}, "the running of limit 'api' is a whole number, not '1'"),
        ({"running": True}, "whole number, not True"),
        ({"running": 1.5}, "whole number, not 1.5"),
        ({"running": -1}, "0 to 1,000,000"),
        ({"rate": "fast"}, "a rate is more than 0"),
        ({"rate": 1, "burst": 0}, "a burst is 1 to"),
        ({"rate": 1, "burst": "2"}, "the burst of limit 'api' is a whole number"),
        ({"running": 1, "burst": 2}, "beside a rate"),
        ({"running": 1, "by": "a.b"}, "queue, type, tenant or the name of a payload field, not 'a.b'"),
        ({"running": 1, "by": 3}, "not 3"),
        ({"running": 1, "by": "x" * 129}, "name of a payload field"),
        ({"running": 1, "by": "queue", "queue": "mail"}, "is for one queue already"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        make(**options)


def test_only_what_is_named_changes() -> None:
    assert change(running=2) == make(queue="mail", by="account_id", running=2, rate=10, burst=20)
    assert change(by=None, queue=None) == make(running=5, rate=10, burst=20)


def test_a_burst_goes_with_its_rate() -> None:
    assert change(rate=None) == make(queue="mail", by="account_id", running=5)


def test_a_change_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidOption, match="limits nothing"):
        change(rate=None, running=None)
    with pytest.raises(InvalidOption, match="beside a rate"):
        change(rate=None, burst=3)


@pytest.mark.parametrize("by", [None, "tenant"])
def test_only_payload_fields_are_looked_for(by: str | None) -> None:
    check_field(make(type="t", by=by, running=1), frozenset(), ("tenant",))


def test_a_field_that_the_type_takes_is_fine() -> None:
    check_field(make(type="t", by="account_id", running=1), frozenset({"account_id"}), ("card",))
    check_field(make(type="t", by="account_id", running=1), None, ())


def test_a_field_that_nobody_takes_is_refused_with_what_was_meant() -> None:
    with pytest.raises(
        InvalidOption, match=r"counts by 'accountid', but t has no .* did you mean 'account_id'"
    ):
        check_field(make(type="t", by="accountid", running=1), frozenset({"account_id"}), ())
    with pytest.raises(InvalidOption, match=r"has no parameter of that name$"):
        check_field(make(type="t", by="xyz", running=1), frozenset({"account_id"}), ())


def test_a_secret_is_not_counted_by() -> None:
    with pytest.raises(InvalidOption, match="'card', which is secret"):
        check_field(make(type="t", by="card", running=1), frozenset({"card"}), ("card",))
