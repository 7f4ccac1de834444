"""How much to measure: sizes and rounds, for a full or a quick run."""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path

LEAST = 20  # tasks, however far a plan is scaled down


@dataclass(frozen=True)
class Sizes:
    """How many tasks, on Postgres."""

    enqueued: int = 1_000  # one by one
    bulk: int = 50_000
    drained: int = 30_000
    picked_up: int = 300
    beside: int = 1_000_000  # growth: of the scheduled, of the ready in another queue, of the finished
    churned: int = 2_000_000
    window: int = 100_000  # of the churned, that a rate is taken over
    pinned: int = 200_000  # churned while one transaction keeps vacuum from its work
    aged: int = 1_000_000  # by one worker, whose memory is watched

    def scaled(self, by: float) -> "Sizes":
        """All of them smaller, or larger."""
        numbers = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(self, **{name: max(LEAST, round(number * by)) for name, number in numbers.items()})


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
    on_postgres: Sizes = field(default_factory=Sizes)
    version: int | None = None  # Postgres's major; None: the newest there is
    without: tuple[str, ...] = ()  # peers on Postgres to leave out

    def path(self, name: str) -> Path:
        """Return a new store for one run."""
        folder = self.folder / name
        folder.mkdir()
        return folder / "tasks.db"


def quick(folder: Path) -> Plan:
    """A run of seconds, which shows that everything works; its figures mean nothing."""
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
        on_postgres=Sizes().scaled(0.004),
    )


def url(path: Path) -> str:
    """Return the store's URL."""
    return f"sqlite:///{path}"
