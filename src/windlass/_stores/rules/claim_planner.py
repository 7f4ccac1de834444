"""Which ready tasks a claim gets where a queue has lanes or limits: one algorithm for every store.

A generator without I/O: it yields a question and is sent the answer, and each store answers in its own way.
All questions are asked inside the transaction that claims.

It decides first whose turn it is: the queue, the tier of levels, the lane. Then what limits let start: which
keys of each lane have ready tasks, which permits those need, and how many are left. Finally it loads the
tasks and checks each against its own permits again, as a task may have been given its key before a limit
was changed.
"""

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from ..._model.limit import Limit
from ..._model.queue import Fairness, Level, QueueSettings
from ..._model.task import TaskId
from ..._policy.order.lanes import lane_range, tenant_of, tiers
from ..._policy.order.limits import Ledger, Permit, PermitUsage, Subject, limits_in_queue, permits_of
from ..._policy.order.share import RoundPosition, advance, random_picks, round_robin, split_picks

KEYS_AT_ONCE = 64
"""Keys of a lane that one claim looks at; the next claim continues after them."""

LANES_AT_ONCE = 1000
_FEW = 16
NEXT = "\x01"  # appended to a lane's name: sorts right after it, before any other lane

ROUNDS = 8
"""How often one claim looks again for tasks that are still missing; the next claim continues."""

MAX_SIZE = 1000
"""Backlogs are counted up to this number for random fairness."""

LEVEL_SPARE = 200
"""Tasks of a level that are looked at beyond those requested, as limits may hold back the first."""

_MIN_WAIT, _MAX_WAIT = 0.025, 1.0  # seconds until the next claim, after one that saw only a part

A = TypeVar("A")


# -- questions ---------------------------------------------------------------------------------------


class Lanes(Struct, frozen=True):
    """Answer: list[str], the first `limit` lanes with ready tasks, sorted, from `first` to below `below`."""

    queue: str
    first: str
    below: str
    limit: int


class Sizes(Struct, frozen=True):
    """Answer: Mapping[str, int], lanes with ready tasks and their number, counted up to MAX_SIZE."""

    queue: str
    first: str
    below: str


class Keys(Struct, frozen=True):
    """Answer: list[Head], the first tasks of some keys in each lane.

    These are "" and up to KEYS_AT_ONCE keys that follow the one given, wrapping around to it.
    """

    queue: str
    after: Mapping[str, str]  # lane -> key


class Counts(Struct, frozen=True):
    """Lock these permits until the claim is committed. Answer: Mapping[str, PermitUsage].

    Unless `wait`, permits that another claim has locked are left out of the answer.
    """

    permits: Sequence[Permit]
    wait: bool


class Heads(Struct, frozen=True):
    """Lock the first ready tasks of lanes and keys, as many of each as given. Answer: list[Head].

    A task is answered once in a claim. Tasks that others have locked are skipped.
    """

    queue: str
    numbers: Mapping[tuple[str, str], int]


class LevelHeads(Struct, frozen=True):
    """Lock the first ready tasks of a level in any lane, as for `Heads`. Answer: list[Head]."""

    queue: str
    level: Level
    number: int


Question: TypeAlias = Lanes | Sizes | Keys | Counts | Heads | LevelHeads


class Head(Struct, frozen=True):
    """A ready task as the planner sees it; `row` is the store's own reference to it."""

    lane: str
    key: str
    rank: int
    id: TaskId
    subject: Subject
    row: Any = None


class Picked(Struct, frozen=True):
    """A task to lease, and the permits it takes."""

    head: Head
    permits: tuple[Permit, ...] = ()


Plan: TypeAlias = Generator[Question, Any, A]


# -- state between claims ----------------------------------------------------------------------------


class Rotation:
    """How far the rounds of one handle have got. Kept in memory only, so a new handle starts anywhere."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self.draw = draw
        self.positions: dict[tuple[str, str], RoundPosition] = {}
        self.keys: dict[tuple[str, str], str] = {}  # (queue, lane) -> the last key seen
        self.passes: dict[str, dict[str, float]] = {}  # of a queue's tiers; "" of the queues themselves
        self.fruitless = 0  # claims in a row that saw only a part, and there nothing that may start


class ClaimRules(Struct, frozen=True):
    """The queues that a claim may take from, with their settings, and all limits."""

    queues: Mapping[str, QueueSettings | None]
    limits: Sequence[Limit]
    unsettled: frozenset[str] = frozenset()  # queues whose tasks may have keys of removed limits


class ClaimPlanner:
    """Plans one claim."""

    def __init__(self, rules: ClaimRules, rotation: Rotation, now: datetime) -> None:
        self._rules = rules
        self._rotation = rotation
        self.ledger = Ledger(now)
        self._permits: dict[Subject, tuple[Permit, ...]] = {}
        self._counted = False
        self.unfinished = False  # There may be more tasks than were looked at.

    @property
    def wait(self) -> float | None:
        """Seconds until another claim is worthwhile, if time alone lets more tasks start; else None."""
        if not self.unfinished:
            return self.ledger.wait
        soon = min(_MIN_WAIT * 2**self._rotation.fruitless, _MAX_WAIT) if self._rotation.fruitless else 0.0
        return soon if self.ledger.wait is None else min(soon, self.ledger.wait)

    def pick(self, room: int, level: Level | None = None) -> Plan[list[Picked]]:
        """Pick up to `room` tasks: from all queues in turn, or those of one level in their order."""
        if level is not None:
            picked = yield from self._of_level(level, room)
        else:
            weights = dict.fromkeys(self._rules.queues, 1)
            picked = yield from self._share_out("", weights, room, self._from_queue)
        is_fruitless = self.unfinished and not picked
        self._rotation.fruitless = min(self._rotation.fruitless + 1, 10) if is_fruitless else 0
        return picked

    def _of_level(self, level: Level, room: int) -> Plan[list[Picked]]:
        heads: list[Head] = []
        for queue in self._rules.queues:
            # Limits may hold back some of the first.
            number = room + (LEVEL_SPARE if limits_in_queue(self._rules.limits, queue) else 0)
            found: list[Head] = yield LevelHeads(queue, level, number)
            heads += found
            self.unfinished |= len(found) == number
        picked = yield from self._judge(heads, room)
        self.unfinished &= len(picked) < room
        return picked

    def _share_out(
        self,
        name: str,
        weights: Mapping[str, int],
        room: int,
        take: Callable[[str, int], Plan[list[Picked]]],
    ) -> Plan[list[Picked]]:
        """Pick in proportion to weights; the others share what one cannot use."""
        passes = self._rotation.passes.setdefault(name, {})
        picked: list[Picked] = []
        taken, short = dict.fromkeys(weights, 0), set[str]()
        while len(picked) < room and len(short) < len(weights):
            unfilled = {one: weight for one, weight in weights.items() if one not in short}
            for one, number in split_picks(room - len(picked), unfilled, passes).items():
                if number:
                    got = yield from take(one, number)
                    picked += got
                    taken[one] += len(got)
                    if len(got) < number:
                        short.add(one)
            passes = advance(weights, self._rotation.passes[name], taken, short)
        self._rotation.passes[name] = passes
        return picked

    # -- one queue -----------------------------------------------------------------------------------

    def _from_queue(self, queue: str, room: int) -> Plan[list[Picked]]:
        weights = tiers(self._rules.queues[queue])
        picked = yield from self._share_out(queue, weights, room, partial(self._from_tier, queue))
        if len(picked) < room and "" not in weights:
            # Tasks that were put into lanes before the levels had shares.
            picked += yield from self._from_tier(queue, "", room - len(picked))
        return picked

    def _from_tier(self, queue: str, tier: str, room: int) -> Plan[list[Picked]]:
        settings = self._rules.queues[queue]
        fairness = Fairness.FIFO if settings is None else settings.fairness
        drained: set[str] = set()
        picked: list[Picked] = []
        for _ in range(ROUNDS):
            if fairness is Fairness.RANDOM:
                quotas = yield from self._random(queue, tier, room - len(picked), drained)
            else:
                quotas = yield from self._round_robin(queue, tier, room - len(picked), drained)
            if not quotas:
                return picked
            got = yield from self._from_lanes(queue, quotas, drained)
            picked += got
            if len(picked) >= room:
                return picked
        self.unfinished = True
        return picked

    def _random(self, queue: str, tier: str, room: int, drained: set[str]) -> Plan[dict[str, int]]:
        sizes: Mapping[str, int] = yield Sizes(queue, *lane_range(tier))
        left = {lane: size for lane, size in sizes.items() if lane not in drained}
        return random_picks(left, [self._rotation.draw() for _ in range(room)])

    def _round_robin(self, queue: str, tier: str, room: int, drained: set[str]) -> Plan[dict[str, int]]:
        first, below = lane_range(tier)
        turn = self._rotation.positions.get((queue, tier), RoundPosition(first))
        start = max(turn.lane if turn.left else turn.lane + NEXT, first)
        limit = min(max(room + len(drained), _FEW), LANES_AT_ONCE)
        lanes: list[str] = yield Lanes(queue, start, below, limit)
        if len(lanes) < limit and start > first:
            # Wrap around to the first lane.
            begin: list[str] = yield Lanes(queue, first, start, limit - len(lanes))
            lanes = begin + lanes
        left = [lane for lane in lanes if lane not in drained]
        settings = self._rules.queues[queue]
        weights = {} if settings is None else settings.weights
        if len(lanes) >= limit:  # There may be more: none gets a second turn before those had one.
            room = min(room, len(left))
        plan = round_robin(left, turn, lambda lane: weights.get(tenant_of(lane), 1), room)
        self._rotation.positions[queue, tier] = plan.turn
        return plan.quotas

    # -- some lanes ----------------------------------------------------------------------------------

    def _from_lanes(self, queue: str, quotas: Mapping[str, int], drained: set[str]) -> Plan[list[Picked]]:
        """Pick up to its quota from each lane; add lanes that have no more tasks to `drained`."""
        limits = limits_in_queue(self._rules.limits, queue)
        if not limits and queue not in self._rules.unsettled:
            plain: list[Head] = yield Heads(queue, {(lane, ""): quota for lane, quota in quotas.items()})
            given = Counter(head.lane for head in plain)
            drained |= {lane for lane, quota in quotas.items() if given[lane] < quota}
            return [Picked(head) for head in plain]
        numbers = yield from self._numbers(queue, quotas)
        heads: list[Head] = (yield Heads(queue, numbers)) if numbers else []
        picked = yield from self._judge(heads, len(heads))
        planned = Counter[str]()
        for (lane, _), number in numbers.items():
            planned[lane] += number
        seen = Counter(head.lane for head in heads)
        # Where a key had fewer tasks than planned, another key of the same lane may have more.
        drained |= {lane for lane, quota in quotas.items() if planned[lane] < quota or not seen[lane]}
        return picked

    def _judge(self, heads: Sequence[Head], room: int) -> Plan[list[Picked]]:
        """Pick the tasks whose own permits are free, in order, up to `room`."""
        picked: list[Picked] = []
        for head in sorted(heads, key=lambda head: (head.rank, head.id)):
            if len(picked) == room:
                break
            permits = self._permits_of(head.subject)
            if not all(map(self.ledger.knows, permits)):
                yield from self._count(permits)
                if not all(map(self.ledger.knows, permits)):
                    continue
            if self.ledger.start(permits):
                picked.append(Picked(head, permits))
        return picked

    def _numbers(self, queue: str, quotas: Mapping[str, int]) -> Plan[dict[tuple[str, str], int]]:
        """Plan how many tasks to take from each lane and key, oldest head first, by the permits it needs."""
        after = {lane: self._rotation.keys.get((queue, lane), "") for lane in quotas}
        heads: list[Head] = yield Keys(queue, after)
        needed = {head.id: self._permits_of(head.subject) for head in heads}
        yield from self._count([permit for permits in needed.values() for permit in permits])
        self._remember_keys(queue, heads)
        numbers: dict[tuple[str, str], int] = {}
        room = dict(quotas)
        for head in sorted(heads, key=lambda head: (head.rank, head.id)):
            permits = needed[head.id]
            if room[head.lane] and all(map(self.ledger.knows, permits)):
                number = self.ledger.room(permits, room[head.lane])
                if number:
                    numbers[head.lane, head.key] = number
                    room[head.lane] -= number
        return numbers

    def _remember_keys(self, queue: str, heads: Sequence[Head]) -> None:
        """Note where the next claim continues in lanes that have more keys than one claim looks at."""
        last: dict[str, list[str]] = {}
        for head in heads:
            last.setdefault(head.lane, []).append(head.key)
        for lane, keys in last.items():
            if len(keys) >= KEYS_AT_ONCE - 1:  # "" may be missing among them.
                self._rotation.keys[queue, lane] = keys[-1]
                self.unfinished = True
            else:
                self._rotation.keys.pop((queue, lane), None)

    def _permits_of(self, subject: Subject) -> tuple[Permit, ...]:
        permits = self._permits.get(subject)
        if permits is None:
            permits = self._permits[subject] = permits_of(self._rules.limits, subject)
        return permits

    def _count(self, permits: Sequence[Permit]) -> Plan[None]:
        """Lock and count the permits that are not yet known.

        Only the first count may wait for locks: they are taken in the order of their keys, and a second set
        is out of order with the first, so waiting could deadlock.
        """
        new = {permit.key: permit for permit in permits if not self.ledger.knows(permit)}
        if new:
            wanted = [new[key] for key in sorted(new)]
            uses: Mapping[str, PermitUsage] = yield Counts(wanted, wait=not self._counted)
            self._counted = True
            self.unfinished |= len(uses) < len(wanted)  # Others have locked some, and may not use them up.
            for key, use in uses.items():
                self.ledger.enter(new[key], use)


def first_keys(keys: Sequence[str], after: str) -> list[str]:
    """Return "" if present, then the keys after one of them, wrapping around; at most KEYS_AT_ONCE."""
    named = [key for key in keys if key]
    behind = [key for key in named if key > after] + [key for key in named if key <= after]
    return [*([""] if "" in keys else []), *behind][:KEYS_AT_ONCE]


def earliest(*waits: float | None) -> float | None:
    """Return the shortest of these waits; None is no wait at all."""
    return min((wait for wait in waits if wait is not None), default=None)
