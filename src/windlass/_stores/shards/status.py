"""The state of each shard: what is on it, and whether it takes new tasks."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from ..._model.filter import Count, Dimension, Filter
from ..._model.record import ShardMap, ShardStatus
from ..._model.state import ENDED
from ..._store.protocol import Finding
from ..findings import error, fine, warning
from .connection.handle import ShardHandles
from .connection.shard import Shard
from .routes import is_draining, places

MAX_CLOCK_DIFFERENCE = 5.0
"""Seconds between the clocks of two shards that are not worth a warning."""

_BY = (Dimension.QUEUE, Dimension.STATE)


async def read_status(shards: ShardHandles) -> Sequence[ShardStatus]:
    """Return the state of every shard, the home shard first."""

    async def count(shard: Shard) -> Sequence[Count]:
        return await shard.call_unless_silent(shard.store.count, Filter(), _BY)

    answers, errors = await shards.each(shards.names, count)
    return [
        _status(shards.map, name, answers[name])
        if name in answers
        else ShardStatus(
            name=name,
            state="unavailable",
            home=name == shards.map.home,
            error=str(errors[name]).removeprefix(f"shard {name}: "),
        )
        for name in shards.names
    ]


def _status(shard_map: ShardMap, name: str, counts: Sequence[Count]) -> ShardStatus:
    ended = {state.value for state in ENDED}
    unfinished = [count for count in counts if count.values[1] not in ended]
    return ShardStatus(
        name=name,
        state="draining" if is_draining(shard_map, name) else "open",
        home=name == shard_map.home,
        tasks=sum(count.number for count in counts),
        unfinished=sum(count.number for count in unfinished),
        stray=sum(count.number for count in unfinished if name not in places(shard_map, count.values[0])),
    )


def clock_findings(shard: str, clocks: Mapping[str, datetime], home: str) -> Sequence[Finding]:
    """Warn of a shard whose clock differs from that of the home shard, given the time on each at a moment."""
    if shard not in clocks or home not in clocks:
        return ()
    ahead = (clocks[shard] - clocks[home]).total_seconds()
    if abs(ahead) <= MAX_CLOCK_DIFFERENCE:
        return ()
    return [
        warning(
            f"clock of {shard}",
            f"it is {abs(ahead):,.0f} s {'ahead of' if ahead > 0 else 'behind'} that of the home shard "
            f"{home}, so tasks expire and workers seem alive at the wrong time; set all clocks by NTP",
        )
    ]


def finding_of(status: ShardStatus) -> Finding:
    """Report the state of a shard."""
    subject = f"shard {status.name}"
    if status.state == "unavailable":
        return error(subject, status.error)
    if status.stray:
        return warning(
            subject,
            f"tasks that no worker claims here: {status.stray:,}, of queues that are on other shards; they "
            f"were enqueued on this shard's own URL. Route their queues here: windlass shards route QUEUE "
            f"{status.name}",
        )
    return fine(subject, f"{status.state}; tasks: {status.tasks:,}, not ended: {status.unfinished:,}")
