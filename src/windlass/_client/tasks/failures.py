"""The failures of dead tasks: which they are, how often each occurred, and an example of each."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from ..._model.filter import Count, Dimension, Failure, Filter, Page, Slice
from ..._model.state import State
from ..._model.task import Task
from ..._policy.secrets.shown import masked_task

MAX_FAILURES = 50
_AT_ONCE = 4  # failures whose tasks are read at a time, so that others get connections too
_BY = (Dimension.FAILURE, Dimension.TYPE, Dimension.QUEUE)
_NEWEST = Page(limit=1, newest_first=True)


class _Total(Struct):
    """The tasks of one failure, over all queues."""

    number: int = 0
    exact: bool = True
    queues: list[str] = field(default_factory=list)

    def add(self, count: Count, queue: str) -> None:
        self.number += count.number
        self.exact &= count.exact
        self.queues.append(queue)


async def find_failures(
    count: Callable[[Filter, Sequence[Dimension]], Awaitable[Sequence[Count]]],
    find: Callable[[Filter, Page], Awaitable[Slice[Task]]],
    where: Filter,
    limit: int,
) -> list[Failure]:
    """Return the failures of the dead tasks that match, the most frequent first; at most `limit`."""
    is_dead = where.states is None or State.DEAD in where.states
    where = replace(where, states=(State.DEAD,) if is_dead else ())
    totals = _totals(await count(where, _BY))
    largest = sorted(totals.items(), key=lambda item: (-item[1].number, item[0]))[:limit]

    room = asyncio.Semaphore(_AT_ONCE)

    async def described(failure: str, type_: str, total: _Total) -> Failure | None:
        alike = replace(where, failures=(failure,), types=(type_,))
        async with room:
            first, last = await find(alike, Page(limit=1)), await find(alike, _NEWEST)
        if not first.items or not last.items:  # replayed or discarded meanwhile
            return None
        return _failure(failure, total, first.items[0], last.items[0])

    made = await asyncio.gather(*(described(*names, total) for names, total in largest))
    return [one for one in made if one is not None]


def _totals(counts: Iterable[Count]) -> dict[tuple[str, str], _Total]:
    totals: dict[tuple[str, str], _Total] = {}
    for count in counts:
        failure, type_, queue = count.values
        totals.setdefault((failure, type_), _Total()).add(count, queue)
    return totals


def _failure(failure: str, total: _Total, first: Task, last: Task) -> Failure:
    example = masked_task(last)
    return Failure(
        id=failure,
        type=last.type,
        error=example.error,
        task_id=last.id,
        number=total.number,
        exact=total.exact,
        first_at=first.finished_at or first.created_at,
        last_at=last.finished_at or last.created_at,
        queues=tuple(total.queues),
    )
