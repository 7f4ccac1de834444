"""Tasks: when they are due."""

from datetime import timedelta

from tests.unit.samples import NOW, running


def test_a_task_is_due_once_it_is_there() -> None:
    second = timedelta(seconds=1)

    assert running(run_at=NOW - second).due_at == NOW
    assert running(run_at=NOW + second).due_at == NOW + second
