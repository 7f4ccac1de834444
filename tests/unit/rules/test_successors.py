"""Successors are unblocked when the last predecessor completes, and cancelled when one never will."""

from datetime import timedelta

from msgspec.structs import replace

from tests.unit.rules.tables import Tables, waiting
from tests.unit.samples import NOW, running
from windlass._model.filter import By
from windlass._model.state import State
from windlass._stores.rules import cancellation, questions
from windlass._stores.rules.successors import abandon, cancel_pending, lock_dependents, unblock


def complete(tables: Tables, *ids: str) -> None:
    tables.run(unblock(tables, tables.run(lock_dependents(ids))))


def test_a_task_starts_when_its_last_predecessor_completed() -> None:
    tables = Tables(running(id="a", state=State.COMPLETED), running(id="b"))
    waiting("last", tables=tables, after=("a", "b"))

    complete(tables, "a")
    assert tables.states()["last"] is State.WAITING

    tables.tasks["b"] = replace(tables.tasks["b"], state=State.COMPLETED)
    complete(tables, "a", "b")

    assert tables.states()["last"] is State.READY
    assert tables.dependencies == []


def test_a_task_that_is_not_due_becomes_scheduled() -> None:
    tables = Tables(running(id="a", state=State.COMPLETED))
    waiting("later", tables=tables, after=("a",))
    tables.tasks["later"] = replace(tables.tasks["later"], run_at=NOW + timedelta(hours=1))

    complete(tables, "a")

    assert tables.states()["later"] is State.SCHEDULED


def test_one_question_is_enough_where_nothing_waits() -> None:
    tables = Tables(running(id="a", state=State.COMPLETED))

    complete(tables, "a")

    assert tables.asked == [questions.Dependents(("a",))]


def test_abandoning_cancels_the_whole_chain_and_says_why() -> None:
    tables = Tables(running(id="0", state=State.DEAD))
    for number in range(1, 2_000):  # deeper than Python's recursion limit
        waiting(str(number), tables=tables, after=(str(number - 1),))

    tables.run(abandon(tables, "0", cancellation.pruned()))

    first, last = tables.tasks["1"], tables.tasks["1999"]
    assert {task.state for task in tables.tasks.values()} == {State.DEAD, State.CANCELLED}
    assert first.error is not None
    assert first.error.message == "task 0, which it waited for, died and was pruned"
    assert last.error is not None
    assert last.error.message == (
        "task 1998, which it waited for, was cancelled, because task 0 died and was pruned"
    )
    assert (first.finished_at, tables.dependencies) == (NOW, [])


def test_cancelling_a_pending_task_cancels_what_waits_for_it() -> None:
    task = running(id="a", state=State.READY)
    tables = Tables(task)
    waiting("b", tables=tables, after=("a",))

    tables.run(cancel_pending(tables, task, cancellation.by_operator(By(who="ada"))))

    assert tables.states() == {"a": State.CANCELLED, "b": State.CANCELLED}
