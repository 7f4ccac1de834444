"""What happened: wishes, runs and faults as they were written down, and the store's account at the end."""

import asyncio
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from time import monotonic_ns, time_ns

import msgspec
from msgspec import Struct, field

from windlass import App, Task
from windlass._model.attempt import Attempt
from windlass._model.record import Session


class Wanted(Struct, frozen=True, kw_only=True):
    """One task of a wish: which kind, what it follows, how long it is to wait."""

    kind: str
    follows: str | None = None
    after: tuple[str, ...] = ()
    delay: float = 0.0


class Tried(Struct, frozen=True, kw_only=True, tag="tried"):
    """A producer is about to enqueue these, by key; all or none."""

    wish: str
    tasks: dict[str, Wanted]
    repeats: bool = False  # has an idempotency key, and may be tried again


class Acknowledged(Struct, frozen=True, kw_only=True, tag="acknowledged"):
    """The store has said yes; the ids are by key."""

    wish: str
    ids: dict[str, str]


class Refused(Struct, frozen=True, kw_only=True, tag="refused"):
    """The store has said no, for certain."""

    wish: str


class Started(Struct, frozen=True, kw_only=True, tag="start"):
    """A handler began."""

    task_id: str
    fence: int
    attempt: int
    worker: str
    at: int


class Ended(Struct, frozen=True, kw_only=True, tag="end"):
    """A handler returned or raised."""

    task_id: str
    fence: int
    worker: str
    at: int
    how: str


class Fault(Struct, frozen=True, kw_only=True, tag="fault"):
    """Something done to a worker, or to all of them (an empty name), from one moment to another."""

    kind: str  # kill, freeze, halt, terminate, full, child; outages.py has more
    worker: str
    began: int
    ended: int


Note = Tried | Acknowledged | Refused | Started | Ended | Fault

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Note] = msgspec.json.Decoder(Note)


class Diary:
    """A file that notes are appended to, a line at a time: whole ones only, whoever is killed meanwhile."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, note: Note, *, sync: bool = False) -> None:
        os.write(self._file, _encoder.encode(note) + b"\n")
        if sync:
            os.fsync(self._file)


def read(paths: Iterable[Path]) -> Iterator[Note]:
    """All notes of these diaries."""
    for path in paths:
        for line in path.read_bytes().splitlines():
            yield _decoder.decode(line)


class Run(Struct, kw_only=True):
    """One execution of a handler; `ended` is None if its process died under it."""

    started: Started
    ended: Ended | None = None


class History(Struct, kw_only=True):
    """Everything the checker goes by. Moments are in nanoseconds of the machine's monotonic clock."""

    tried: list[Tried] = field(default_factory=list)
    acknowledged: list[Acknowledged] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    ends_without_start: list[Ended] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    attempts: dict[str, Sequence[Attempt]] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)
    wall: int = 0  # what to add to a moment to get nanoseconds since 1970

    def hear(self, notes: Iterable[Note]) -> None:
        """Take in what was written down."""
        under_way: dict[tuple[str, int, str], list[Run]] = {}
        for note in sorted(notes, key=_moment):
            match note:
                case Tried():
                    self.tried.append(note)
                case Acknowledged():
                    self.acknowledged.append(note)
                case Refused():
                    self.refused.append(note)
                case Fault():
                    self.faults.append(note)
                case Started():
                    run = Run(started=note)
                    self.runs.append(run)
                    under_way.setdefault((note.task_id, note.fence, note.worker), []).append(run)
                case Ended():
                    found = under_way.get((note.task_id, note.fence, note.worker))
                    if found:
                        found.pop(0).ended = note
                    else:
                        self.ends_without_start.append(note)

    async def ask(self, app: App) -> None:
        """Take in the store's account."""
        self.tasks = [task async for task in app.operator.every()]
        for some in batched(self.tasks, 20):
            lines = await asyncio.gather(*(app.operator.attempts(task.id) for task in some))
            self.attempts.update(zip([task.id for task in some], lines, strict=True))
        self.sessions = list(await app.operator.workers())
        self.wall = time_ns() - monotonic_ns()


def batched(tasks: Sequence[Task], size: int) -> Iterator[Sequence[Task]]:
    """The tasks, so many at a time."""
    for first in range(0, len(tasks), size):
        yield tasks[first : first + size]


def _moment(note: Note) -> int:
    match note:
        case Started(at=at) | Ended(at=at) | Fault(began=at):
            return at
    return 0


def now() -> int:
    """The machine's monotonic clock: the same for all its processes."""
    return monotonic_ns()
