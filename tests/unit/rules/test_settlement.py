"""Settlement: receipts, what verdicts make of tasks, and what follows."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.unit.rules.tables import Tables, new_task, waiting
from tests.unit.samples import ERROR, NOW, running
from windlass._model.lease import Lease
from windlass._model.state import State
from windlass._model.verdict import Bury, Cancel, Complete, Postpone, Reason, Receipt, Settlement, Verdict
from windlass._stores.rules import questions
from windlass._stores.rules.settlement import settle, settled

MINUTE = timedelta(minutes=1)


def of(task_id: str, verdict: Verdict, *, fence: int = 1, outcome: str = "returned") -> Settlement:
    return Settlement(lease=Lease(task_id, fence), verdict=verdict, outcome=outcome, duration=0.5)


@pytest.mark.parametrize("hides_ended", [False, True])
def test_a_verdict_is_applied_once_under_its_own_fence(hides_ended: bool) -> None:
    tables = Tables(running(id="a"), running(id="b", fence=2), hides_ended=hides_ended)
    batch = [of("a", Complete()), of("a", Complete()), of("b", Complete()), of("gone", Complete())]

    first = tables.run(settle(tables, batch))
    again = tables.run(settle(tables, [of("a", Complete()), of("a", Complete(), fence=7)]))

    assert first.receipts == (Receipt.APPLIED, Receipt.REPEATED, Receipt.LOST, Receipt.REPEATED)
    assert again.receipts == (Receipt.REPEATED, Receipt.LOST)
    assert tables.states() == {"a": State.COMPLETED, "b": State.RUNNING}
    assert tables.outcomes == {"a": "returned"}
    assert questions.EndedFences(["gone"]) in tables.asked


def test_all_but_completions_are_recorded_as_attempts() -> None:
    tables = Tables(running(id="a"), running(id="b"), running(id="c"))

    tables.run(
        settle(
            tables,
            [
                of("a", Complete()),
                of("b", Bury(error=ERROR), outcome="failed"),
                of("c", Postpone(delay=MINUTE, reason=Reason.SNOOZE), outcome="unhandled"),
            ],
        )
    )

    (attempt,) = tables.attempts
    assert (attempt.task_id, attempt.number, attempt.outcome) == ("b", 1, "failed")
    assert (attempt.error, attempt.finished_at, attempt.duration) == (ERROR, NOW, 0.5)


def test_completing_unblocks_and_enqueues_successors() -> None:
    tables = Tables(running(id="a"))
    waiting("next", tables=tables, after=("a",))

    tables.run(settle(tables, [of("a", Complete(successors=(new_task("new", after=("a",)),)))]))

    assert tables.states() == {"a": State.COMPLETED, "next": State.READY, "new": State.READY}


@pytest.mark.parametrize("backwards", [False, True])
def test_one_cancelled_predecessor_of_the_batch_outweighs_a_completed_one(backwards: bool) -> None:
    tables = Tables(running(id="done"), running(id="stopped"))
    waiting("child", tables=tables, after=("done", "stopped"))
    batch = [of("done", Complete()), of("stopped", Cancel())]

    tables.run(settle(tables, batch[::-1] if backwards else batch))

    assert tables.states()["child"] is State.CANCELLED


@pytest.mark.parametrize(
    ("delay", "reason", "state", "attempt", "run_at"),
    [
        (MINUTE, Reason.RETRY, State.SCHEDULED, 3, NOW + MINUTE),
        (timedelta(0), Reason.RETRY, State.READY, 3, NOW),
        (MINUTE, Reason.SNOOZE, State.SCHEDULED, 2, NOW + MINUTE),
        (timedelta(0), Reason.RELEASE, State.READY, 2, NOW - MINUTE),
    ],
)
def test_only_a_retry_counts_and_a_release_keeps_its_place(
    delay: timedelta, reason: Reason, state: State, attempt: int, run_at: object
) -> None:
    task = running(attempt=3, run_at=NOW - MINUTE)

    _, became, fields = settled(task, of(task.id, Postpone(delay=delay, reason=reason)), NOW)

    assert (became, fields["attempt"], fields["run_at"]) == (state, attempt, run_at)


def test_a_task_that_was_asked_to_stop_is_cancelled_instead_of_postponed() -> None:
    task = running(cancel_requested=True, cancelled_by="ada", error=ERROR)
    postpone = Postpone(delay=MINUTE, reason=Reason.RETRY)

    _, state, fields = settled(task, of(task.id, postpone), NOW)
    _, _, failed = settled(task, of(task.id, replace(postpone, error=ERROR)), NOW)

    assert (state, fields["error"].message) == (State.CANCELLED, "cancelled by ada")
    assert failed["error"] == ERROR
