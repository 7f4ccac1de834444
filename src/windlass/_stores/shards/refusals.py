"""What spans shards is refused, with the remedy."""

from collections.abc import Iterable

from ..._model.limit import Limit
from ...errors import InvalidOption, NotSupported, StoreUnavailable

_TOGETHER = "route their queues to one shard: windlass shards route QUEUE SHARD (docs/shards.md)"


def batch_spans(shards: Iterable[str]) -> NotSupported:
    return NotSupported(
        f"a batch is stored as a whole or not at all, so its tasks must go to one shard, not to "
        f"{', '.join(sorted(shards))}; enqueue them in separate calls, or {_TOGETHER}"
    )


def chain_spans(queue: str, shard: str, first_queue: str, first: str) -> NotSupported:
    return NotSupported(
        f"the steps of a chain must be on one shard, but queue {queue!r} is on {shard} and the first task's "
        f"queue {first_queue!r} on {first}; {_TOGETHER}"
    )


def predecessor_elsewhere(predecessor: str, shard: str, here: str) -> NotSupported:
    return NotSupported(
        f"a task on shard {here} cannot wait for task {predecessor}, which is on shard {shard}; {_TOGETHER}"
    )


def limit_spans(limit: Limit, shards: Iterable[str]) -> NotSupported:
    where = f"queue {limit.queue!r}" if limit.queue else "its tasks"
    remedy = (
        "count by tenant, or route the queue to one shard"
        if limit.queue
        else "set it for one queue (queue=…), a limit for each"
    )
    return NotSupported(
        f"limit {limit.name!r} cannot be counted across shards, and {where} may be on "
        f"{', '.join(sorted(shards))}; {remedy}"
    )


def no_transactions(what: str) -> NotSupported:
    return NotSupported(
        f"a store of several shards cannot {what}: each shard has transactions of its own; use an outbox, or "
        f"a store on one database"
    )


def unique_in_move(queue: str, shard: str, number: int) -> StoreUnavailable:
    return StoreUnavailable(
        f"cannot tell whether a unique task of queue {queue!r} has an equal one: the queue has moved from "
        f"shard {shard}, where more than {number:,} of its type are left; retry when they have ended"
    )


def unplaced(shard: str, path: str) -> StoreUnavailable:
    return StoreUnavailable(f"the map of shards names {shard}, which {path} does not; add its URL there")


def unreadable(shard: str, error: InvalidOption) -> StoreUnavailable:
    return StoreUnavailable(f"the map of shards names {shard}, whose URL is not known yet: {error}")


def stale_map(shard: str) -> StoreUnavailable:
    return StoreUnavailable(f"shard {shard} did not say whether its map has changed; nothing was enqueued")
