"""Overviews of stores with thousands of queues: what is computed from one takes linear time."""

from datetime import UTC, datetime, timedelta
from typing import ClassVar

from windlass._documents.queues import QueueSearch, QueueTypeView
from windlass._model.queue import QueueSettings
from windlass._model.record import Session, Worker
from windlass._model.state import State
from windlass._observe.gauges import Gauges
from windlass._observe.overview import Depth, Overview

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WORKERS, QUEUES = 8, 400


class CountedName(str):
    """A name that counts how often such names are compared."""

    __slots__ = ()
    comparisons: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        CountedName.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def names() -> tuple[CountedName, ...]:
    return tuple(CountedName(f"customer-{number}") for number in range(QUEUES))


def session(name: str, types: tuple[str, ...]) -> Session:
    worker = Worker(name=name, queues=names(), types=types)
    return Session(id=name, worker=worker, started_at=NOW, beat_at=NOW, expires_at=NOW + timedelta(minutes=1))


def crowded() -> Overview:
    depths = [Depth(queue=name, type="gone", state=State.READY, number=1, oldest_at=NOW) for name in names()]
    return Overview(
        at=NOW,
        depths=tuple(depths),
        queues=names(),
        settings=tuple(QueueSettings(name=name, paused=True) for name in names()),
        workers=tuple(session(f"w{number}", (f"type-{number}",)) for number in range(WORKERS)),
    )


def test_unhandled_types_are_found_without_comparing_each_queue_with_each_of_every_worker() -> None:
    seen, before = crowded(), CountedName.comparisons

    unhandled = seen.unhandled()
    views = (QueueTypeView(overview=seen, queue=name) for name in seen.queues)
    types = [view.search(QueueSearch()).items[0].handled for view in views]

    assert len(unhandled) == QUEUES
    assert types == [False] * QUEUES
    assert CountedName.comparisons - before < 10 * WORKERS * QUEUES


def test_gauges_are_made_without_comparing_each_queue_with_each() -> None:
    seen, before = crowded(), CountedName.comparisons

    assert list(Gauges(seen).collect())
    assert CountedName.comparisons - before < 20 * WORKERS * QUEUES
