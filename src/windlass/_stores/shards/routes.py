"""Which shard a task goes to, and where tasks of a queue may be: pure functions of the map.

A queue without a route of its own is placed by rendezvous hashing: each open shard has a score for the name
of the queue, and the highest wins. So a shard that is added takes its share of the queues, and the others
stay where they are.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from msgspec.structs import replace

from ..._model.record import QueueRoute, Routes, ShardMap
from ...errors import InvalidOption, Refused

MAX_FORMER = 16
"""Earlier routes that a map keeps."""


def rendezvous(key: str, shards: Iterable[str]) -> str:
    """Return the shard with the highest score for the key."""
    return max(shards, key=lambda shard: blake2b(f"{shard}\0{key}".encode(), digest_size=8).digest())


def place(routes: Routes, queue: str, tenant: str) -> str:
    """Return the shard that a new task goes to."""
    route = routes.queues.get(queue)
    if route is None:
        return rendezvous(queue, routes.open)
    return rendezvous(f"{queue}\0{tenant}" if route.by_tenant else queue, route.over)


def all_places(routes: Routes, queue: str) -> tuple[str, ...]:
    """Return the shards that new tasks of a queue go to, whatever their tenant."""
    route = routes.queues.get(queue)
    if route is not None and route.by_tenant:
        return route.over
    return (place(routes, queue, ""),)


def places(shard_map: ShardMap, queue: str) -> tuple[str, ...]:
    """Return every shard that may have tasks of a queue, those of the present routes first."""
    found = (name for routes in (shard_map.routes, *shard_map.former) for name in all_places(routes, queue))
    return tuple(dict.fromkeys(name for name in found if name in shard_map.shards))


def former_places(shard_map: ShardMap, queue: str, tenant: str, present: str) -> tuple[str, ...]:
    """Return the other shards that may have such a task, enqueued by other routes than the present ones."""
    found = (place(routes, queue, tenant) for routes in (shard_map.routes, *shard_map.former))
    return tuple(dict.fromkeys(name for name in found if name != present and name in shard_map.shards))


def accepting(routes: Routes) -> frozenset[str]:
    """Return the shards that new tasks may go to."""
    return frozenset((*routes.open, *(name for route in routes.queues.values() for name in route.over)))


def is_draining(shard_map: ShardMap, shard: str) -> bool:
    """Whether no new task goes to a shard."""
    return shard not in accepting(shard_map.routes)


# -- changes -------------------------------------------------------------------------------------------------


def first_map(map_id: str, shards: tuple[str, ...], used: Iterable[str]) -> ShardMap:
    """Return the map of shards that have none yet: all are open, the first is home.

    `used` are those that have tasks already, of any queue.
    """
    former = tuple(Routes(open=(name,)) for name in used) if len(shards) > 1 else ()
    return ShardMap(
        id=map_id, version=1, home=shards[0], shards=shards, routes=Routes(open=shards), former=former
    )


def added(shard_map: ShardMap, shard: str) -> ShardMap:
    """Return the map with a shard that takes its share of the queues, new or drained before."""
    routes = shard_map.routes
    if shard in routes.open:
        raise Refused(f"shard {shard} is already open")
    shards = (*shard_map.shards, *([] if shard in shard_map.shards else [shard]))
    return _changed(replace(shard_map, shards=shards), replace(routes, open=(*routes.open, shard)))


def drained(shard_map: ShardMap, shard: str) -> ShardMap:
    """Return the map with a shard that takes no new tasks. Raises Refused if something must stay on it."""
    routes = shard_map.routes
    _check_known(shard_map, shard)
    if shard == shard_map.home:
        raise Refused(f"shard {shard} is the home shard, which has the keys and schedules; it must stay")
    bound = [queue for queue, route in routes.queues.items() if shard in route.over]
    if bound:
        raise Refused(
            f"routes lead to shard {shard} (queue {', '.join(sorted(bound)[:5])}); route them elsewhere "
            f"first: windlass shards route QUEUE SHARD"
        )
    if shard not in routes.open:
        raise Refused(f"shard {shard} is already draining")
    return _changed(shard_map, replace(routes, open=tuple(one for one in routes.open if one != shard)))


def routed(shard_map: ShardMap, queue: str, route: QueueRoute | None) -> ShardMap:
    """Return the map with another route of a queue; None: as queues without a route."""
    for shard in () if route is None else route.over:
        _check_known(shard_map, shard)
    queues = {name: one for name, one in shard_map.routes.queues.items() if name != queue}
    if route is not None:
        queues[queue] = route
    return _changed(shard_map, replace(shard_map.routes, queues=queues))


def removed(shard_map: ShardMap, shard: str) -> ShardMap:
    """Return the map without a shard that drained and is empty."""
    _check_known(shard_map, shard)
    if not is_draining(shard_map, shard):
        raise Refused(f"shard {shard} still takes new tasks; drain it first: windlass shards drain {shard}")
    left = tuple(one for one in shard_map.shards if one != shard)
    return replace(shard_map, version=shard_map.version + 1, shards=left)


def _changed(shard_map: ShardMap, routes: Routes) -> ShardMap:
    if routes == shard_map.routes:
        raise Refused("that is how it is routed already")
    former = (shard_map.routes, *(one for one in shard_map.former if one != shard_map.routes))
    if len(former) > MAX_FORMER:
        raise Refused(
            f"tasks are still where {MAX_FORMER} earlier changes left them; try again when they have ended"
        )
    return replace(shard_map, version=shard_map.version + 1, routes=routes, former=former)


def _check_known(shard_map: ShardMap, shard: str) -> None:
    if shard not in shard_map.shards:
        raise InvalidOption(f"there is no shard {shard!r}; there are {', '.join(shard_map.shards)}")


def misplaced(shard_map: ShardMap, shard: str, counted: Mapping[tuple[str, str], int]) -> int:
    """Return how many tasks of a shard are where the present routes would not put them.

    `counted` are its tasks by queue and tenant.
    """
    return sum(
        number
        for (queue, tenant), number in counted.items()
        if place(shard_map.routes, queue, tenant) != shard
    )
