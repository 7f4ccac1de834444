"""Workers are killed, frozen and restarted while tasks come in: every task ends, and exactly once. (D1, D5, D12)"""

import os
import secrets
from random import Random

import pytest

from tests.system.fleet import Fleet, Member, Schedule

SECONDS = 20
WISHES = 2000  # about 5,000 tasks
pytestmark = pytest.mark.system


class Storm:
    """What is done to a fleet, by lot."""

    def __init__(self, fleet: Fleet, random: Random) -> None:
        self.fleet = fleet
        self.random = random
        self.frozen: set[str] = set()
        self.kills = 0

    def kill_one(self) -> None:
        """Kill a worker that is not frozen, and start another in its place."""
        candidates = [worker for worker in self.fleet.workers if worker.name not in self.frozen]
        self.fleet.kill(self.random.choice(candidates))
        self.kills += 1
        self.fleet.start()

    def freeze_one(self) -> Member:
        worker = self.random.choice([one for one in self.fleet.workers if one.name not in self.frozen])
        self.frozen.add(worker.name)
        self.fleet.freeze(worker)
        return worker

    def thaw(self, worker: Member) -> None:
        self.fleet.thaw(worker)
        self.frozen.discard(worker.name)


@pytest.mark.timeout(120)
def test_every_task_ends_once_whoever_is_killed(fleet: Fleet) -> None:
    seed = int(os.environ.get("WINDLASS_SEED") or secrets.randbelow(10**9))
    print(f"WINDLASS_SEED={seed}")  # noqa: T201 - to run the same storm again
    storm = Storm(fleet, Random(seed))
    fleet.start_ready(4)
    producers = [fleet.produce("p", seed=seed, wishes=WISHES, per_second=WISHES / SECONDS)]
    schedule = Schedule()
    for second in range(1, SECONDS + 1):
        schedule.at(second, storm.kill_one)
    for begin in (3.5, 11.5):
        frozen: list[Member] = []
        schedule.at(begin, lambda frozen=frozen: frozen.append(storm.freeze_one()))
        schedule.at(begin + 5, lambda frozen=frozen: storm.thaw(frozen[0]))
    schedule.at(9.3, lambda: _restart(fleet, producers, seed))

    schedule.run()
    assert producers[-1].process.wait(30) == 0, producers[-1].errors.read_text()[-2000:]
    fleet.drain(40)
    report = fleet.checked()

    assert report.numbers["tasks"] > 4_000
    assert report.numbers["fault kill"] == SECONDS
    assert report.numbers["attempts lost with a worker"] > 0


def _restart(fleet: Fleet, producers: list[Member], seed: int) -> None:
    """Kill the producer in the middle of its stream, and start it again."""
    producers[-1].process.kill()
    producers[-1].process.wait()
    producers.append(fleet.produce("p", seed=seed, wishes=WISHES, per_second=WISHES / SECONDS))
