"""Tasks: when they are due."""

from datetime import timedelta

from tests.unit.samples import NOW, running
from windlass._model.options import DeclaredType, by_name_or_alias
from windlass._model.record import Declaration, Worker


def test_a_task_is_due_once_it_is_there() -> None:
    second = timedelta(seconds=1)

    assert running(run_at=NOW - second).due_at == NOW
    assert running(run_at=NOW + second).due_at == NOW + second


def test_a_worker_handles_the_types_it_names_and_any_if_it_names_none() -> None:
    assert Worker(name="w", types=("a",)).handles("a")
    assert not Worker(name="w", types=("a",)).handles("b")
    assert Worker(name="w").handles("b")


def test_a_worker_serves_the_queues_that_it_names_or_all() -> None:
    assert Worker(name="w", queues=("a",)).serves("a")
    assert not Worker(name="w", queues=("a",)).serves("b")
    assert Worker(name="w", all_queues=True).serves("b")


def test_a_declaration_tells_what_it_is_of() -> None:
    declaration = Declaration(name="queue/a/b", body="{}")
    assert (declaration.kind, declaration.subject) == ("queue", "a/b")


def test_a_types_name_takes_precedence_over_the_alias_of_another() -> None:
    new, old = DeclaredType(name="new", aliases=("old", "older")), DeclaredType(name="old")

    assert by_name_or_alias([old, new]) == {"new": new, "old": old, "older": new}
