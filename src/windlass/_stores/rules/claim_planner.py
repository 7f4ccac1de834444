"""Which ready tasks a claim gets where a queue has lanes or limits: the one way, for every store of ours.

Sans I/O: a generator that asks for what it needs and is sent the answers, so that memory, SQLite and Postgres
go the same way, each with its own means. What it asks for it asks inside the step that claims.

First whose turn it is: the queue, the tier of levels, the lane. Then what limits let start: in each lane the
keys that have ready tasks, what these need, how much of it is left. At last the tasks themselves, each judged
once more by its own permits: keys are only where tasks were put, perhaps before a limit was changed.
"""

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from ..._model.limit import Limit
from ..._model.queue import Fairness, Level, QueueSettings
from ..._model.task import TaskId
from ..._policy.order.lanes import lane_range, tenant_of, tiers
from ..._policy.order.limits import Ledger, Permit, PermitUsage, Subject, limits_in_queue, permits_of
from ..._policy.order.share import RoundPosition, advance, random_picks, round_robin, split_picks

KEYS_AT_ONCE = 64
"""So many keys of a lane are looked at in one go; the next claim goes on behind them."""

LANES_AT_ONCE = 1000
_FEW = 16
NEXT = "\x01"  # put behind a lane's name: below whatever else can follow it

ROUNDS = 8
"""So often a claim looks again for what is still missing; then the next one goes on."""

MAX_SIZE = 1000
"""Backlogs are counted up to here when lots are drawn."""

LEVEL_SPARE = 200
"""So many more tasks of a level are looked at than asked for: limits may hold up the first."""

_SOON, _AT_LAST = 0.025, 1.0  # seconds to the next look, where the last saw only a part

A = TypeVar("A")


# -- what is asked -----------------------------------------------------------------------------------


class Lanes(Struct, frozen=True):
    """The lanes of a queue that have ready tasks, in order, beginning with this one: so many of them."""

    queue: str
    first: str
    below: str
    limit: int


class Sizes(Struct, frozen=True):
    """The lanes that have ready tasks, and how many, counted up to MAX_SIZE."""

    queue: str
    first: str
    below: str


class Keys(Struct, frozen=True):
    """The heads of some keys in each lane: of "", and of those that follow a key, round to it again."""

    queue: str
    after: Mapping[str, str]  # lane -> key


class Counts(Struct, frozen=True):
    """What is in use under these permits, each locked until the claim stands.

    If not `wait`, those that another has locked are left out of the answer.
    """

    permits: Sequence[Permit]
    wait: bool


class Heads(Struct, frozen=True):
    """The first ready tasks of lanes and keys, as many as said, locked, and each answered once in a claim.

    Those that others have locked are skipped.
    """

    queue: str
    numbers: Mapping[tuple[str, str], int]


class Leveled(Struct, frozen=True):
    """The first ready tasks of a level, whatever lanes they are in: locked as `Heads` are."""

    queue: str
    level: Level
    number: int


Request: TypeAlias = Lanes | Sizes | Keys | Counts | Heads | Leveled


class Head(Struct, frozen=True):
    """A ready task, as picking sees it; `row` is how the store finds it again."""

    lane: str
    key: str
    rank: int
    id: TaskId
    subject: Subject
    row: Any = None


class Picked(Struct, frozen=True):
    """A task to lease, and what it needs of limits."""

    head: Head
    permits: tuple[Permit, ...] = ()


Picks: TypeAlias = Generator[Request, Any, A]


# -- what is remembered ------------------------------------------------------------------------------


class Turns:
    """Where one handle's rounds stand. The store knows nothing of it: who starts anew starts anywhere."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self.draw = draw
        self.turns: dict[tuple[str, str], RoundPosition] = {}
        self.keys: dict[tuple[str, str], str] = {}  # (queue, lane) -> the last key looked at
        self.passes: dict[str, dict[str, float]] = {}  # of a queue's tiers; "" of the queues themselves
        self.fruitless = 0  # claims in a row that saw only a part, and nothing there that may start


class Rules(Struct, frozen=True):
    """What a claim goes by: the queues it may take from and their settings, and all limits."""

    queues: Mapping[str, QueueSettings | None]
    limits: Sequence[Limit]
    unsettled: frozenset[str] = frozenset()  # queues whose tasks may lie under keys of limits that are gone


class Picking:
    """One claim's picks."""

    def __init__(self, rules: Rules, turns: Turns, now: datetime) -> None:
        self._rules = rules
        self._turns = turns
        self._ledger = Ledger(now)
        self._counted = False
        self.unfinished = False  # There may be more than was looked at.

    @property
    def wait(self) -> float | None:
        """The seconds after which a look is worth while, if time alone will let more start."""
        if not self.unfinished:
            return self._ledger.wait
        soon = min(_SOON * 2**self._turns.fruitless, _AT_LAST) if self._turns.fruitless else 0.0
        return soon if self._ledger.wait is None else min(soon, self._ledger.wait)

    @property
    def is_rewound(self) -> bool:
        """Whether the clock was set back, so that what rates have left is to be written down anew."""
        return self._ledger.is_rewound

    @property
    def now(self) -> datetime:
        """The instant at which tasks are picked: when the last was counted, for that may have had to wait."""
        return self._ledger.now

    @property
    def tokens(self) -> Mapping[str, float]:
        """The starts that are left under each key of a rate."""
        return self._ledger.tokens

    def pick(self, room: int, level: Level | None = None) -> Picks[list[Picked]]:
        """So many tasks, if there are, from all the queues in turn; or those of a level, in their order."""
        if level is not None:
            return (yield from self._of_level(level, room))
        weights = dict.fromkeys(self._rules.queues, 1)
        picked = yield from self._share_out("", weights, room, self._from_queue)
        self._note_fruit(picked)
        return picked

    def _of_level(self, level: Level, room: int) -> Picks[list[Picked]]:
        heads: list[Head] = []
        for queue in self._rules.queues:
            # Some of the first may have to wait for their limits.
            number = room + (LEVEL_SPARE if limits_in_queue(self._rules.limits, queue) else 0)
            found: list[Head] = yield Leveled(queue, level, number)
            heads += found
            self.unfinished |= len(found) == number
        picked = yield from self._judge(heads, room)
        self.unfinished &= len(picked) < room
        self._note_fruit(picked)
        return picked

    def _note_fruit(self, picked: Sequence[Picked]) -> None:
        self._turns.fruitless = 0 if picked or not self.unfinished else min(self._turns.fruitless + 1, 10)

    def _share_out(
        self,
        name: str,
        weights: Mapping[str, int],
        room: int,
        take: Callable[[str, int], Picks[list[Picked]]],
    ) -> Picks[list[Picked]]:
        """Picks in proportion; what one cannot use the others get."""
        passes = self._turns.passes.setdefault(name, {})
        picked: list[Picked] = []
        taken, short = dict.fromkeys(weights, 0), set[str]()
        while len(picked) < room and len(short) < len(weights):
            open_ = {one: weight for one, weight in weights.items() if one not in short}
            for one, number in split_picks(room - len(picked), open_, passes).items():
                if number:
                    got = yield from take(one, number)
                    picked += got
                    taken[one] += len(got)
                    if len(got) < number:
                        short.add(one)
            passes = advance(weights, self._turns.passes[name], taken, short)
        self._turns.passes[name] = passes
        return picked

    # -- one queue -----------------------------------------------------------------------------------

    def _from_queue(self, queue: str, room: int) -> Picks[list[Picked]]:
        weights = tiers(self._rules.queues[queue])

        def from_tier(tier: str, number: int) -> Picks[list[Picked]]:
            return (yield from self._from_span(queue, tier, number))

        picked = yield from self._share_out(queue, weights, room, from_tier)
        if len(picked) < room and "" not in weights:
            # What was put into lanes before the levels had shares.
            picked += yield from self._from_span(queue, "", room - len(picked))
        return picked

    def _from_span(self, queue: str, tier: str, room: int) -> Picks[list[Picked]]:
        settings = self._rules.queues[queue]
        fairness = Fairness.FIFO if settings is None else settings.fairness
        drained: set[str] = set()
        picked: list[Picked] = []
        for _ in range(ROUNDS):
            if fairness is Fairness.RANDOM:
                quotas = yield from self._by_lot(queue, tier, room - len(picked), drained)
            else:
                quotas = yield from self._in_turn(queue, tier, room - len(picked), drained)
            if not quotas:
                return picked
            got = yield from self._from_lanes(queue, quotas, drained)
            picked += got
            if len(picked) >= room:
                return picked
        self.unfinished = True
        return picked

    def _by_lot(self, queue: str, tier: str, room: int, drained: set[str]) -> Picks[dict[str, int]]:
        sizes: Mapping[str, int] = yield Sizes(queue, *lane_range(tier))
        left = {lane: size for lane, size in sizes.items() if lane not in drained}
        return random_picks(left, [self._turns.draw() for _ in range(room)])

    def _in_turn(self, queue: str, tier: str, room: int, drained: set[str]) -> Picks[dict[str, int]]:
        first, below = lane_range(tier)
        turn = self._turns.turns.get((queue, tier), RoundPosition(first))
        start = max(turn.lane if turn.left else turn.lane + NEXT, first)
        limit = min(max(room + len(drained), _FEW), LANES_AT_ONCE)
        lanes: list[str] = yield Lanes(queue, start, below, limit)
        if len(lanes) < limit and start > first:
            # Round to the beginning again.
            begin: list[str] = yield Lanes(queue, first, start, limit - len(lanes))
            lanes = begin + lanes
        left = [lane for lane in lanes if lane not in drained]
        weights = self._weights(queue)
        if len(lanes) >= limit:  # There may be more: no second turn before they had their first.
            room = min(room, len(left))
        plan = round_robin(left, turn, lambda lane: weights.get(tenant_of(lane), 1), room)
        self._turns.turns[queue, tier] = plan.turn
        return plan.quotas

    def _weights(self, queue: str) -> Mapping[str, int]:
        settings = self._rules.queues[queue]
        return {} if settings is None else settings.weights

    # -- some lanes ----------------------------------------------------------------------------------

    def _from_lanes(self, queue: str, quotas: Mapping[str, int], drained: set[str]) -> Picks[list[Picked]]:
        """So many from each; lanes that have no more to give are added to those that are drained."""
        limits = limits_in_queue(self._rules.limits, queue)
        if not limits and queue not in self._rules.unsettled:
            plain: list[Head] = yield Heads(queue, {(lane, ""): quota for lane, quota in quotas.items()})
            given = Counter(head.lane for head in plain)
            drained |= {lane for lane, quota in quotas.items() if given[lane] < quota}
            return [Picked(head) for head in plain]
        numbers = yield from self._numbers(queue, limits, quotas)
        heads: list[Head] = (yield Heads(queue, numbers)) if numbers else []
        picked = yield from self._judge(heads, len(heads))
        meant = Counter[str]()
        for (lane, _), number in numbers.items():
            meant[lane] += number
        seen = Counter(head.lane for head in heads)
        # Where a key had less than its head promised, another of the same lane may have more.
        drained |= {lane for lane, quota in quotas.items() if meant[lane] < quota or not seen[lane]}
        return picked

    def _judge(self, heads: Sequence[Head], room: int) -> Picks[list[Picked]]:
        """Those that their own permits let start, in order."""
        picked: list[Picked] = []
        for head in sorted(heads, key=lambda head: (head.rank, head.id)):
            if len(picked) == room:
                break
            permits = permits_of(self._rules.limits, head.subject)
            yield from self._count(permits)
            if all(map(self._ledger.knows, permits)) and self._ledger.start(permits):
                picked.append(Picked(head, permits))
        return picked

    def _numbers(
        self, queue: str, limits: Sequence[Limit], quotas: Mapping[str, int]
    ) -> Picks[dict[tuple[str, str], int]]:
        """How many to take from which key of each lane, by what its head needs: the oldest first."""
        after = {lane: self._turns.keys.get((queue, lane), "") for lane in quotas}
        heads: list[Head] = yield Keys(queue, after)
        needed = {head.id: permits_of(limits, head.subject) for head in heads}
        yield from self._count([permit for permits in needed.values() for permit in permits])
        self._remember_keys(queue, heads)
        numbers: dict[tuple[str, str], int] = {}
        room = dict(quotas)
        for head in sorted(heads, key=lambda head: (head.rank, head.id)):
            permits = needed[head.id]
            if room[head.lane] and all(map(self._ledger.knows, permits)):
                number = self._ledger.room(permits, room[head.lane])
                if number:
                    numbers[head.lane, head.key] = number
                    room[head.lane] -= number
        return numbers

    def _remember_keys(self, queue: str, heads: Sequence[Head]) -> None:
        """Where a lane has more keys than are looked at in one go, the next claim goes on behind them."""
        last: dict[str, list[str]] = {}
        for head in heads:
            last.setdefault(head.lane, []).append(head.key)
        for lane, keys in last.items():
            if len(keys) >= KEYS_AT_ONCE - 1:  # "" need not be among them.
                self._turns.keys[queue, lane] = keys[-1]
                self.unfinished = True
            else:
                self._turns.keys.pop((queue, lane), None)

    def _count(self, permits: Sequence[Permit]) -> Picks[None]:
        """Have what is not known yet locked and counted.

        Only the first time may it wait for others: locks are taken in the order of their keys, and a second
        lot of them is not in order with the first.
        """
        new = {permit.key: permit for permit in permits if not self._ledger.knows(permit)}
        if new:
            asked = [new[key] for key in sorted(new)]
            uses: Mapping[str, PermitUsage] = yield Counts(asked, wait=not self._counted)
            self._counted = True
            self.unfinished |= len(uses) < len(asked)  # Others have locked some, and may leave something.
            for key, use in uses.items():
                self._ledger.enter(new[key], use)


def play(picks: Picks[A], answer: Callable[[Request], Any]) -> A:
    """Have a store answer what picking asks, at once."""
    try:
        request = next(picks)
        while True:
            request = picks.send(answer(request))
    except StopIteration as end:
        result: A = end.value
        return result


def first_keys(keys: Sequence[str], after: str) -> list[str]:
    """ "" if it is there, and of the others so many that follow one of them, round to it again. In order."""
    named = [key for key in keys if key]
    behind = [key for key in named if key > after] + [key for key in named if key <= after]
    return list(islice(([""] if "" in keys else []) + behind, KEYS_AT_ONCE))
