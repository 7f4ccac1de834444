"""`windlass worker --workers N`: kill, replace and stop its workers under load; nothing is lost."""

import os
import re
import signal
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.system.fleet import wait_until
from tests.system.supervised import has_ended
from tests.system.worker_processes import SLOTS, WorkerProcesses
from windlass import Filter, Page

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

Work = Callable[..., WorkerProcesses]


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    with ExitStack() as running:

        def start(number: int, *options: str) -> WorkerProcesses:
            return running.enter_context(WorkerProcesses(tmp_path, number, *options))

        yield start


def attempts(workers: WorkerProcesses) -> set[int]:
    return {task.attempt for task in workers.app.sync_operator.find(Filter(), Page(limit=1000)).items}


def test_a_killed_worker_and_a_rolling_restart_lose_nothing(work: Work) -> None:
    workers = work(4, "--name", "w")
    first = workers.children
    assert len(first) == 4
    assert workers.log.count("4 workers started") == 1
    assert {f"[worker {number}] worker w-{number} is ready" in workers.log for number in (1, 2, 3, 4)} == {
        True
    }

    workers.enqueue(200, 0.2)
    wait_until(lambda: len(workers.runs()) > 20, 30, what="tasks run")
    workers.parent.send_signal(signal.SIGHUP)
    wait_until(lambda: workers.log.count("has taken over from") == 4, 90, what="all are replaced")
    assert set(workers.children).isdisjoint(first)
    workers.enqueue(100, 0.0)
    workers.until_completed(300)
    assert set(workers.runs().values()) == {1}  # each was let finish

    workers.enqueue(60, 1.0)
    victim = workers.children[0]
    wait_until(lambda: workers.busy(victim) > 0, 30, what="the victim runs some", every=0.01)
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: "was killed by SIGKILL; restarting it in 0 s" in workers.log, 30, what="it is noticed")
    workers.until_completed(360)
    wait_until(lambda: len(workers.children) == 4, 30, what="it is replaced")

    workers.enqueue(60, 0.3)
    wait_until(lambda: len(workers.runs()) > 370, 30, what="tasks run")
    workers.parent.terminate()
    assert workers.parent.wait(60) == 0
    assert workers.states()["running"] == 0
    assert workers.states().total() == 420
    assert workers.log.count("4 workers stopped") == 1
    assert "Traceback" not in workers.log
    assert workers.everyone_has_ended()


def test_killing_the_supervisor_lets_workers_finish_and_orphans_nobody(work: Work) -> None:
    workers = work(2)
    children = workers.children
    workers.enqueue(4, 2.0)
    workers.enqueue_apart(2)
    wait_until(lambda: len(workers.runs()) == 6, 30, what="all run")
    grandchildren = [one for pid in children for one in _children(pid)]
    workers.parent.kill()
    workers.parent.wait()
    wait_until(lambda: all(has_ended(one) for one in [*children, *grandchildren]), 60, what="all have ended")
    assert workers.states() == {"completed": 6}
    assert attempts(workers) == {1}
    assert grandchildren


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.full
def test_the_second_signal_cuts_and_hands_tasks_back(work: Work) -> None:
    workers = work(2, "--grace", "5m")
    workers.enqueue(4, 3600)
    wait_until(lambda: len(workers.runs()) == 4, 30, what="all run")
    workers.parent.send_signal(signal.SIGINT)
    wait_until(lambda: "waiting up to 300 s" in workers.log, 30, what="it waits")
    workers.parent.send_signal(signal.SIGINT)
    assert workers.parent.wait(60) == 0
    assert workers.states() == {"ready": 4}
    assert attempts(workers) == {0}
    assert workers.everyone_has_ended()


@pytest.mark.full
def test_drain_ends_when_all_have_drained(work: Work, tmp_path: Path) -> None:
    WorkerProcesses(tmp_path, 1, "--drain").parent.wait(60)  # makes the store
    workers = WorkerProcesses(tmp_path, 2, "--drain", "--no-keeper")
    assert workers.parent.wait(60) == 0
    assert "2 workers stopped" in workers.log
    assert "restarting" not in workers.log


@pytest.mark.full
def test_metrics_are_the_sums_of_all_workers(work: Work) -> None:
    workers = work(2, "--metrics", "127.0.0.1:0")
    found = re.search(r"http://127\.0\.0\.1:\d+/metrics", workers.log)
    assert found is not None

    def sample(name: str) -> int:
        text = urllib.request.urlopen(found[0], timeout=20).read().decode()
        line = re.search(rf"{name} (\d+)", text)
        return 0 if line is None else int(line[1])

    def completed() -> int:
        return sample('windlass_tasks_ended_total{.*state="completed",type="nap"}')

    def slots() -> tuple[int, int]:
        return sample('windlass_slots{state="busy"}'), sample('windlass_slots{state="free"}')

    wait_until(lambda: slots() == (0, 2 * SLOTS), 60, what="the slots of both are shown", every=0.2)
    workers.enqueue(60, 0.1)
    wait_until(lambda: completed() == 60, 60, what="all are counted", every=0.2)
    workers.parent.send_signal(signal.SIGHUP)
    wait_until(lambda: workers.log.count("has taken over from") == 2, 60, what="all are replaced")
    workers.enqueue(10, 0.0)
    wait_until(lambda: completed() == 70, 60, what="no counter fell", every=0.2)
    workers.enqueue(1, 3600)
    wait_until(lambda: slots() == (1, 2 * SLOTS - 1), 60, what="those of the replaced are gone", every=0.2)
    busy = next(pid for pid in workers.children if workers.busy(pid))
    os.kill(busy, signal.SIGKILL)
    wait_until(lambda: sum(slots()) == SLOTS, 60, what="those of the killed one are gone", every=0.01)
    wait_until(lambda: sum(slots()) == 2 * SLOTS, 60, what="those of a new one are there", every=0.2)


@pytest.mark.full
def test_recycled_workers_are_replaced_and_lose_nothing(work: Work) -> None:
    workers = work(2, "--max-tasks", "30")
    workers.enqueue(150, 0.05)
    workers.until_completed(150)
    wait_until(lambda: workers.log.count("has taken over from") >= 2, 60, what="workers are replaced")
    assert "asking to be replaced: it has run " in workers.log
    assert set(workers.runs().values()) == {1}
    assert attempts(workers) == {1}
