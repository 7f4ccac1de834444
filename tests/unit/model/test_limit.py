"""Limits: invalid values are refused."""

from typing import Any

import pytest

from windlass._model.limit import MAX_BURST, MAX_RATE, MAX_RUNNING, Limit, Usage
from windlass.errors import InvalidOption


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "'calls' needs running, rate or both"),
        ({"by": "account", "queue": "mail"}, "needs running, rate or both"),
        ({"burst": 3}, "needs running, rate or both"),
        ({"running": -1}, "running must be from 0 to 1,000,000, got -1"),
        ({"running": MAX_RUNNING + 1}, "got 1,000,001"),
        ({"rate": 0}, "greater than 0 and at most 1,000,000 starts a second, got 0"),
        ({"rate": -0.5}, "got -0.5"),
        ({"rate": MAX_RATE * 1.5}, r"got 1.5e\+06"),
        ({"rate": float("nan")}, "got nan"),
        ({"rate": float("inf")}, "got inf"),
        ({"running": 1, "burst": 3}, "has a burst but no rate"),
        ({"rate": 1, "burst": 0}, "from 1 to 1,000,000 starts, got 0"),
        ({"rate": 1, "burst": MAX_BURST + 1}, "got 1,000,001"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        Limit(name="calls", **options)


@pytest.mark.parametrize(
    "options",
    [
        {"running": 0},  # Nothing may start.
        {"running": MAX_RUNNING, "rate": MAX_RATE, "burst": MAX_BURST},
        {"rate": 1e-9},
    ],
)
def test_the_bounds_themselves_are_allowed(options: dict[str, Any]) -> None:
    assert Limit(name="calls", **options).name == "calls"


@pytest.mark.parametrize(
    ("rate", "burst", "capacity"),
    [(0.1, None, 1), (1.0, None, 1), (2.5, None, 3), (50.0, None, 50), (50.0, 1, 1), (0.1, 20, 20)],
)
def test_what_may_start_at_once_is_the_burst_or_a_seconds_worth(
    rate: float, burst: int | None, capacity: int
) -> None:
    assert Limit(name="calls", rate=rate, burst=burst).capacity == capacity


@pytest.mark.parametrize(
    ("limit", "running", "tokens", "used"),
    [
        (Limit(name="l", running=4), 1, None, 0.25),
        (Limit(name="l", running=4), 5, None, 1.25),  # it was lowered meanwhile
        (Limit(name="l", running=0), 0, None, 1.0),
        (Limit(name="l", rate=10.0), 7, 10.0, 0.0),
        (Limit(name="l", rate=10.0), 0, 2.5, 0.75),
        (Limit(name="l", rate=10.0, burst=100), 0, 2.0, 0.98),
        (Limit(name="l", rate=10.0, running=2), 1, 9.0, 0.5),
        (Limit(name="l", rate=10.0), 3, None, 0.0),
    ],
)
def test_what_is_used_of_a_limit(limit: Limit, running: int, tokens: float | None, used: float) -> None:
    usage = Usage(name="l", limit="l", value="", running=running, tokens=tokens)

    assert limit.used(usage) == pytest.approx(used)


def test_the_busiest_values_come_first() -> None:
    limit = Limit(name="api", running=4, by="tenant")
    idle, busy, full = (
        Usage(name=name, limit="api", value=name, running=running)
        for name, running in (("idle", 0), ("busy", 2), ("full", 4))
    )

    assert limit.busiest([idle, full, busy]) == [full, busy, idle]
