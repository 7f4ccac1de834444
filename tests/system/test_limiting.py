"""The checkers of limits themselves: what kept to a limit passes, and what did not is found."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.system.history import Ended, Fault, History, Started
from tests.system.limiting import ROUNDING, most_at_once, pace
from windlass import State, Task
from windlass._model.attempt import Attempt
from windlass._model.task import Error

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
MS = 1_000_000
KEY = ("capped", "a")


class Told:
    """A history of tasks under one key, told run by run, in milliseconds."""

    def __init__(self) -> None:
        self.history = History(wall=int(BEGAN.timestamp()) * 1_000_000_000)
        self._notes: list[Started | Ended] = []

    def run(self, task_id: str, start: int, end: int | None, *, fence: int = 1, worker: str = "w1") -> None:
        payload = json.dumps({"account": "a"}).encode()
        fields = {"root": task_id, "queue": "default", "tenant": "", "priority": 0, "boost": 0}
        moments = {"run_at": BEGAN, "created_at": BEGAN}
        counts = {"state": State.COMPLETED, "attempt": 1, "max_attempts": 3, "fence": fence}
        self.history.tasks.append(
            Task(
                id=task_id,
                type="capped",
                payload=payload,
                **fields,
                **moments,
                **counts,
            )
        )
        self.history.attempts.setdefault(task_id, [])
        about = {"task_id": task_id, "fence": fence, "worker": worker}
        self._notes.append(Started(attempt=1, at=start * MS, **about))
        if end is not None:
            self._notes.append(Ended(at=end * MS, how="returned", **about))

    def kill(self, worker: str, at: int) -> None:
        self.history.faults.append(Fault(kind="kill", worker=worker, began=at * MS, ended=at * MS))

    def rescued(self, task_id: str, at: int) -> None:
        finished = BEGAN + timedelta(milliseconds=at)
        lost = Error(type="WorkerLost", message="fell silent")
        about = {"number": 1, "fence": 2, "worker": "w1", "duration": 0.0, "outcome": "crashed"}
        line = Attempt(task_id=task_id, claimed_at=BEGAN, finished_at=finished, error=lost, **about)
        self.history.attempts[task_id] = [line]

    def most(self) -> int:
        self.history.hear(self._notes)
        return most_at_once(self.history)[KEY]


@pytest.fixture
def told() -> Told:
    return Told()


def test_one_after_another_is_one_at_once(told: Told) -> None:
    told.run("first", 0, 10)
    told.run("second", 10, 20)

    assert told.most() == 1


def test_a_start_before_the_end_of_another_is_two_at_once(told: Told) -> None:
    told.run("first", 0, 10)
    told.run("second", 9, 20)

    assert told.most() == 2


def test_a_killed_run_counts_until_it_was_rescued(told: Told) -> None:
    told.run("killed", 0, None)
    told.kill("w1", 5)
    told.rescued("killed", 2_000)
    told.run("too soon", 1_000, 1_010, worker="w2")

    assert told.most() == 2


def test_what_starts_behind_the_rescue_is_alone(told: Told) -> None:
    told.run("killed", 0, None)
    told.kill("w1", 5)
    told.rescued("killed", 2_000)
    told.run("next", 2_001, 2_010, worker="w2")

    assert told.most() == 1


def test_a_killed_run_that_nobody_rescued_is_over_with_the_kill(told: Told) -> None:
    told.run("killed", 0, None)
    told.kill("w1", 5)
    told.run("next", 6, 10, worker="w2")

    assert told.most() == 1


def test_a_burst_and_then_the_rate_is_what_may_be() -> None:
    found = pace([0.0] * 20 + [number / 50 for number in range(1, 501)])

    assert found.excess <= ROUNDING
    assert found.share == pytest.approx(1.0)


def test_one_more_than_the_burst_is_too_many() -> None:
    assert pace([0.0] * 21).excess == pytest.approx(1.0)


def test_a_window_in_the_middle_is_found() -> None:
    quiet = [float(number) for number in range(10)]
    burst = [5.001 + number / 1000 for number in range(25)]

    assert pace(quiet).excess < 0
    assert pace(quiet + burst).excess == pytest.approx(1 + 25 - 20 - 0.025 * 50)


def test_what_is_not_used_is_not_saved_up() -> None:
    assert pace([0.0] + [100.0] * 21).excess == pytest.approx(1.0)


def test_every_window_is_looked_at() -> None:
    """As the promise says it, window by window: the one pass finds the same."""
    instants = sorted((number * 7919 % 1000) / 200 for number in range(300))
    rate, burst = 40.0, 10

    worst = max(
        last - first + 1 - burst - rate * (instants[last] - instants[first])
        for first in range(len(instants))
        for last in range(first, len(instants))
    )
    assert pace(instants, rate, burst).excess == pytest.approx(worst)
