"""Claims from queues with lanes.

Usually one statement settles and claims, planned from a cache of which lanes had ready tasks a moment ago.
If it yields too little, or a limit applies, a transaction reads the lanes and counts permits; and now and
then in any case, because it also moves tasks that are not in their lane yet.
"""

import random
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ...._model.lease import Claim
from ...._model.task import TaskId
from ...._model.verdict import Settlement
from ...._policy.order.limits import Subject
from ...rules import claim_planner
from ...rules.claim_planner import Lanes, Question, Sizes
from ..database import Database
from ..script import Script, answered, fetch, pairs, play
from ..settle import Grant, merged, read_grant, settle_and_claim, settle_and_claim_from_lanes
from . import limited

COUNTED_EVERY = 0.5
"""Seconds after which a transaction looks for tasks that are not in their lane."""

BLOCKED_SECONDS = 0.05
"""How long a worker with other work does not try again after limits let nothing start, unless it returns a
permit itself."""

FRESH_SECONDS = 1.0
"""How long the cache of lanes is used."""

_MAX_COUNTED = 10_000
_NOTHING = Grant(done=None, alive=True, claimed=[])
_NO_TIME = datetime.min.replace(tzinfo=UTC)  # for plans without rate limits
_NO_SUBJECT = Subject("", "", "", b"")


class LaneClaims:
    """The claims of one store from queues with lanes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._layout = database.layout
        self._turns = claim_planner.Rotation(random.random)
        self._cache = LaneCache()
        self._next_counted = 0.0
        self._blocked_until = 0.0
        self._counted: set[TaskId] = set()  # leased here under limits

    def seconds_blocked(self, batch: Sequence[Settlement]) -> float:
        """Return for how long limits let nothing start, as last seen; 0 if this batch returns permits."""
        if self._counted and not self._counted.isdisjoint(one.lease.task_id for one in batch):
            self._blocked_until = 0.0
        return max(self._blocked_until - monotonic(), 0.0)

    async def claim(self, batch: Sequence[Settlement], claim: Claim, queues: Sequence[str]) -> Grant:
        by_rank = claim.is_selective or any(map(self._layout.is_guarded, queues))
        if by_rank or monotonic() >= self._next_counted:
            settled = _NOTHING
            if batch:
                completion = settle_and_claim(self._database.env, batch, None, ())
                settled = read_grant(await self._database.fetch(completion))
            if settled.done is not None:
                return settled
            return merged(settled, await self.claim_counted(claim, queues))
        grant = await self._claim_from_cache(batch, claim, queues)
        room = claim.limit - len(grant.claimed)
        if grant.done is not None or not grant.alive or room <= 0:
            return grant
        self._cache.clear()
        return merged(grant, await self.claim_counted(replace(claim, limit=room), queues))

    async def claim_counted(self, claim: Claim, queues: Sequence[str]) -> Grant:
        """Claim in a transaction that reads the lanes and counts permits."""
        env = self._database.env
        grant = await self._database.play(lambda: limited.claim(env, self._turns, claim, queues))
        self._next_counted = monotonic() + (0.0 if grant.has_misplaced else COUNTED_EVERY)
        if grant.is_outdated:
            await self._database.refresh_layout()
        if any(map(self._layout.is_guarded, queues)):
            self._note_limits(grant, claim)
        return grant

    def _note_limits(self, grant: Grant, claim: Claim) -> None:
        if len(self._counted) > _MAX_COUNTED:
            self._counted.clear()  # Some were settled elsewhere; this costs one needless claim at most.
        self._counted.update(one.task.id for one in grant.claimed)
        if not grant.claimed and claim.limit > 0:
            self._blocked_until = monotonic() + BLOCKED_SECONDS

    async def _claim_from_cache(
        self, batch: Sequence[Settlement], claim: Claim, queues: Sequence[str]
    ) -> Grant:
        """Complete and claim in one statement, by what is known of the lanes."""
        database = self._database
        rules = claim_planner.ClaimRules({queue: self._layout.settings.get(queue) for queue in queues}, ())
        planner = claim_planner.ClaimPlanner(rules, self._turns, _NO_TIME)
        plan = LanePlan(self._cache)
        await play(answered(planner.pick(max(claim.limit, 0)), plan.answer), database.fetch)
        both = settle_and_claim_from_lanes(database.env, batch, claim, plan.numbers)
        return read_grant(await database.fetch(both))


class Segment(Struct):
    """The lanes of a queue with names from `first` up to `below`, as they were at an instant."""

    first: str
    below: str
    lanes: list[str]
    at: float


class LaneCache:
    """Which lanes had ready tasks a moment ago.

    Advice only: a lane that is new is found within FRESH_SECONDS, and one that is empty is noticed when a
    claim yields too little; then the claim reads the lanes again.
    """

    def __init__(self) -> None:
        self._segments: dict[str, Segment] = {}
        self._sizes: dict[tuple[str, str], tuple[float, dict[str, int]]] = {}

    def clear(self) -> None:
        self._segments.clear()
        self._sizes.clear()

    # -- lanes ---------------------------------------------------------------------------------------

    def lanes(self, request: Lanes) -> list[str] | None:
        """Return the lanes that were requested; None if they are not known."""
        known = self._segments.get(request.queue)
        if known is None or monotonic() - known.at > FRESH_SECONDS or not known.first <= request.first:
            return None
        start = bisect_left(known.lanes, request.first)
        end = bisect_left(known.lanes, request.below)
        found = known.lanes[start : min(end, start + request.limit)]
        return found if len(found) == request.limit or request.below <= known.below else None

    def learn_lanes(self, request: Lanes, lanes: list[str]) -> list[str]:
        """Store and return what the database returned for a request, up to LANES_AT_ONCE lanes."""
        below = request.below if len(lanes) < claim_planner.LANES_AT_ONCE else lanes[-1] + claim_planner.NEXT
        new = Segment(request.first, below, lanes, monotonic())
        known = self._segments.get(request.queue)
        if known is not None and monotonic() - known.at <= FRESH_SECONDS and known.first == new.below:
            new = Segment(new.first, known.below, new.lanes + known.lanes, known.at)
        self._segments[request.queue] = new
        return lanes

    # -- sizes ---------------------------------------------------------------------------------------

    def sizes(self, request: Sizes) -> dict[str, int] | None:
        """Return the sizes that were requested; None if they are not known."""
        at, sizes = self._sizes.get((request.queue, request.first), (-FRESH_SECONDS, {}))
        return sizes if monotonic() - at <= 2 * FRESH_SECONDS and any(sizes.values()) else None

    def learn_sizes(self, request: Sizes, sizes: Mapping[str, int]) -> None:
        self._sizes[request.queue, request.first] = (monotonic(), dict(sizes))

    def subtract(self, queue: str, lane: str, number: int) -> None:
        """Count this many tasks less in a lane."""
        for (of, _), (_, sizes) in self._sizes.items():
            if of == queue and lane in sizes:
                sizes[lane] = max(sizes[lane] - number, 0)


class LanePlan:
    """Answers the claim planner without locking anything: how many tasks to claim from which lane."""

    def __init__(self, cache: LaneCache) -> None:
        self._cache = cache
        self.numbers: dict[tuple[str, str], int] = {}  # (queue, lane) -> tasks

    def answer(self, request: Question) -> Script[Any]:
        """Answer from the cache, and from the database what the cache does not have."""
        match request:
            case Lanes(queue, first, below, limit):
                lanes = self._cache.lanes(request)
                if lanes is None:
                    rows = yield from fetch("lanes", queue, first, below, claim_planner.LANES_AT_ONCE, 0)
                    lanes = self._cache.learn_lanes(request, [row[0] for row in rows])[:limit]
                return lanes
            case Sizes(queue, first, below):
                sizes = self._cache.sizes(request)
                if sizes is None:
                    sizes = yield from pairs("lanes", queue, first, below, None, claim_planner.MAX_SIZE)
                    self._cache.learn_sizes(request, sizes)
                return sizes
            case claim_planner.Heads(queue, numbers):
                return self._take(queue, numbers)
            case _:
                raise AssertionError(f"{request} is for claims under limits")

    def _take(self, queue: str, numbers: Mapping[tuple[str, str], int]) -> list[claim_planner.Head]:
        for (lane, _), number in numbers.items():
            self.numbers[queue, lane] = self.numbers.get((queue, lane), 0) + number
            self._cache.subtract(queue, lane, number)
        return [
            claim_planner.Head(lane, key, 0, "", _NO_SUBJECT)
            for (lane, key), number in numbers.items()
            for _ in range(number)
        ]
