"""How much to measure: sizes and rounds, for a full or a quick run."""

from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from windlass import WorkerSettings

DEFAULT_SLOTS = WorkerSettings().slots
LEAST = 20  # minimum number of tasks of a plan that is scaled down


@dataclass(frozen=True)
class Sizes:
    """The numbers of tasks on Postgres."""

    enqueued: int = 1_000  # one by one
    bulk: int = 50_000
    drained: int = 30_000
    picked_up: int = 300
    beside: int = 1_000_000  # growth: scheduled, finished, and another queue's ready tasks, each
    churned: int = 2_000_000
    window: int = 100_000  # churned tasks per measured rate
    pinned: int = 200_000  # churned while an open transaction holds back vacuum
    aged: int = 1_000_000  # run by one worker, whose memory is sampled

    def scaled(self, by: float) -> "Sizes":
        """Return the numbers multiplied by a factor."""
        numbers = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(self, **{name: max(LEAST, round(number * by)) for name, number in numbers.items()})


@dataclass(frozen=True)
class CrowdSizes:
    """How many workers at once, and how long to look at them."""

    workers: tuple[int, ...] = (100, 1_000, 3_000, 10_000)
    heartbeat: float = 20.0  # seconds between two heartbeats of a worker
    servers: int = 2  # processes of `windlass serve`
    idle: float = 15.0  # seconds to look at an idle crowd
    woken: int = 100  # tasks enqueued one by one
    gap: float = 0.1  # seconds between two of them
    flooded: int = 5_000  # tasks enqueued at once
    beats: int = 5_000  # heartbeats sent as fast as they are answered
    beats_at_once: int = 100
    store: str | None = None  # the URL of a store to use in place of a new Postgres


@dataclass(frozen=True)
class QueueSizes:
    """How many queues, and what is in them."""

    stores: tuple[str, ...] = ("sqlite", "postgres", "redis", "nats")
    number: int = 5_000
    tasks: int = 1  # in each queue
    woken: int = 20  # tasks enqueued one by one
    gap: float = 0.1  # seconds between two of them
    limit: float = 60.0  # seconds after which a drain is stopped


@dataclass(frozen=True)
class WaitSizes:
    """How many calls wait for results, and for how long to look at them."""

    stores: tuple[str, ...] = ("memory", "sqlite", "postgres", "redis", "nats", "HTTP", "GET ?wait")
    numbers: tuple[int, ...] = (1, 100, 1_000)
    idle: float = 5.0  # seconds during which no task ends
    over: float = 4.0  # seconds in which all tasks end, one after another


@dataclass(frozen=True)
class Plan:
    """The parameters of every part. `rounds` is how often each variant of a part is run, in turn."""

    folder: Path
    rounds: int = 5
    drained: int = 20_000  # tasks of one drain; the same for both sides
    slots: int = 500
    enqueued: int = 500  # calls timed one by one
    bulk: int = 20_000
    picked_up: int = 300
    gap: float = 0.015  # seconds between two tasks whose pickup is timed
    looped: int = 50_000
    delivered: int = 3_000  # webhooks, and e-mails
    threaded: int = 10_000
    in_processes: int = 2_000
    aged: int = 100_000  # tasks between two samples of the worker's memory
    on_postgres: Sizes = field(default_factory=Sizes)
    crowd: CrowdSizes = field(default_factory=CrowdSizes)
    queues: QueueSizes = field(default_factory=QueueSizes)
    waits: WaitSizes = field(default_factory=WaitSizes)
    version: int | None = None  # major version of Postgres; None: the newest available
    without: tuple[str, ...] = ()  # peers on Postgres to leave out

    def path(self, name: str) -> Path:
        """Return a new store for one run."""
        folder = self.folder / name
        folder.mkdir()
        return folder / "tasks.db"


def quick(folder: Path) -> Plan:
    """Return a plan of a few seconds, to check that everything works; its figures are meaningless."""
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
        delivered=60,
        threaded=200,
        in_processes=20,
        aged=1_000,
        on_postgres=Sizes().scaled(0.004),
        crowd=CrowdSizes(
            workers=(20,),
            heartbeat=1.0,
            servers=1,
            idle=2.0,
            woken=5,
            flooded=50,
            beats=100,
            beats_at_once=10,
        ),
        queues=QueueSizes(number=100, woken=3, gap=0.05, limit=10.0),
        waits=WaitSizes(numbers=(20,), idle=0.5, over=0.5),
    )


def url(path: Path) -> str:
    """Return the store's URL."""
    return f"sqlite:///{path}"
