"""Answers the claim planner's questions about one claim from the file, a small statement at a time.

The transaction holds the write lock, so its counts stay true. No statement reads a whole backlog: lanes and
keys are found by jumps through windlass_task_ready, and counts are bounded.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...._model.lease import Claim
from ...._model.queue import Level
from ...._policy.order.limits import Ledger, Permit, PermitUsage, Subject
from ...rules import claim_planner
from ...rules.claim_planner import KEYS_AT_ONCE, LANES_AT_ONCE, ClaimPlanner, ClaimRules, Head, Picked
from ...rules.questions import play
from ..rows import Row, listed, moment, read_running
from ..transaction import Transaction

COUNTED = 20_000
"""At most this many tasks are counted for a random draw, shared out evenly among the lanes."""

MIDDLE_WINDOW = 2_000
"""How many tasks of a FIFO queue are searched for priority 0, which has no index of its own there."""

_LAST_KEY = chr(0x10FFFF)  # sorts after every key
_FIRST_RANK = -(1 << 62)
_SIGNS = {Level.HIGH: 1, Level.MEDIUM: 0, Level.LOW: -1}


class LaneRotation(claim_planner.Rotation):
    """Where one handle's rotations stand, and which lanes were last counted for lots."""

    def __init__(self, draw: Callable[[], float]) -> None:
        super().__init__(draw)
        self.counted: dict[tuple[str, str], str] = {}  # (queue, first lane of the range) -> the last lane


def pick(tx: Transaction, queues: Sequence[str], wish: Claim, rotation: LaneRotation) -> list[int]:
    """Return the rowids to lease, after writing their permits."""
    settings = tx.queue_rules.settings
    rules = ClaimRules({queue: settings.get(queue) for queue in queues}, tx.queue_rules.limits)
    planner = ClaimPlanner(rules, rotation, tx.now)
    answers = _Answers(tx, rotation, wish.types)
    picked = play(planner.pick(max(wish.limit, 0), wish.level), answers.answer)
    _write_permits(tx, picked, planner.ledger)
    tx.wakes.wait = planner.wait
    return [one.head.row for one in picked]


def _write_permits(tx: Transaction, picked: Sequence[Picked], ledger: Ledger) -> None:
    """Write the permits and tokens taken. A claim that took nothing writes nothing and wakes no listener."""
    limited = [([permit.key for permit in one.permits], one.head.row) for one in picked if one.permits]
    taken = Counter(key for keys, _ in limited for key in keys)
    tx.run_many("permit", [(listed(keys), row) for keys, row in limited])
    tx.wakes.freed.subtract(taken)
    # After the clock was set back, a bucket in the future would not refill until the clock catches up.
    changed = [(key, left) for key, left in ledger.tokens.items() if ledger.is_rewound or key in taken]
    fill_buckets(tx, changed)


def fill_buckets(tx: Transaction, tokens: Iterable[tuple[str, float]]) -> None:
    """Store the tokens that limits have left under these keys."""
    tx.run_many("fill_bucket", [{"key": key, "tokens": left, "now": tx.at} for key, left in tokens])


class _Answers:
    """The answers within one claim. A task that was offered once is not offered again."""

    def __init__(self, tx: Transaction, rotation: LaneRotation, types: Sequence[str] | None) -> None:
        """`types`: only tasks of these are offered (None: of all)."""
        self._tx = tx
        self._rotation = rotation
        self._offerable = {"now": tx.at, "types": None if types is None else listed(types)}
        self._offered: Counter[tuple[str, str, str]] = Counter()  # queue, lane, key
        self._running: Counter[str] | None = None

    def answer(self, question: claim_planner.Question) -> Any:
        """Answer a question of the planner."""
        match question:
            case claim_planner.Lanes(queue, first, below, limit):
                return self._lanes(queue, first, below, limit)
            case claim_planner.Sizes(queue, first, below):
                return self._sizes(queue, first, below)
            case claim_planner.Keys(queue, after):
                return self._keys(queue, after)
            case claim_planner.Counts(permits):
                return self._uses(permits)
            case claim_planner.Heads(queue, numbers):
                return [
                    head
                    for (lane, key), number in numbers.items()
                    for head in self._heads(queue, lane, key, number)
                ]
            case claim_planner.LevelHeads(queue, level, number):
                return self._leveled(queue, level, number)

    # -- lanes ---------------------------------------------------------------------------------------

    def _lanes(self, queue: str, first: str, below: str, limit: int) -> list[str]:
        parameters = {"queue": queue, "first": first, "below": below, "limit": limit}
        return [row[0] for row in self._tx.rows("lanes", parameters)]

    def _sizes(self, queue: str, first: str, below: str) -> dict[str, int]:
        """Count the tasks of lanes; if there are too many lanes for one call, the next one continues."""
        start = self._rotation.counted.get((queue, first), first)
        lanes = self._lanes(queue, start, below, LANES_AT_ONCE)
        if len(lanes) < LANES_AT_ONCE and start > first:  # Wrap around.
            lanes += self._lanes(queue, first, start, LANES_AT_ONCE - len(lanes))
        if len(lanes) < LANES_AT_ONCE:
            self._rotation.counted.pop((queue, first), None)
        else:
            self._rotation.counted[queue, first] = lanes[-1]
        most = min(claim_planner.MAX_SIZE, COUNTED // max(len(lanes), 1))
        counted = self._tx.rows("sizes", {"queue": queue, "lanes": listed(lanes), "most": most})
        offered: Counter[str] = Counter()
        for (of, lane, _), number in self._offered.items():
            if of == queue:
                offered[lane] += number
        return {lane: number - offered[lane] for lane, number in counted if number > offered[lane]}

    # -- keys ----------------------------------------------------------------------------------------

    def _keys(self, queue: str, after: Mapping[str, str]) -> list[Head]:
        """Return, for each lane, the head without a key, then those of the keys after one, then up to it."""
        found = {lane: self._first("heads", queue, lane, "", 1) for lane in after}
        self._add_keys(found, queue, [(lane, key, _LAST_KEY) for lane, key in after.items()])
        again = [(lane, "", key) for lane, key in after.items() if key and len(found[lane]) < KEYS_AT_ONCE]
        if again:
            self._add_keys(found, queue, again)
        return [head for heads in found.values() for head in heads[:KEYS_AT_ONCE]]

    def _add_keys(
        self, found: dict[str, list[Head]], queue: str, spans: Sequence[tuple[str, str, str]]
    ) -> None:
        """Add the heads of the keys in ranges (first, last] of lanes."""
        # Exhausted keys are left out, and must not shorten the list.
        limit = KEYS_AT_ONCE + len(self._offered)
        parameters = {"queue": queue, "lanes": listed(spans), "limit": limit, **self._offerable}
        for row in self._tx.rows("keys", parameters):
            lane, key = row[0], row[1]
            if self._offered[queue, lane, key]:
                found[lane] += self._first("heads", queue, lane, key, 1)
            else:
                found[lane].append(_head(queue, row))

    def _heads(self, queue: str, lane: str, key: str, number: int) -> list[Head]:
        """Offer the first tasks of a lane and key that were not offered yet."""
        heads: list[Head] = []
        if not key and queue in self._tx.queue_rules.relayouts and self._tx.queue_rules.is_unlimited(queue):
            # Keys left behind by a removed limit, which no other question covers.
            heads = self._first("left_heads", queue, lane, _LAST_KEY, number)
            self._offered[queue, lane, _LAST_KEY] += len(heads)
        if len(heads) < number:
            more = self._first("heads", queue, lane, key, number - len(heads))
            self._offered[queue, lane, key] += len(more)
            heads += more
        return heads

    def _first(self, name: str, queue: str, lane: str, key: str, number: int) -> list[Head]:
        past = self._offered[queue, lane, key]
        of_lane = {"queue": queue, "lane": lane, "key": key}
        parameters = {**of_lane, "limit": number, "past": past, **self._offerable}
        return [_head(queue, row) for row in self._tx.rows(name, parameters)]

    # -- levels --------------------------------------------------------------------------------------

    def _leveled(self, queue: str, level: Level, number: int) -> list[Head]:
        parameters = {"queue": queue, "limit": number, **self._offerable}
        found = self._tx.rows("level", {**parameters, "level": _SIGNS[level]})
        if level is Level.MEDIUM:
            # Under strict priorities they begin at rank 0, behind all of the high level.
            near = [{**parameters, "window": MIDDLE_WINDOW, "rank": rank} for rank in (_FIRST_RANK, 0)]
            found += [row for window in near for row in self._tx.rows("middle_level", window)]
        rows = {row[4]: row for row in found}
        first = sorted(rows.values(), key=lambda row: (row[2], row[3]))[:number]
        return [_head(queue, row) for row in first]

    # -- what is in use ------------------------------------------------------------------------------

    def _uses(self, permits: Sequence[Permit]) -> dict[str, PermitUsage]:
        if self._running is None:
            self._running = read_running(self._tx.rows("limited"))
        metered = [permit.key for permit in permits if permit.limit.is_metered]
        buckets = self._tx.rows("buckets", {"keys": listed(metered)}) if metered else ()
        left = {key: (tokens, moment(at)) for key, tokens, at in buckets}
        return {
            permit.key: PermitUsage(self._running[permit.key], *left.get(permit.key, (None, None)))
            for permit in permits
        }


def _head(queue: str, row: Row) -> Head:
    lane, key, rank, task_id, rowid, type_, tenant, payload = row
    return Head(lane, key, rank, task_id, Subject(queue, type_, tenant, payload), rowid)
