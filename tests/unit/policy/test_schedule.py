"""Schedules: validation, and the task of a tick."""

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from windlass._model.schedule import Missed, Overlap, Schedule
from windlass._policy.input.chain import Step, all_ids, decode_steps
from windlass._policy.input.fingerprint import fingerprint
from windlass._policy.input.keys import MAX_KEY_BYTES, checked_key
from windlass._policy.schedule import (
    KEPT_FOR,
    new_schedule,
    rule_text,
    same_rule,
    schedule_of,
    tick_task,
    triggered_task,
)
from windlass.errors import InvalidOption

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
STEP = Step(id="s", type="report", payload=Raw(b'{"day":1}'), queue="slow", tenant="acme", secret=("key",))


def made(rule: Any = "1h", *, step: Step = STEP, name: str = "report", **timing: Any) -> Schedule:
    return new_schedule(name, step, rule, timing)


def numbered() -> Any:
    numbers = count()
    return lambda: f"id{next(numbers)}"


def test_it_takes_over_what_is_said_of_the_task() -> None:
    schedule = made(
        "30 3  * * *", zone="Europe/Berlin", missed="once", overlap="skip", jitter="30s", at_most=5
    )

    assert (schedule.cron, schedule.every, schedule.zone) == ("30 3 * * *", None, "Europe/Berlin")
    assert (schedule.type, schedule.payload, schedule.queue, schedule.tenant) == (
        "report",
        b'{"day":1}',
        "slow",
        "acme",
    )
    assert (schedule.missed, schedule.overlap, schedule.at_most) == (Missed.ONCE, Overlap.SKIP, 5)
    assert schedule.jitter == timedelta(seconds=30)
    assert schedule.secret == ("key",)


@pytest.mark.parametrize(
    ("name", "cron"),
    [
        ("@hourly", "0 * * * *"),
        (" @Daily ", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
    ],
)
def test_a_name_stands_for_a_cron_expression(name: str, cron: str) -> None:
    schedule = made(name, zone="Europe/Berlin")
    assert (schedule.cron, schedule.every, schedule.zone) == (cron, None, "Europe/Berlin")


def test_an_unknown_name_is_refused_with_those_that_exist() -> None:
    with pytest.raises(InvalidOption, match=r"there is no rule '@dayly'; the names are @hourly, @daily"):
        made("@dayly")


@pytest.mark.parametrize("rule", ["90m", timedelta(minutes=90), 5400])
def test_an_interval_is_a_duration(rule: Any) -> None:
    assert (made(rule).every, made(rule).cron) == (timedelta(minutes=90), None)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"rule": "soon"}, "a rule must be a cron expression or an interval"),
        ({"rule": "@fortnightly"}, "there is no rule"),
        ({"rule": None}, "a rule must be a cron expression or an interval"),
        ({"rule": "0 25 * * *"}, "invalid hour '25'"),
        ({"rule": "500ms"}, "at least 1 s"),
        ({"rule": 0}, "at least 1 s"),
        ({"rule": "1h", "zone": "Europe/Berlin"}, "zone is for cron expressions"),
        ({"rule": "0 3 * * *", "zone": "Mars/Base"}, "unknown time zone 'Mars/Base'"),
        ({"zone": ["UTC"]}, "zone must be a name"),
        ({"missed": "twice"}, "missed must be one of skip, once, all, got 'twice'"),
        ({"overlap": None}, "overlap must be one of allow, skip, got None"),
        ({"at_most": 0}, "from 1 to 1000, got 0"),
        ({"at_most": 1001}, "from 1 to 1000, got 1001"),
        ({"at_most": True}, "from 1 to 1000, got True"),
        ({"at_most": "5"}, "from 1 to 1000, got '5'"),
        ({"jitter": "2d"}, "jitter must be at most 1 day"),
        ({"jitter": -1}, "jitter must be from 0"),
        ({"name": "a b"}, "the schedule 'a b' is not a valid name"),
        ({"name": "ä" * 120}, "longer than 200 bytes"),
        ({"step": replace(STEP, delay=timedelta(1))}, "use jitter"),
        ({"step": replace(STEP, result_into="rows")}, "rows=RESULT"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        made(**changes)

    assert told in str(refused.value)


def test_the_longest_name_still_makes_a_key() -> None:
    task = tick_task(made(name="ä" * 100), NOON + timedelta(microseconds=1), numbered())

    assert len((task.idempotency_key or "").encode()) <= MAX_KEY_BYTES


def test_no_caller_can_give_the_key_of_a_tick() -> None:
    key = tick_task(made(), NOON, numbered()).idempotency_key
    assert key is not None

    with pytest.raises(InvalidOption, match="not printable"):
        checked_key(key)


def test_a_tick_has_one_key_however_often_and_wherever_it_is_told() -> None:
    one = tick_task(made(), NOON, numbered())
    other = tick_task(made(), NOON.astimezone(), lambda: "other")

    assert one.idempotency_key == other.idempotency_key == "\x1fschedule:report:2026-06-01T12:00:00+00:00"
    assert one.idempotency_digest == other.idempotency_digest
    assert one.idempotency_for == KEPT_FOR
    assert (one.trace, one.run_at) == (other.trace, other.run_at)
    assert one.id != other.id


def test_a_ticks_task_is_like_any_other_of_its_type() -> None:
    step = replace(STEP, priority=7, max_attempts=3, timeout=timedelta(seconds=9))
    task = tick_task(made(step=step), NOON, numbered())

    assert (task.type, task.payload, task.queue, task.tenant) == ("report", b'{"day":1}', "slow", "acme")
    assert (task.priority, task.max_attempts) == (7, 3)
    assert (task.timeout, task.secret, task.run_at) == (timedelta(seconds=9), ("key",), NOON)
    assert (task.root, task.enqueued_by, task.fingerprint, task.next) == (
        task.id,
        "schedule report",
        None,
        None,
    )


def test_tasks_that_must_not_overlap_share_a_fingerprint() -> None:
    skipping = made(overlap="skip")
    unique = made(step=replace(STEP, unique=True))

    assert tick_task(skipping, NOON, numbered()).fingerprint == "schedule:report"
    assert tick_task(unique, NOON, numbered()).fingerprint == fingerprint(
        True, "report", b'{"day":1}', 0, "acme"
    )
    assert triggered_task(skipping, numbered()).fingerprint == "schedule:report"


@given(seconds=st.integers(0, 10**9))
def test_jitter_delays_by_less_than_it_says_and_always_alike(seconds: int) -> None:
    tick, jitter = datetime.fromtimestamp(seconds, UTC), timedelta(seconds=30)
    schedule = made(jitter=jitter)
    task = tick_task(schedule, tick, numbered())

    assert task.run_at is not None
    assert tick <= task.run_at < tick + jitter
    assert task.run_at == tick_task(schedule, tick, numbered()).run_at


def test_jitter_spreads() -> None:
    schedules = [made(name=f"n{number}", jitter=100) for number in range(1000)]
    delays = [(tick_task(one, NOON, numbered()).run_at - NOON).total_seconds() for one in schedules]  # type: ignore[operator]

    assert all(50 < sum(low <= delay < low + 10 for delay in delays) < 150 for low in range(0, 100, 10))


def test_a_chain_follows_each_tick_with_ids_of_its_own() -> None:
    schedule = made(step=STEP.then(replace(STEP, id="below", type="mail")))
    make_id = numbered()
    first, second = (tick_task(schedule, NOON + n * timedelta(hours=1), make_id) for n in (0, 1))

    assert [step.type for step in decode_steps(first.next)] == ["mail"]
    assert all_ids(decode_steps(first.next)) != all_ids(decode_steps(second.next))


def test_what_is_triggered_is_due_at_once_and_no_tick() -> None:
    task = triggered_task(made(jitter=100), numbered())

    assert (task.run_at, task.idempotency_key, task.idempotency_for) == (None, None, None)
    assert task.trace != triggered_task(made(jitter=100), lambda: "other").trace


def test_what_is_triggered_says_who_wanted_it() -> None:
    by = [triggered_task(made(), numbered(), who).enqueued_by for who in (None, "ann@host")]

    assert by == ["schedule report", "ann@host, schedule report"]


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("0 3 * * *", "0 3 * * *"),
        ("90m", "every 1h30m"),
        (1, "every 1s"),
        ("1500ms", "every 1.5s"),
        ("8d", "every 8d"),
    ],
)
def test_a_rule_is_shown_as_people_write_it(rule: Any, text: str) -> None:
    assert rule_text(made(rule)) == text


def test_a_schedule_without_a_rule_shows_none() -> None:
    assert rule_text(Schedule(name="s", type="t")) == ""


def test_the_zone_is_part_of_a_cron_rule() -> None:
    assert same_rule(made("1h"), made("60m", jitter=3))
    assert not same_rule(made("1h"), made("2h"))
    assert not same_rule(made("0 3 * * *"), made("0 3 * * *", zone="Europe/Berlin"))
    assert same_rule(made("0 3 * * *"), made("0  3 * * *"))


def test_a_trigger_with_a_key_names_the_schedule_and_the_key() -> None:
    schedule = Schedule(name="s", type="t")
    first, again = (triggered_task(schedule, lambda: "id", "ann", key="k") for _ in range(2))

    assert first.idempotency_key == again.idempotency_key
    assert triggered_task(schedule, lambda: "id", key="other").idempotency_key != first.idempotency_key
    assert triggered_task(schedule, lambda: "id").idempotency_key is None


def test_a_task_tells_its_schedule() -> None:
    assert schedule_of(tick_task(made(name="shop.report"), NOON, numbered()).enqueued_by) == "shop.report"
    assert schedule_of("shop@host:1") is None
