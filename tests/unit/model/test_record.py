"""Sessions: whose they are. Tasks: since when they are due."""

from datetime import timedelta

import pytest

from tests.unit.samples import NOW, running
from windlass._model.record import Session, Worker


@pytest.mark.parametrize(
    ("worker", "is_keeper"),
    [
        (Worker(name="keeper alice"), True),
        (Worker(name="keeper"), True),
        (Worker(name="keeper alice", slots=4), False),  # a worker may be called so
        (Worker(name="keepers"), False),
        (Worker(name="alice", slots=4), False),
        (Worker(name="alice"), False),
    ],
)
def test_a_keeper_has_a_session_of_its_own_and_no_slots(worker: Worker, is_keeper: bool) -> None:
    session = Session(id="s", worker=worker, started_at=NOW, beat_at=NOW, expires_at=NOW)

    assert session.is_keeper is is_keeper


def test_a_task_is_due_once_it_is_there() -> None:
    second = timedelta(seconds=1)

    assert running(run_at=NOW - second).due_at == NOW
    assert running(run_at=NOW + second).due_at == NOW + second
