"""Tasks that kill what runs them use up their attempts and die; their neighbours do not. (D4, D8, D12)"""

import pytest

from tests.system.fleet import Fleet, wait_until

pytestmark = [pytest.mark.system, pytest.mark.timeout(90)]


def keep_three(fleet: Fleet) -> bool:
    """Replace what has died; says whether all tasks have ended."""
    for worker in list(fleet.workers):
        if not worker.alive:
            fleet.bury(worker)
    while len(fleet.workers) < 3:
        fleet.start()
    return fleet.is_drained()


def test_a_task_that_kills_its_worker_dies_in_the_end(fleet: Fleet) -> None:
    fleet.start_ready(3)
    poison = [*fleet.enqueue("poison", how="kill"), *fleet.enqueue("poison", how="exit")]
    neighbours = [*fleet.enqueue("nap", 60, seconds=0.05), *fleet.enqueue("threaded", 20, seconds=0.05)]

    wait_until(lambda: keep_three(fleet), 60, what="all end", every=0.1)
    fleet.drain(20)
    report = fleet.checked()

    assert fleet.states(poison) == ["dead", "dead"]
    for task_id in poison:
        assert [line.outcome for line in fleet.app.sync_operator.attempts(task_id)] == ["crashed"] * 3
    assert set(fleet.states(neighbours)) == {"completed"}
    assert report.numbers["fault kill"] >= 3


def test_a_task_that_kills_its_own_process_costs_an_attempt_and_no_worker(fleet: Fleet) -> None:
    (worker,) = fleet.start_ready(1)
    poison = [*fleet.enqueue("isolated_poison", how="kill"), *fleet.enqueue("isolated_poison", how="exit")]
    neighbours = [*fleet.enqueue("nap", 20, seconds=0.05), *fleet.enqueue("isolated", 5)]

    wait_until(fleet.is_drained, 40, what="all end")
    assert worker.alive
    fleet.drain(20)
    fleet.checked()

    assert fleet.states(poison) == ["dead", "dead"]
    lines = [line for task_id in poison for line in fleet.app.sync_operator.attempts(task_id)]
    assert [line.outcome for line in lines] == ["crashed"] * 6
    assert {line.error.type for line in lines if line.error} == {"ProcessDied"}
    assert set(fleet.states(neighbours)) == {"completed"}


def test_a_blocked_event_loop_keeps_its_leases(fleet: Fleet) -> None:
    fleet.start_ready(2)

    ids = fleet.enqueue("blocker", seconds=2 * fleet.settings["lease"])
    fleet.drain(30)
    report = fleet.checked()

    assert fleet.states(ids) == ["completed"]
    assert report.numbers["runs"] == 1
    assert report.numbers["attempts lost with a worker"] == 0


def test_a_task_that_silences_its_worker_does_not_run_for_ever(fleet: Fleet) -> None:
    fleet.start_ready(1)

    ids = fleet.enqueue("hog", seconds=0.9 * fleet.settings["lease"])
    wait_until(fleet.is_drained, 30, what="it ends")

    assert len(fleet.runs()) <= 3
    assert fleet.states(ids) in (["completed"], ["dead"])
