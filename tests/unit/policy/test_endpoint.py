"""Disabled endpoints: what is stored of one, and which make room for others."""

from datetime import UTC, datetime, timedelta

import pytest

from windlass import InvalidOption
from windlass._ids import new_id
from windlass._policy import endpoint as policy
from windlass._policy.endpoint import check_endpoint, disabled_endpoint, endpoint_id, to_forget

AT = datetime(2026, 11, 16, tzinfo=UTC)
TASK = new_id()


@pytest.mark.parametrize(
    ("endpoint", "shown"),
    [
        ("https://example.org/hooks/T0K3N?key=1", "https://example.org/…"),
        ("HTTP://user:pass@example.org:8080", "http://example.org:8080"),
        ("shop", "shop"),
        ("http://[bad", "an invalid URL"),
        ("a\x1bb", "a\\x1bb"),
        ("x" * 1000, "x" * 300),
    ],
)
def test_of_a_url_only_the_host_is_stored(endpoint: str, shown: str) -> None:
    made = disabled_endpoint(endpoint, "acme", AT, TASK)

    assert (made.endpoint, made.tenant, made.at, made.task_id) == (shown, "acme", AT, TASK)
    assert made.name == endpoint_id(endpoint, "acme")
    check_endpoint(made)


def test_each_tenant_has_its_own() -> None:
    assert (
        len({endpoint_id("https://a", "acme"), endpoint_id("https://a", ""), endpoint_id("\ud800", "")}) == 3
    )


def test_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "MAX_DISABLED", 2)
    made = [disabled_endpoint(f"https://{n}", "", AT - timedelta(hours=n), TASK) for n in range(3)]

    assert to_forget(made[:1]) == []
    assert to_forget(made[:2]) == [made[1]]
    assert to_forget(made) == [made[2], made[1]]


def test_a_record_of_another_shape_is_refused() -> None:
    made = disabled_endpoint("https://a", "", AT, TASK)
    with pytest.raises(InvalidOption, match="is not the id of a disabled endpoint"):
        check_endpoint(type(made)(name="x", endpoint="a", tenant="", at=AT, task_id=TASK))
