"""Verdicts: every outcome has one; attempts are counted exactly, and a request to stop is honoured."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.unit.samples import ERROR, HOUR, NOW, running
from windlass._model.outcome import (
    Crashed,
    Failed,
    Interrupted,
    Outcome,
    Returned,
    Snoozed,
    Stopped,
    TimedOut,
    Unhandled,
)
from windlass._model.task import Error, Task
from windlass._model.verdict import Bury, Cancel, Complete, Postpone, Reason
from windlass._policy.input.chain import Step, encode_steps
from windlass._policy.verdict import (
    UNHANDLED_DELAY,
    UNHANDLED_FOR,
    UNHANDLED_GAP,
    decide,
    handed_back,
    unhandled_for,
)

RETRYABLE: list[Outcome] = [
    Failed(error=ERROR),
    Failed(error=ERROR, retry_after=HOUR),
    TimedOut(HOUR),
    Crashed(error=ERROR),
]


def ten_times_attempt(attempt: int, draw: float) -> timedelta:
    """A backoff whose answer shows what it was asked."""
    return timedelta(seconds=10 * attempt + draw)


def never(attempt: int, draw: float) -> timedelta:
    raise AssertionError("this outcome has nothing to do with backoff")


def test_what_returned_is_completed_with_its_result() -> None:
    assert decide(running(), Returned(b"42"), never, 0.5) == Complete(result=b"42")
    assert decide(running(), Returned(), never, 0.5) == Complete(result=None)


def test_what_returned_brings_its_successors() -> None:
    step = Step(id="t2", type="next", payload=Raw(b"{}"), result_into="before")

    verdict = decide(running(next=encode_steps((step,))), Returned(b"42"), never, 0.5)

    assert [(new.id, new.payload, new.root) for new in verdict.successors] == [("t2", b'{"before":42}', "t0")]


def test_what_returned_is_completed_though_it_was_asked_to_stop() -> None:
    assert decide(running(cancel_requested=True), Returned(b"1"), never, 0.5) == Complete(result=b"1")


def test_a_failure_is_tried_again_after_the_backoff() -> None:
    verdict = decide(running(attempt=2), Failed(error=ERROR), ten_times_attempt, 0.5)

    assert verdict == Postpone(delay=timedelta(seconds=20.5), reason=Reason.RETRY, error=ERROR)


def test_a_failure_that_says_when_is_tried_again_then() -> None:
    verdict = decide(running(), Failed(error=ERROR, retry_after=HOUR), never, 0.5)

    assert verdict == Postpone(delay=HOUR, reason=Reason.RETRY, error=ERROR)


def test_a_failure_may_ask_to_be_tried_again_at_once() -> None:
    verdict = decide(running(), Failed(error=ERROR, retry_after=timedelta(0)), never, 0.5)

    assert verdict == Postpone(delay=timedelta(0), reason=Reason.RETRY, error=ERROR)


@pytest.mark.parametrize("cancel_requested", [False, True])
def test_a_fatal_failure_dies_at_its_first_attempt(cancel_requested: bool) -> None:
    task = running(cancel_requested=cancel_requested)

    assert decide(task, Failed(error=ERROR, fatal=True, retry_after=HOUR), never, 0.5) == Bury(error=ERROR)


def test_a_timeout_is_tried_again_and_says_how_long_it_ran() -> None:
    verdict = decide(running(), TimedOut(timedelta(seconds=1.5)), ten_times_attempt, 0)

    error = Error(type="TimedOut", message="exceeded its timeout of 1.5 s")
    assert verdict == Postpone(delay=timedelta(seconds=10), reason=Reason.RETRY, error=error)


def test_a_crash_is_tried_again() -> None:
    verdict = decide(running(), Crashed(error=ERROR), ten_times_attempt, 0)

    assert verdict == Postpone(delay=timedelta(seconds=10), reason=Reason.RETRY, error=ERROR)


@pytest.mark.parametrize("outcome", RETRYABLE, ids=repr)
@pytest.mark.parametrize(("attempt", "verdict"), [(2, Postpone), (3, Bury), (4, Bury)])
def test_the_last_attempt_is_the_last(outcome: Outcome, attempt: int, verdict: type) -> None:
    assert isinstance(decide(running(attempt=attempt), outcome, ten_times_attempt, 0), verdict)


@pytest.mark.parametrize("outcome", RETRYABLE, ids=repr)
@pytest.mark.parametrize("attempt", [1, 3])
def test_what_was_asked_to_stop_is_not_tried_again(outcome: Outcome, attempt: int) -> None:
    verdict = decide(running(attempt=attempt, cancel_requested=True), outcome, never, 0)

    assert isinstance(verdict, Cancel)
    assert verdict.error is not None


@given(st.integers(1, 20), st.integers(1, 20))
def test_a_task_that_always_crashes_dies_after_exactly_its_attempts(attempt: int, most: int) -> None:
    verdict = decide(running(attempt=attempt, max_attempts=most), Crashed(error=ERROR), ten_times_attempt, 0)

    assert isinstance(verdict, Bury) is (attempt >= most)


@pytest.mark.parametrize("attempt", [1, 3, 9])
def test_a_snooze_costs_no_attempt_also_at_the_last(attempt: int) -> None:
    verdict = decide(running(attempt=attempt), Snoozed(HOUR), never, 0.5)

    assert verdict == Postpone(delay=HOUR, reason=Reason.SNOOZE)


def test_an_interrupted_task_is_handed_back_at_once_and_costs_no_attempt() -> None:
    verdict = decide(running(attempt=3), Interrupted(), never, 0.5)

    assert verdict == Postpone(delay=timedelta(0), reason=Reason.RELEASE)


def test_what_stopped_is_cancelled() -> None:
    assert decide(running(cancel_requested=True), Stopped(), never, 0.5) == Cancel()


def test_a_type_without_a_handler_waits_for_one() -> None:
    almost = UNHANDLED_FOR - timedelta(microseconds=1)

    for age in (timedelta(0), almost):
        verdict = decide(running(attempt=3), Unhandled(age), never, 0.5)
        assert isinstance(verdict, Postpone)
        assert (verdict.delay, verdict.reason) == (UNHANDLED_DELAY, Reason.SNOOZE)


def test_a_task_is_handed_back_as_it_was() -> None:
    waiting = running(unhandled_since=NOW - HOUR)

    assert handed_back(waiting) == Postpone(
        delay=timedelta(0), reason=Reason.RELEASE, unhandled_since=NOW - HOUR
    )
    assert handed_back(running()).unhandled_since is None


@pytest.mark.parametrize("claimed_at", [None, NOW + 100 * HOUR])
def test_the_wait_for_a_handler_starts_with_the_first_claim_that_lacks_one(
    claimed_at: datetime | None,
) -> None:
    scheduled_long_ago = running(claimed_at=claimed_at)

    assert unhandled_for(scheduled_long_ago) == timedelta(0)


def test_the_wait_for_a_handler_continues_from_claim_to_claim() -> None:
    task, claims = running(claimed_at=NOW + 100 * HOUR), 0
    while isinstance(verdict := decide(task, Unhandled(unhandled_for(task)), never, 0.5), Postpone):
        claims += 1
        assert task.claimed_at is not None
        task = claimed_again(task.claimed_at, verdict, after=HOUR - UNHANDLED_DELAY)

    assert isinstance(verdict, Bury)
    assert claims == UNHANDLED_FOR / HOUR


def test_a_wait_for_a_handler_that_ended_does_not_count_for_the_next() -> None:
    unhandled = decide(running(claimed_at=NOW), Unhandled(timedelta(0)), never, 0.5)
    retried = decide(running(claimed_at=NOW), Failed(error=ERROR), lambda attempt, draw: UNHANDLED_DELAY, 0.5)

    assert isinstance(unhandled, Postpone)
    assert isinstance(retried, Postpone)
    assert (
        unhandled_for(claimed_again(NOW, unhandled, after=UNHANDLED_GAP)) == UNHANDLED_GAP + UNHANDLED_DELAY
    )
    assert unhandled_for(claimed_again(NOW, unhandled, after=UNHANDLED_GAP + HOUR)) == timedelta(0)
    assert unhandled_for(claimed_again(NOW, unhandled, after=-HOUR)) == timedelta(0)
    assert unhandled_for(claimed_again(NOW, retried, after=timedelta(0))) == timedelta(0)


def claimed_again(last: datetime, verdict: Postpone, *, after: timedelta) -> Task:
    """The task as it is claimed this long after it became due again."""
    due = last + verdict.delay
    return running(run_at=due, claimed_at=due + after, unhandled_since=verdict.unhandled_since)


def test_a_type_without_a_handler_dies_after_a_day_and_says_what_to_do() -> None:
    verdict = decide(running(), Unhandled(UNHANDLED_FOR), never, 0.5)

    assert isinstance(verdict, Bury)
    assert verdict.error.type == "UnknownTaskType"
    assert "'mail.send'" in verdict.error.message
    assert "deploy one, then replay" in verdict.error.message


@pytest.mark.parametrize(
    "outcome",
    [Failed(error=ERROR, fatal=True), Failed(error=ERROR), Crashed(error=ERROR), Unhandled(UNHANDLED_FOR)],
)
def test_what_dies_brings_the_steps_on_failure(outcome: Outcome) -> None:
    steps = (
        Step(id="t2", type="next", payload=Raw(b"{}")),
        Step(id="t3", type="refund", payload=Raw(b"{}"), on_failure=True),
    )
    task = running(attempt=8, max_attempts=8, next=encode_steps(steps))

    verdict = decide(task, outcome, never, 0.5)

    assert isinstance(verdict, Bury)
    assert [new.id for new in verdict.successors] == ["t3"]


def test_what_dies_is_buried_though_its_steps_cannot_be_read() -> None:
    task = running(next=b"no steps")

    assert decide(task, Failed(error=ERROR, fatal=True), never, 0.5) == Bury(error=ERROR)
