"""A store on paper: answers the claim planner from plain lists, and checks every rule about the answers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import count, pairwise
from typing import Any

import msgspec
from msgspec import Struct

from tests.unit.samples import NOW
from windlass._model.limit import Limit
from windlass._model.queue import Level, QueueSettings, level_of
from windlass._policy.order.lanes import lane_of
from windlass._policy.order.limits import Permit, PermitUsage, Subject, limit_key, limits_in_queue, permits_of
from windlass._stores.rules.claim_planner import (
    MAX_SIZE,
    ClaimPlanner,
    ClaimRules,
    Counts,
    Head,
    Heads,
    Keys,
    Lanes,
    LevelHeads,
    Picked,
    Question,
    Rotation,
    Sizes,
    first_keys,
)
from windlass._stores.rules.questions import play


class Ready(Struct, frozen=True):
    """A task that waits to be picked."""

    queue: str = "q"
    tenant: str = ""
    type: str = "t"
    account: int = 0
    rank: int = 0
    priority: int = 0


class Paper:
    """Ready tasks where they were put, running ones, and the starts there were. No clock but `now`."""

    def __init__(
        self,
        tasks: Iterable[Ready] = (),
        limits: Sequence[Limit] = (),
        settings: QueueSettings | None = None,
        draw: float = 0.5,
    ) -> None:
        self.settings = settings
        self.limits = list(limits)
        self.now = NOW
        self.ready: dict[str, tuple[Head, int]] = {}  # with the priority
        self.running: dict[str, Head] = {}
        self.starts: dict[str, list[datetime]] = {}
        self.locked: set[str] = set()  # keys of permits that another claimer holds
        self.turns = Rotation(lambda: draw)
        self.asked: list[Question] = []
        self.planner = ClaimPlanner(ClaimRules({}, ()), self.turns, NOW)
        self._buckets: dict[str, tuple[float, datetime]] = {}
        self._answered: set[str] = set()
        self._ids = count()
        self.put(*tasks)

    def put(self, *tasks: Ready) -> None:
        """Put tasks where they belong by what holds now."""
        for task in tasks:
            payload = msgspec.json.encode({"account": task.account})
            subject = Subject(task.queue, task.type, task.tenant, payload)
            lane = lane_of(self.settings, task.tenant, task.priority)
            key = limit_key(limits_in_queue(self.limits, task.queue), subject)
            head = Head(lane, key, task.rank, f"{next(self._ids):06}", subject)
            self.ready[head.id] = (head, task.priority)

    def claim(self, room: int, level: Level | None = None, queues: Sequence[str] = ("q",)) -> list[Head]:
        """Pick so many, and have them run."""
        rules = ClaimRules(dict.fromkeys(queues, self.settings), self.limits)
        self.planner, self.asked, self._answered = ClaimPlanner(rules, self.turns, self.now), [], set()
        picked: list[Picked] = play(self.planner.pick(room, level), self._answer)
        assert len(picked) <= room
        for one in picked:
            self._start(one)
        self._buckets |= {key: (tokens, self.now) for key, tokens in self.planner.ledger.tokens.items()}
        self._check_locks()
        return [one.head for one in picked]

    def finish(self, *ids: str) -> None:
        """They run no longer."""
        for task_id in ids:
            del self.running[task_id]

    def later(self, seconds: float) -> None:
        """Turn the clock."""
        self.now += timedelta(seconds=seconds)

    def forget(self) -> None:
        """Whatever was started under rates before counts no longer."""
        self.starts, self._buckets = {}, {}

    def may_start(self, head: Head) -> bool:
        """Whether every limit has room for it, reckoned from what runs and from all starts there were."""
        return all(self._has_room(permit) for permit in permits_of(self.limits, head.subject))

    def blocked(self) -> set[str]:
        """The ready tasks that some limit holds up."""
        return {task_id for task_id, (head, _) in self.ready.items() if not self.may_start(head)}

    def _has_room(self, permit: Permit) -> bool:
        cap, rate = permit.limit.running, permit.limit.rate
        if cap is not None and self._running(permit) >= cap:
            return False
        starts = self.starts.get(permit.key, [])
        return rate is None or all(
            len(starts) - index + 1 <= permit.limit.capacity + rate * (self.now - start).total_seconds()
            for index, start in enumerate(starts)
        )

    def _running(self, permit: Permit) -> int:
        return sum(permit in permits_of([permit.limit], head.subject) for head in self.running.values())

    def _start(self, one: Picked) -> None:
        assert self.may_start(one.head), "a limit is exceeded"
        assert one.permits == permits_of(self.limits, one.head.subject)
        del self.ready[one.head.id]  # A task that is picked twice is not here any more.
        self.running[one.head.id] = one.head
        for permit in one.permits:
            self.starts.setdefault(permit.key, []).append(self.now)

    def _check_locks(self) -> None:
        """Locks are waited for once, and all of them in one order: nobody can lock another out for ever."""
        counts = [request for request in self.asked if isinstance(request, Counts)]
        for request in counts:
            keys = [permit.key for permit in request.permits]
            assert keys
            assert all(one < other for one, other in pairwise(keys))
        assert [request.wait for request in counts] == [True, *[False] * (len(counts) - 1)][: len(counts)]
        asked = [permit.key for request in counts for permit in request.permits]
        known = set(asked) - self.locked
        assert all(asked.count(key) == 1 for key in known), "counted twice"

    # -- answers -------------------------------------------------------------------------------------

    def _answer(self, request: Question) -> Any:
        self.asked.append(request)
        match request:
            case Lanes(queue, first, below, limit):
                assert limit > 0
                assert "\0" not in first + below  # which Postgres cannot be asked for
                return self._lanes(queue, first, below)[:limit]
            case Sizes(queue, first, below):
                sizes = Counter(head.lane for head in self._in(queue) if first <= head.lane < below)
                return {lane: min(sizes[lane], MAX_SIZE) for lane in sorted(sizes)}
            case Keys(queue, after):
                firsts: dict[str, dict[str, Head]] = {lane: {} for lane in after}
                for head in self._in(queue):
                    if head.lane in after:
                        firsts[head.lane].setdefault(head.key, head)
                return [
                    firsts[lane][key]
                    for lane, behind in after.items()
                    for key in first_keys(sorted(firsts[lane]), behind)
                ]
            case Counts(permits, wait):
                taken = set() if wait else self.locked
                return {permit.key: self._use(permit) for permit in permits if permit.key not in taken}
            case Heads(queue, numbers):
                assert all(number > 0 for number in numbers.values())
                places: dict[tuple[str, str], list[Head]] = {}
                for head in self._in(queue):
                    places.setdefault((head.lane, head.key), []).append(head)
                return [
                    head
                    for place, number in numbers.items()
                    for head in self._once(places.get(place, []), number)
                ]
            case LevelHeads(queue, level, number):
                found = [head for head in self._in(queue) if level_of(self.ready[head.id][1]) is level]
                return self._once(found, number)

    def _in(self, queue: str) -> list[Head]:
        found = [
            head
            for head, _ in self.ready.values()
            if head.subject.queue == queue and head.id not in self._answered
        ]
        return sorted(found, key=lambda head: (head.rank, head.id))

    def _lanes(self, queue: str, first: str, below: str) -> list[str]:
        return sorted({head.lane for head in self._in(queue) if first <= head.lane < below})

    def _once(self, heads: list[Head], number: int) -> list[Head]:
        self._answered |= {head.id for head in heads[:number]}
        return heads[:number]

    def _use(self, permit: Permit) -> PermitUsage:
        tokens, at = self._buckets.get(permit.key, (None, None))
        return PermitUsage(self._running(permit), tokens, at)
