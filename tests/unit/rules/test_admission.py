"""Admission: which tasks of a batch are new, which exist, and which are refused."""

import pytest

from tests.unit.rules.tables import Tables, new_task
from tests.unit.samples import running
from windlass._model.state import State
from windlass._model.task import Enqueued
from windlass._stores.rules import questions
from windlass._stores.rules.admission import admit, is_plain
from windlass.errors import DuplicateTask, IdempotencyConflict, NotFound


def created(task_id: str) -> Enqueued:
    return Enqueued(id=task_id, created=True)


def existing(task_id: str) -> Enqueued:
    return Enqueued(id=task_id, created=False)


def test_plain_tasks_take_one_look_and_one_insert() -> None:
    tables = Tables(running(id="a"))

    enqueued = tables.run(admit(tables, [new_task("a"), new_task("b"), new_task("b")]))

    assert enqueued == [existing("a"), created("b"), existing("b")]
    assert [type(asked) for asked in tables.asked] == [questions.States, questions.InsertTasks]


def test_nothing_new_inserts_nothing() -> None:
    tables = Tables(running(id="a"))

    assert tables.run(admit(tables, [new_task("a")])) == [existing("a")]
    assert tables.asked == [questions.States(["a"])]


@pytest.mark.parametrize(
    ("options", "plain"),
    [
        ({}, True),
        ({"idempotency_key": "k"}, False),
        ({"fingerprint": "f"}, False),
        ({"after": ("a",)}, False),
    ],
)
def test_a_plain_task_needs_no_more_than_its_id(options: dict[str, object], plain: bool) -> None:
    assert is_plain(new_task("t", **options)) is plain


def test_a_key_stands_for_one_task_also_within_a_batch() -> None:
    tables = Tables(running(id="old"))
    tables.keys["", "stored"] = questions.Key("old", "d")

    enqueued = tables.run(
        admit(
            tables,
            [
                new_task("a", idempotency_key="stored", idempotency_digest="d"),
                new_task("b", idempotency_key="new", idempotency_digest="d"),
                new_task("c", idempotency_key="new", idempotency_digest="d"),
            ],
        )
    )

    assert enqueued == [existing("old"), created("b"), existing("b")]


def test_a_key_of_another_request_is_refused() -> None:
    tables = Tables(running(id="old"))
    tables.keys["", "k"] = questions.Key("old", "d")

    with pytest.raises(IdempotencyConflict, match="already used for task old") as refused:
        tables.run(admit(tables, [new_task("a", idempotency_key="k", idempotency_digest="other")]))

    assert refused.value.standing == "old"


def test_a_fingerprint_is_refused_until_its_task_has_ended() -> None:
    tables = Tables(running(id="old", fingerprint="f"), running(id="past", fingerprint="g", state=State.DEAD))

    with pytest.raises(DuplicateTask, match="has not finished yet: old"):
        tables.run(admit(tables, [new_task("a", fingerprint="f")]))
    with pytest.raises(DuplicateTask, match="has not finished yet: b"):
        tables.run(admit(tables, [new_task("b", fingerprint="g"), new_task("c", fingerprint="g")]))


def test_an_unknown_predecessor_is_refused() -> None:
    tables = Tables()

    with pytest.raises(NotFound, match="cannot wait for x: there is no such task"):
        tables.run(admit(tables, [new_task("a", after=("x",))]))


def test_successors_start_by_the_states_of_their_predecessors() -> None:
    tables = Tables(
        running(id="done", state=State.COMPLETED),
        running(id="runs"),
        running(id="off", state=State.CANCELLED),
    )

    tables.run(
        admit(
            tables,
            [
                new_task("free", after=("done",)),
                new_task("waits", after=("done", "runs")),
                new_task("doomed", after=("runs", "off")),
                new_task("too", after=("doomed",)),
            ],
        )
    )

    states = tables.states()
    assert (states["free"], states["waits"]) == (State.READY, State.WAITING)
    assert (states["doomed"], states["too"]) == (State.CANCELLED, State.CANCELLED)
    assert tables.dependencies == [("done", "waits"), ("runs", "waits")]
