"""Actions of operators: from which states, on how many tasks, and with which entries in the audit log."""

import msgspec
import pytest
from msgspec.structs import replace

from tests.unit.rules.tables import Tables, waiting
from tests.unit.samples import running
from windlass._model.filter import By, CancelTasks, Change, Discard, Expire, Filter, Replay
from windlass._model.options import DeclaredType, Defaults
from windlass._model.state import State
from windlass._model.task import Error
from windlass._stores.rules.actions import applicable, apply

ADA = By(who="ada")
EVERY = tuple(State)


def done(tables: Tables, action: Change, *ids: str, limit: int = 10) -> list[str]:
    states = applicable(action, Filter()).states or ()
    return list(tables.run(apply(tables, action, ids, states, limit)).ids)


@pytest.mark.parametrize(
    ("action", "states"),
    [
        (CancelTasks(by=ADA), {State.WAITING, State.SCHEDULED, State.READY, State.RUNNING}),
        (Replay(by=ADA), {State.DEAD, State.CANCELLED}),
        (Discard(by=ADA), {State.DEAD}),
        (Expire(), {State.WAITING, State.SCHEDULED, State.READY}),
    ],
)
def test_a_filter_is_narrowed_to_the_states_that_permit_the_action(
    action: Change, states: set[State]
) -> None:
    assert set(applicable(action, Filter()).states or ()) == states
    assert set(applicable(action, Filter(states=EVERY)).states or ()) == states
    assert applicable(action, Filter(states=(State.COMPLETED,))).states == ()


def test_cancel_ends_pending_tasks_and_asks_running_ones_to_stop() -> None:
    tables = Tables(running(id="a"), running(id="b", state=State.READY), running(id="c", state=State.DEAD))

    assert done(tables, CancelTasks(by=ADA), "a", "b", "c", "gone") == ["a", "b"]

    assert tables.states() == {"a": State.RUNNING, "b": State.CANCELLED, "c": State.DEAD}
    assert tables.tasks["a"].cancel_requested
    error = tables.tasks["b"].error
    assert error is not None
    assert error.message == "cancelled by ada"
    assert [(entry.action, entry.task_id) for entry in tables.audits] == [("cancel", "a"), ("cancel", "b")]


def test_what_an_earlier_cancellation_took_along_is_not_acted_on_again() -> None:
    tables = Tables(running(id="a", state=State.READY))
    waiting("b", tables=tables, after=("a",))

    assert done(tables, CancelTasks(by=ADA), "a", "b") == ["a"]
    assert tables.states()["b"] is State.CANCELLED


def test_an_action_stops_at_its_limit() -> None:
    tables = Tables(running(id="a", state=State.DEAD), running(id="b", state=State.DEAD))

    assert done(tables, Replay(by=ADA), "a", "b", limit=1) == ["a"]
    assert done(tables, Replay(by=ADA), "a", "b", limit=0) == []


def test_replay_makes_a_task_ready_with_all_its_attempts() -> None:
    tables = Tables(running(id="a", state=State.DEAD, attempt=3, cancel_requested=True))

    assert done(tables, Replay(by=ADA, payload=b"[1]"), "a") == ["a"]

    task = tables.tasks["a"]
    assert (task.state, task.attempt, task.payload, task.run_at) == (State.READY, 0, b"[1]", tables.now)
    assert (task.cancel_requested, tables.audits[0].detail) == (False, '{"type":"mail.send","edited":true}')


def test_of_two_dead_tasks_with_one_fingerprint_only_the_first_is_replayed() -> None:
    tables = Tables(*(running(id=name, state=State.DEAD, fingerprint="f") for name in ("a", "b")))

    assert done(tables, Replay(by=ADA), "a", "b") == ["a"]
    assert done(tables, Replay(by=ADA), "b") == []


def test_discard_deletes_and_cancels_what_waits() -> None:
    tables = Tables(running(id="a", state=State.DEAD))
    waiting("b", tables=tables, after=("a",))

    assert done(tables, Discard(by=ADA), "a") == ["a"]

    assert tables.states() == {"b": State.CANCELLED}


def test_the_entry_of_a_discard_masks_what_the_type_keeps_secret_by_now() -> None:
    dead = running(id="a", state=State.DEAD, type="pay", payload=b'{"card":"4242","text":"card 4242"}')
    tables = Tables(replace(dead, error=Error(type="Declined", message="4242 was declined")))
    tables.types = [DeclaredType(name="new", aliases=("pay",), defaults=Defaults(secret=("card",)))]

    assert done(tables, Discard(by=ADA), "a") == ["a"]

    (entry,) = tables.audits
    assert "4242" not in entry.detail
    lost = msgspec.json.decode(entry.detail)
    assert lost["payload"] == {"card": "[secret]", "text": "card [secret]"}
    assert lost["error"] == {"type": "Declined", "message": "[secret] was declined"}
