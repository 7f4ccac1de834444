"""Tell which tasks a worker that has drained leaves, and why."""

from collections import Counter
from collections.abc import Iterable

from ..._model.filter import Filter, Page
from ..._model.limit import Limit
from ..._model.record import Worker
from ..._model.state import State
from ..._observe.overview import Depth, Overview, read_overview
from ..._policy.input.quote import counted
from ..._store.protocol import Store, all_records

_MAX_REASONS = 5
_MAX_READ = 1_000  # tasks that may have been handed back


async def left_ready(store: Store, drained: Worker) -> str:
    """Return, in one line, how many tasks it leaves ready or has handed back, and why; "" if there are none.

    Tasks that another live worker runs are left out. Numbers are estimates where those of the store are.
    """
    await store.open()
    seen = await read_overview(store)
    limits = await all_records(store, Limit)
    left: Counter[str] = Counter()
    for depth in seen.depths:
        if seen.live.handles(depth.queue, depth.type):
            continue
        if depth.state is State.READY:
            left[_reason(depth, drained, seen, limits)] += depth.number
        elif depth.state is State.SCHEDULED and not drained.handles(depth.type):
            left[_reason(depth, drained, seen, limits)] += await _handed_back(store, depth)
    reasons = [f"{number:,} {reason}" for reason, number in left.most_common() if number]
    if not reasons:
        return ""
    more = len(reasons) - _MAX_REASONS
    shown = reasons[:_MAX_REASONS] + ([f"and for {counted(more, 'other reason')}"] if more > 0 else [])
    return f"{counted(left.total(), 'task')} left: {'; '.join(shown)}"


async def _handed_back(store: Store, depth: Depth) -> int:
    """Return how many of these tasks workers without their handler have handed back, and will see again."""
    where = Filter(queues=(depth.queue,), types=(depth.type,), states=(depth.state,))
    found = await store.find(where, Page(limit=_MAX_READ))
    return sum(task.unhandled_since is not None for task in found.items)


def _reason(depth: Depth, drained: Worker, seen: Overview, limits: Iterable[Limit]) -> str:
    queue = f"in queue {depth.queue}"
    if not drained.serves(depth.queue):
        return f"{queue}, which it does not serve"
    if not drained.handles(depth.type):
        return f"of type {depth.type} {queue}, for which it has no handler"
    if depth.queue in seen.paused:
        return f"{queue}, which is paused"
    if depth.queue in seen.closed:
        return f"{queue}, which is closed by its windows"
    holding = sorted(one.name for one in limits if _applies(one, depth))
    if holding:
        return f"{queue}, held back by limit {', '.join(holding)}"
    return f"{queue}, which became ready meanwhile"


def _applies(limit: Limit, depth: Depth) -> bool:
    return limit.queue in (None, depth.queue) and limit.type in (None, depth.type)
