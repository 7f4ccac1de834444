"""What is done to a fleet, by lot: each fault, and the healing of it."""

from collections.abc import Callable
from random import Random
from typing import Any

from tests.system.fleet import Fleet, Member, Schedule


class Storm:
    """Faults for one fleet. What a fault takes away is put back at once, or by the schedule."""

    def __init__(self, fleet: Fleet, random: Random, schedule: Schedule, **settings: Any) -> None:
        self.fleet = fleet
        self.random = random
        self.schedule = schedule
        self.settings = settings
        self.frozen: set[str] = set()
        self.producers: dict[str, tuple[Member, dict[str, Any]]] = {}
        self.is_full = False

    # -- producers -----------------------------------------------------------------------------------

    def produce(self, name: str, **options: Any) -> None:
        """Start a producer, or the next life of one."""
        self.producers[name] = self.fleet.produce(name, **options), options

    def wait_for_producers(self, seconds: float) -> None:
        """Until all have handed in what they had."""
        for producer, _ in self.producers.values():
            assert producer.process.wait(seconds) == 0, producer.errors.read_text()[-2000:]

    # -- faults --------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Kill a worker that is not frozen, and start another in its place."""
        self.fleet.kill(self._any_worker())
        self.fleet.start(**self.settings)

    def kill_leader(self) -> None:
        """Kill the worker that keeps house."""
        leader = self.fleet.leader()
        if leader is None or leader.name in self.frozen:
            leader = self._any_worker()
        self.fleet.kill(leader)
        self.fleet.start(**self.settings)

    def kill_child(self) -> None:
        """Kill a child process of some worker."""
        workers = [worker for worker in self.fleet.workers if worker.name not in self.frozen]
        self.random.shuffle(workers)
        if not any(self.fleet.kill_child(worker) for worker in workers):
            self.kill()

    def kill_producer(self) -> None:
        """Kill a producer in the middle of its stream, and start it again."""
        name = self.random.choice(sorted(self.producers))
        producer, options = self.producers[name]
        if not producer.alive:
            self.kill()
            return
        self.fleet.kill(producer)
        self.produce(name, **options)

    def terminate(self) -> None:
        """Ask a worker to stop, and start another; drain() sees to it that it goes in peace."""
        self.fleet.ask_to_stop(self._any_worker())
        self.fleet.start(**self.settings)

    def freeze(self, seconds: float = 5.0) -> None:
        """Freeze a worker for that long."""
        workers = [worker for worker in self.fleet.workers if worker.name not in self.frozen]
        if len(workers) < 3:
            self.kill()
            return
        worker = self.random.choice(workers)
        self.frozen.add(worker.name)
        self.fleet.freeze(worker)
        self.schedule.after(seconds, lambda: self._thaw(worker))

    def _thaw(self, worker: Member) -> None:
        self.fleet.thaw(worker)
        self.frozen.discard(worker.name)

    def fill_disk(self, seconds: float | None = None) -> None:
        """No space for that long."""
        if self.is_full:
            return
        self.is_full = True
        self.fleet.fill_disk()
        self.schedule.after(seconds or self.random.uniform(0.3, 4.0), self._free)

    def _free(self) -> None:
        self.fleet.free_disk()
        self.is_full = False

    def _any_worker(self) -> Member:
        """One that is not frozen; it may have only just been started."""
        return self.random.choice([one for one in self.fleet.workers if one.name not in self.frozen])

    def faults(self) -> dict[Callable[[], None], int]:
        """Every fault there is, and how often it comes among a hundred."""
        return {
            self.kill: 45,
            self.terminate: 15,
            self.freeze: 10,
            self.kill_producer: 10,
            self.kill_leader: 8,
            self.kill_child: 7,
            self.fill_disk: 5,
        }
