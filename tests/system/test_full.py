"""The disk is full for a while: nothing is lost, nothing settled twice, and work goes on by itself."""

import pytest

from tests.examples import FULL
from tests.system.fleet import Fleet, Schedule, wait_until

pytestmark = [pytest.mark.system, pytest.mark.timeout(90)]

WISHES = 500 if FULL else 250


@pytest.mark.full
def test_work_resumes_by_itself_when_a_full_disk_has_space_again(fleet: Fleet) -> None:
    fleet.start_ready(3, may_fill=True)
    producer = fleet.produce("p", seed=11, wishes=WISHES, per_second=WISHES / 8, may_fill=True)
    schedule = Schedule()
    for begin, seconds in ((1.0, 0.5), (2.5, 1.0), (4.5, 3.5)):  # the last one for longer than a lease
        schedule.at(begin, fleet.fill_disk)
        schedule.at(begin + seconds, fleet.free_disk)

    schedule.run()
    assert producer.process.wait(40) == 0, producer.errors.read_text()[-2000:]
    assert all(worker.alive for worker in fleet.workers)
    fleet.drain(40)
    report = fleet.checked()

    assert report.numbers["fault full"] == 3
    assert report.numbers["tasks"] > WISHES


def test_a_settlement_that_meets_a_full_disk_is_made_good(fleet: Fleet) -> None:
    (worker,) = fleet.start_ready(1, may_fill=True)
    running = fleet.enqueue("nap", 4, seconds=0.5)
    wait_until(lambda: fleet.running() == 4, 20, what="four run")

    fleet.fill_disk()
    wait_until(lambda: "full" in worker.errors.read_text(), 10, what="the worker meets the full disk")
    fleet.free_disk()
    fleet.drain(30)
    report = fleet.checked()

    assert set(fleet.states(running)) == {"completed"}
    assert report.numbers["acknowledged"] == 4
