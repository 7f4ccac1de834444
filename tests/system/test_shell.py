"""A worker in bash, with curl and jq: what its command says, its end, its recovery. (I2)"""

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.examples import FULL
from tests.system.fleet import LEASE, Fleet, wait_until
from tests.system.foreign import QUEUE, Site
from windlass import By, Filter, State

ECHO = ("bash", "-c", 'echo "$WINDLASS_TASK $WINDLASS_TYPE $WINDLASS_ATTEMPT" >>runs; cat')
NAP = ("bash", "-c", "echo begun >>runs; trap 'echo ended >>runs; exit 1' TERM; sleep 60 & wait")
pytestmark = [pytest.mark.system, pytest.mark.timeout(90)]


@pytest.fixture
def site(fleet: Fleet) -> Iterator[Site]:
    site = Site(fleet)
    with closing(site.server):
        site.server.start()
        yield site


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Where the commands write down what they do."""
    file = tmp_path / "runs"
    file.touch()
    return file


def wait_for_runs(runs: Path, *told: str) -> None:
    wait_until(lambda: runs.read_text().split() == list(told), 20, what=f"it says {told}")


@pytest.mark.more
def test_it_drains_a_queue(site: Site, runs: Path) -> None:
    ids = site.send_many("echo", 20 if FULL else 8, text="ünïcode")
    worker = site.start_shell(*ECHO)
    site.drain(40)
    worker.process.terminate()

    assert worker.process.wait(10) == 0, worker.errors.read_text()
    assert site.sessions() == []
    assert sorted(runs.read_text().splitlines()) == sorted(f"{task_id} echo 1" for task_id in ids)
    tasks = site.all_tasks()
    assert {task.state for task in tasks} == {State.COMPLETED}
    assert all(task.result == task.payload for task in tasks)


def test_the_status_says_what_becomes_of_a_task(site: Site) -> None:
    kinds = (
        "case $WINDLASS_TYPE in fails) echo 'no file' >&2; exit 3;; later) exit 75;; esac; echo plain text"
    )
    fails, later, said = site.send("fails", max_attempts=1), site.send("later"), site.send("said")
    site.start_shell("bash", "-c", kinds)

    error = site.wait_for(fails, State.DEAD).error
    assert error is not None
    assert (error.type, error.message) == ("exit status 3", "no file")
    task = site.wait_for(later, State.SCHEDULED)
    assert (task.attempt, task.error) == (0, None)
    assert site.wait_for(said, State.COMPLETED).result == b'"plain text\\n"'


@pytest.mark.full
def test_a_large_payload_and_a_large_result_go_through(site: Site) -> None:
    task = site.send("echo", {"text": "x" * 900_000})
    site.start_shell("cat")

    assert site.wait_for(task, State.COMPLETED).result == site.task(task).payload


def test_a_command_is_held_to_the_timeout_of_the_task(site: Site, runs: Path) -> None:
    task = site.send("nap", timeout=0.5, max_attempts=1)
    site.start_shell(*NAP)

    error = site.wait_for(task, State.DEAD).error
    assert error is not None
    assert error.type == "TimedOut"
    wait_for_runs(runs, "begun", "ended")


def test_a_cancelled_task_ends_its_command(site: Site, runs: Path) -> None:
    task = site.send("nap")
    site.start_shell(*NAP)
    wait_for_runs(runs, "begun")
    site.operator.cancel(Filter(ids=(task,)), by=By(who="tests"))

    site.wait_for(task, State.CANCELLED)
    wait_for_runs(runs, "begun", "ended")


def test_it_gives_back_what_takes_too_long_when_it_stops(site: Site, runs: Path) -> None:
    task = site.send("nap")
    worker = site.start_shell(*NAP, GRACE="0")
    wait_for_runs(runs, "begun")
    worker.process.terminate()

    assert worker.process.wait(15) == 0, worker.errors.read_text()
    given_back = site.task(task)
    assert (given_back.state, given_back.attempt) == (State.READY, 0)
    assert site.sessions() == []


def test_nothing_is_lost_with_one_that_is_killed(site: Site, runs: Path) -> None:
    held = site.send("nap")
    rest = site.send_many("echo", 5)
    worker = site.start_shell(*NAP)
    wait_for_runs(runs, "begun")
    os.killpg(worker.process.pid, signal.SIGKILL)
    worker.process.wait()
    site.start_shell("true")

    assert site.wait_for(held, State.COMPLETED, seconds=30).attempt == 2
    site.drain(30)
    assert set(site.fleet.states(rest)) == {"completed"}


@pytest.mark.full
def test_it_goes_on_once_the_server_is_back(site: Site, runs: Path) -> None:
    task = site.send("slow")
    worker = site.start_shell("bash", "-c", "echo begun >>runs; sleep 1; echo ended >>runs", LEASE="10")
    wait_for_runs(runs, "begun")
    site.server.kill()
    wait_for_runs(runs, "begun", "ended")
    site.server.start()

    assert site.wait_for(task, State.COMPLETED).attempt == 1
    site.wait_for(site.send("another"), State.COMPLETED)
    assert worker.alive
    assert site.key.text not in worker.errors.read_text()


@pytest.mark.full
def test_one_that_stood_still_begins_anew(site: Site, runs: Path) -> None:
    worker = site.start_shell("bash", "-c", "echo begun >>runs")
    worker.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: site.sessions() == [], 20 + LEASE, what="it is taken for dead")
    worker.process.send_signal(signal.SIGCONT)

    assert site.wait_for(site.send("nap"), State.COMPLETED).queue == QUEUE
