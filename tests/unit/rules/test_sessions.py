"""Heartbeats: which leases are lost, and what becomes of claims that never reached the worker."""

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.rules.tables import Tables, waiting
from tests.unit.samples import running
from windlass._model.lease import RESCUED, CancelRequest, Heartbeat, Lease
from windlass._model.record import Worker
from windlass._model.state import State
from windlass._stores.rules.sessions import (
    heartbeat_reply,
    release_unacknowledged_claims,
    unacknowledged_claims,
)


def beat(*held: Lease, through: int = 5) -> Heartbeat:
    return Heartbeat(
        session="s", worker=Worker(name="w"), lease_for=timedelta(seconds=30), held=held, through=through
    )


def test_the_reply_names_lost_leases_and_tasks_to_stop() -> None:
    kept, stopped, lost = Lease("a", 1), Lease("b", 1), Lease("c", 1)

    asked = CancelRequest("b", "ada", "wrong list")

    running = {kept: None, stopped: asked, Lease("c", 2): None}
    reply = heartbeat_reply(beat(kept, stopped, lost), running, workers=3)

    assert (reply.alive, reply.lost, reply.cancel, reply.workers) == (True, (lost,), (asked,), 3)


def test_a_claim_is_unacknowledged_if_its_reply_was_lost() -> None:
    claims = [("held", 1, 3), ("lost", 1, 3), ("on its way", 1, 6), ("another lease", 2, 3)]

    found = unacknowledged_claims(beat(Lease("held", 1), Lease("another lease", 1)), claims)

    assert found == {"lost": 3, "another lease": 3}


@pytest.mark.parametrize(("number", "attempt"), [(3, 1), (RESCUED, 2)])
def test_it_is_released_with_a_raised_fence(number: int, attempt: int) -> None:
    tables = Tables(running(id="a", session="s", attempt=2))

    tables.run(release_unacknowledged_claims(tables, beat(), {"a": number}))

    task = tables.tasks["a"]
    assert (task.state, task.attempt, task.fence, task.session) == (State.READY, attempt, 2, None)


def test_one_that_was_asked_to_stop_is_cancelled_with_its_successors() -> None:
    tables = Tables(running(id="a", session="s", cancel_requested=True))
    waiting("b", tables=tables, after=("a",))

    tables.run(release_unacknowledged_claims(tables, beat(), {"a": 3}))

    assert tables.states() == {"a": State.CANCELLED, "b": State.CANCELLED}


@pytest.mark.parametrize(
    ("changes", "number"),
    [({"session": "other"}, 3), ({"state": State.DEAD}, 3), ({"fence": 4}, 3), ({}, 6)],
)
def test_what_has_changed_meanwhile_is_left_alone(changes: dict[str, Any], number: int) -> None:
    task = running(id="a", **{"session": "s", **changes})
    tables = Tables(task)

    tables.run(release_unacknowledged_claims(tables, beat(Lease("a", 4)), {"a": number, "gone": 3}))

    assert tables.tasks["a"] == task
