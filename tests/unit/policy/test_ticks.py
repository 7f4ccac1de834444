"""Ticks: those of a schedule, and which missed ones are fired."""

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from windlass._model.schedule import Missed, Schedule, Tick
from windlass._policy.calendar import cron as cron_module
from windlass._policy.ticks import GRACE, due, newest, next_tick, overdue, ticks
from windlass.errors import InvalidOption

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = (timedelta(seconds=n) for n in (1, 60, 3600, 86400))

HOURLY = Schedule(name="hourly", type="t", cron="0 * * * *")
MINUTELY = Schedule(name="minutely", type="t", cron="* * * * *")
EVERY = Schedule(name="every", type="t", every=10 * MINUTE)


def at(instant: datetime) -> Tick:
    return Tick(name="t", at=instant)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often a cron expression is asked for what comes next."""
    count = [0]
    real = cron_module.Cron.after

    def counting(self: Any, instant: datetime) -> datetime | None:
        count[0] += 1
        return real(self, instant)

    monkeypatch.setattr(cron_module.Cron, "after", counting)
    return count


# -- which there are -------------------------------------------------------------------------------------


def test_intervals_are_counted_from_1970_whoever_counts() -> None:
    assert next_tick(EVERY, NOW) == NOW + 10 * MINUTE
    assert next_tick(EVERY, NOW - SECOND) == NOW
    odd = Schedule(name="odd", type="t", every=timedelta(seconds=7))
    tick = next_tick(odd, NOW)
    assert tick is not None
    assert tick.timestamp() % 7 == 0


@given(seconds=st.integers(1, 10**6), start=st.integers(0, 10**10))
def test_intervals_are_even_and_in_order(seconds: int, start: int) -> None:
    schedule = Schedule(name="s", type="t", every=timedelta(seconds=seconds))
    after = datetime.fromtimestamp(start, UTC)
    first, second, third = islice(ticks(schedule, after), 3)

    assert after < first <= after + timedelta(seconds=seconds)
    assert second - first == third - second == timedelta(seconds=seconds)
    assert newest(schedule, after, third, 2) == (second, third)


def test_ticks_end_where_they_are_told_to() -> None:
    assert [*ticks(HOURLY, NOW, NOW + 2 * HOUR)] == [NOW + HOUR, NOW + 2 * HOUR]
    assert [*ticks(HOURLY, NOW, NOW + 59 * MINUTE)] == []
    assert [*ticks(EVERY, datetime.max.replace(tzinfo=UTC) - SECOND)] == []


def test_a_schedule_without_a_rule_is_refused() -> None:
    with pytest.raises(InvalidOption, match="has no rule"):
        next_tick(Schedule(name="empty", type="t"), NOW)


@given(
    rule=st.sampled_from(
        ["* * * * *", "*/5 * * * *", "0 3 * * *", "* * * 1 *", "* 4 * * 1", "0 0 1 1 *", "* * * * * *"]
    ),
    back=st.integers(0, 400 * 86400),
    limit=st.integers(1, 30),
)
def test_the_newest_are_the_last_of_all(rule: str, back: int, limit: int) -> None:
    schedule = Schedule(name="s", type="t", cron=rule)
    after = NOW - timedelta(seconds=min(back, 3600) if rule == "* * * * * *" else min(back, 20 * 86400))
    whole = [*ticks(schedule, after, NOW)]

    assert [*newest(schedule, after, NOW, limit)] == whole[-limit:]


@pytest.mark.parametrize(
    "rule", ["* * * * *", "* * * * * *", "* * * 1 *", "* * 1 1 * *", "0 0 29 2 *", "* 0 * * *"]
)
@pytest.mark.parametrize("limit", [1, 100])
def test_a_year_long_gap_costs_little(rule: str, limit: int, asked: list[int]) -> None:
    schedule = Schedule(name="s", type="t", cron=rule)

    found = newest(schedule, NOW - 366 * DAY, NOW, limit)

    assert len(found) == limit or "29" in rule
    assert asked[0] < 64 * limit + 2_500, asked  # of up to 31 million


# -- what is fired ---------------------------------------------------------------------------------------


def test_nothing_has_come() -> None:
    found = due(HOURLY, at(NOW), NOW + 59 * MINUTE)

    assert (found.instants, found.at, found.missed) == ((), None, None)


@pytest.mark.parametrize("missed", Missed)
def test_what_comes_within_the_grace_is_fired_whatever_the_policy(missed: Missed) -> None:
    found = due(replace(HOURLY, missed=missed), at(NOW - MINUTE), NOW + GRACE - SECOND)

    assert (found.instants, found.at, found.missed) == ((NOW,), NOW, None)


def test_all_that_comes_within_the_grace_is_fired() -> None:
    every_second = Schedule(name="s", type="t", every=SECOND)

    found = due(every_second, at(NOW - 10 * SECOND), NOW)

    assert found.instants == tuple(NOW - n * SECOND for n in reversed(range(10)))


@pytest.mark.parametrize(
    ("missed", "fired"),
    [
        (Missed.SKIP, []),
        (Missed.ONCE, [24]),
        (Missed.ALL, [*range(1, 25)]),
    ],
)
def test_after_a_day_of_downtime_each_policy_does_what_it_says(missed: Missed, fired: list[int]) -> None:
    """Hourly, last fired at noon; seen again at half past noon on the next day."""
    found = due(replace(HOURLY, missed=missed), at(NOW), NOW + DAY + 30 * MINUTE)

    assert found.instants == tuple(NOW + n * HOUR for n in fired)
    assert found.at == NOW + DAY
    assert found.missed == (NOW, NOW + DAY)


def test_after_downtime_what_is_on_time_is_fired_as_well() -> None:
    found = due(replace(HOURLY, missed=Missed.ONCE), at(NOW), NOW + DAY + SECOND)

    assert found.instants == (NOW + 23 * HOUR, NOW + DAY)
    assert found.missed == (NOW, NOW + 23 * HOUR)
    assert due(HOURLY, at(NOW), NOW + DAY + SECOND).instants == (NOW + DAY,)


def test_catching_up_is_bounded_and_takes_the_newest(asked: list[int]) -> None:
    schedule = replace(MINUTELY, missed=Missed.ALL, at_most=10)

    found = due(schedule, at(NOW - 366 * DAY), NOW + 30 * SECOND)

    assert found.instants == tuple(NOW - n * MINUTE for n in reversed(range(11)))
    assert found.at == NOW
    assert asked[0] < 2_000


@pytest.mark.parametrize("missed", [Missed.SKIP, Missed.ONCE])
def test_a_year_of_downtime_is_passed_over_at_once(missed: Missed, asked: list[int]) -> None:
    found = due(replace(MINUTELY, missed=missed), at(NOW - 366 * DAY), NOW)

    assert found.at == NOW
    assert asked[0] < 500


@given(
    missed=st.sampled_from(Missed),
    rule=st.sampled_from(["*/5 * * * *", "0 * * * *", "30 2 * * *"]),
    steps=st.lists(st.integers(1, 3 * 3600), min_size=1, max_size=30),
)
def test_however_it_is_looked_at_no_tick_comes_twice_and_none_is_early(
    missed: Missed, rule: str, steps: list[int]
) -> None:
    schedule = Schedule(name="s", type="t", cron=rule, zone="Europe/Berlin", missed=missed, at_most=1000)
    now = datetime(2026, 10, 24, 20, tzinfo=UTC)
    tick, fired, begin = at(now), [], now
    for step in steps:
        now += timedelta(seconds=step)
        found = due(schedule, tick, now)
        assert all(instant <= now for instant in found.instants)
        fired += found.instants
        tick = tick if found.at is None else replace(tick, at=found.at)

    assert fired == sorted(set(fired))
    if missed is Missed.ALL:
        assert fired == [*ticks(schedule, begin, now)]


def test_a_paused_one_fires_nothing_and_does_not_advance() -> None:
    assert due(replace(HOURLY, paused=True), at(NOW), NOW + DAY).at is None


def test_nothing_before_it_was_there_is_its_own() -> None:
    schedule = replace(HOURLY, missed=Missed.ALL, since=NOW + 22 * HOUR)

    assert due(schedule, at(NOW), NOW + DAY).instants == (NOW + 23 * HOUR, NOW + DAY)


def test_a_clock_that_was_set_back_does_not_hold_it_up() -> None:
    """What is named again has its task already: the key says so. What is new must not wait for a year."""
    schedule = replace(HOURLY, since=NOW + 364 * DAY)

    back = due(schedule, at(NOW + 365 * DAY), NOW + MINUTE)

    assert (back.instants, back.at) == ((), NOW + MINUTE)
    assert due(schedule, at(NOW + MINUTE), NOW + HOUR).instants == (NOW + HOUR,)


def test_what_is_asked_for_backwards_is_nothing() -> None:
    assert newest(HOURLY, NOW, NOW, 5) == ()
    assert newest(EVERY, NOW, NOW - HOUR, 5) == ()


# -- what waits to be fired ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "tick", "lag"),
    [
        (HOURLY, at(NOW), timedelta(0)),
        (HOURLY, at(NOW - HOUR), timedelta(0)),  # it comes at this very instant
        (HOURLY, at(NOW - HOUR - SECOND), HOUR),  # the first of two
        (EVERY, at(NOW - 25 * MINUTE), 20 * MINUTE),
        (HOURLY, None, timedelta(0)),
        (replace(HOURLY, since=NOW - 2 * HOUR - SECOND), None, 2 * HOUR),
        (replace(HOURLY, since=NOW), at(NOW - DAY), timedelta(0)),
        (replace(HOURLY, paused=True), at(NOW - DAY), timedelta(0)),
        (Schedule(name="never", type="t", every=timedelta.max), at(NOW - DAY), timedelta(0)),
    ],
)
def test_a_tick_that_is_not_fired_is_overdue_since_it_came(
    schedule: Schedule, tick: Tick | None, lag: timedelta
) -> None:
    assert overdue(schedule, tick, NOW) == lag
