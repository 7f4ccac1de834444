"""How much to measure: sizes and rounds, for a full run or a quick look."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    """What every part is given. `rounds` is how often each variant of a part is run, in turn."""

    folder: Path
    rounds: int = 5
    drained: int = 20_000  # tasks of one drain; the same for both sides
    slots: int = 500
    enqueued: int = 500  # calls timed one by one
    bulk: int = 20_000
    picked_up: int = 300
    gap: float = 0.015  # seconds between two tasks whose pickup is timed
    looped: int = 50_000
    threaded: int = 10_000
    in_processes: int = 2_000
    aged: int = 100_000  # tasks after which the worker's memory is looked at again

    def path(self, name: str) -> Path:
        """A store of one's own for one run."""
        folder = self.folder / name
        folder.mkdir()
        return folder / "tasks.db"


def quick(folder: Path) -> Plan:
    """Seconds, not minutes: proves that everything runs; its figures prove nothing."""
    return Plan(
        folder=folder,
        rounds=1,
        drained=200,
        slots=50,
        enqueued=20,
        bulk=500,
        picked_up=10,
        gap=0.002,
        looped=2_000,
        threaded=200,
        in_processes=20,
        aged=1_000,
    )


def url(path: Path) -> str:
    """The store there, as windlass is told of it."""
    return f"sqlite:///{path}"
