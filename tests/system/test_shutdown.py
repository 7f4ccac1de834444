"""Workers are asked to stop under load: nothing is lost, no attempt is burned, they go quickly. (D11)"""

import fcntl
from time import monotonic

import pytest

from tests.examples import FULL
from tests.system.fleet import Fleet, wait_until

pytestmark = [pytest.mark.system, pytest.mark.timeout(90)]

ROUNDS = 6 if FULL else 3


@pytest.mark.more
def test_stopping_under_load_burns_no_attempts(fleet: Fleet) -> None:
    fleet.start_ready(3, slots=8)
    producer = fleet.produce("p", seed=7, wishes=ROUNDS * 66, per_second=80)

    seconds = []
    for _ in range(ROUNDS):
        # There is always something to run: how long the rounds take must not matter.
        fleet.enqueue("nap", 20, seconds=0.3)
        wait_until(lambda: fleet.running() > 0, 20, what="something runs")
        began = monotonic()
        assert fleet.terminate(fleet.workers[0]) == 0
        seconds.append(monotonic() - began)
        fleet.start_ready(1, slots=8)
    assert producer.process.wait(30) == 0
    fleet.drain(30)
    report = fleet.checked()

    assert max(seconds) < fleet.settings["grace"] + 3
    assert report.numbers["attempts lost with a worker"] == 0


def test_what_outlives_its_grace_is_handed_back_uncounted(fleet: Fleet) -> None:
    fleet.settings["grace"] = 0.5
    (worker,) = fleet.start_ready(1, slots=4)
    long = fleet.enqueue("nap", 8, seconds=6.0)
    wait_until(lambda: fleet.running() == 4, 20, what="four run")

    began = monotonic()
    assert fleet.terminate(worker) == 0
    assert monotonic() - began < 4

    states = [fleet.app.sync_operator.task(task_id) for task_id in long]
    assert {task.state.value for task in states} == {"ready"}
    assert {task.attempt for task in states} == {0}
    lines = [line for task_id in long for line in fleet.app.sync_operator.attempts(task_id)]
    assert [line.outcome for line in lines] == ["interrupted"] * 4
    assert fleet.app.sync_operator.workers() == []


def test_a_rolling_restart_loses_nothing(fleet: Fleet) -> None:
    fleet.start_ready(3)
    producer = fleet.produce("p", seed=8, wishes=300, per_second=60)

    for old in list(fleet.workers):
        fleet.start_ready(1)
        assert fleet.terminate(old) == 0
    assert producer.process.wait(30) == 0
    fleet.drain(30)
    report = fleet.checked()

    assert report.numbers["attempts lost with a worker"] == 0
    assert report.numbers["tasks"] > 500


def test_a_worker_stops_soon_although_the_store_is_out_of_reach(fleet: Fleet) -> None:
    (worker,) = fleet.start_ready(1)
    ids = fleet.enqueue("nap", 5, seconds=0.5)
    wait_until(lambda: fleet.running() == 5, 20, what="five run")

    with (fleet.folder / "windlass.db-lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        began = monotonic()
        assert fleet.terminate(worker) == 0
        seconds = monotonic() - began
    fleet.start_ready(1)
    wait_until(fleet.is_drained, 30, what="the tasks are rescued, and end")

    assert seconds < fleet.settings["grace"] + 10
    assert set(fleet.states(ids)) == {"completed"}
