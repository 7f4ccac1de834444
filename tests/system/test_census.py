"""The census itself: it lets what is sound pass, and finds each breach of a program's rules."""

from datetime import timedelta
from typing import Any

from tests.system.census import Census, judged
from tests.system.checker import LOST_WORKER
from tests.unit.samples import NOW, running
from windlass import State, Task
from windlass._model.attempt import Attempt
from windlass._model.task import Error

LOOK = timedelta(seconds=0.25)


def ended(program: str, state: State = State.COMPLETED, **changes: Any) -> Task:
    return running(id=program, queue=program, state=state, finished_at=NOW, **changes)


def crashed(number: int = 1, seconds: float = 0.0) -> Attempt:
    """An attempt that was claimed so many seconds from now, and lost at once."""
    at = NOW + timedelta(seconds=seconds)
    return Attempt(
        task_id="lasting",
        number=number,
        fence=number,
        worker="w",
        claimed_at=at,
        finished_at=at,
        duration=0.0,
        outcome="crashed",
        error=Error(type=LOST_WORKER, message="gone"),
    )


def broken(census: Census, *lines: Attempt, enqueued: dict[str, str] | None = None) -> set[str]:
    """The rules that were broken."""
    report = judged(census, enqueued or {}, {"lasting": lines} if lines else {})
    return {violation.rule for violation in report.violations}


def looked(*looks: tuple[float, list[Task]]) -> Census:
    """What was seen at these moments, in seconds from now."""
    census = Census()
    for seconds, tasks in looks:
        census.note(NOW + timedelta(seconds=seconds), NOW + timedelta(seconds=seconds) + LOOK, tasks)
    return census


# -- retention ---------------------------------------------------------------------------------------


def test_what_is_pruned_in_its_time_is_sound() -> None:
    census = looked((0, [ended("brief"), ended("lasting")]), (1.8, [ended("lasting")]))

    assert broken(census, enqueued={"brief": "brief", "lasting": "lasting"}) == set()


def test_what_is_pruned_too_early() -> None:
    assert broken(looked((0, [ended("brief")]), (1.5, []))) == {"pruned too early"}


def test_what_is_kept_for_ever() -> None:
    lasting = looked((0, [ended("lasting")]), (99, []))
    letter = looked((0, [ended("custom", State.DEAD, attempt=3)]), (99, []))

    assert broken(lasting) == broken(letter) == {"pruned though kept for ever"}


def test_what_vanishes_before_its_end() -> None:
    task = running(id="brief", queue="brief")

    assert broken(looked((0, [task]), (1, []))) == {"gone before it was seen to end"}
    assert broken(looked((0, [task]), (3, []))) == set()  # it may have ended and been pruned meanwhile


def test_what_was_never_seen() -> None:
    looks = looked((0, []), (1, []))

    assert broken(looks, enqueued={"x": "brief"}) == {"gone before it was seen"}
    assert broken(looked((0, []), (3, [])), enqueued={"x": "brief"}) == set()
    assert broken(looked((0, []), (3, [])), enqueued={"x": "lasting"}) == {"gone before it was seen"}


# -- retries and dead letters ------------------------------------------------------------------------


def due_after(seconds: float) -> Census:
    """A task of a program that waits 6 s, seen to wait for so long after its first attempt."""
    run_at = NOW + timedelta(seconds=seconds)
    return looked((0, [running(id="lasting", queue="lasting", state=State.SCHEDULED, run_at=run_at)]))


def test_a_retry_by_the_programs_own_delay_is_sound() -> None:
    assert broken(due_after(6), crashed(), crashed(2, 6.5)) == set()


def test_a_retry_by_another_delay() -> None:
    assert broken(due_after(0.3), crashed()) == broken(due_after(9), crashed()) == {"another delay"}


def test_a_retry_that_nobody_saw_waiting() -> None:
    assert broken(looked((0, [ended("lasting")])), crashed(), crashed(2, 3)) == {"retried too early"}


def test_a_task_buried_before_its_attempts_are_used_up() -> None:
    assert broken(looked((0, [ended("lasting", State.DEAD, attempt=3)]))) == {"buried by other rules"}
    assert broken(looked((0, [ended("lasting", State.DEAD, attempt=4)]))) == set()
