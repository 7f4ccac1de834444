"""What the claim planner asks of the file during one claim, a small statement at a time. (F2-F5)

The transaction has the file to itself, so what it counts stays so. No answer reads a backlog: lanes and keys
are found by jumps through windlass_task_ready, and what is counted is counted up to a bound.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...._model.lease import Claim
from ...._model.queue import Level
from ...._policy.order.limits import Permit, PermitUsage, Subject
from ...rules.claim_planner import (
    KEYS_AT_ONCE,
    LANES_AT_ONCE,
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
)
from ...rules.questions import play
from ..rows import Row, moment, permits_row, read_permits
from ..statements import listed
from ..transaction import Transaction

COUNTED = 20_000
"""So many tasks are counted at most when lots are drawn: with many lanes, each up to its part of this."""

LINE_WINDOW = 2_000
"""So many tasks of a line are looked at for those at nought, which have no index of their own there."""

_LAST_KEY = chr(0x10FFFF)  # sorts after every key
_FIRST_RANK = -(1 << 62)
_SIGNS = {Level.HIGH: 1, Level.MEDIUM: 0, Level.LOW: -1}


class Rounds(Rotation):
    """Where one handle's rounds stand, and which lanes were last counted for lots."""

    def __init__(self, draw: Callable[[], float]) -> None:
        super().__init__(draw)
        self.counted: dict[tuple[str, str], str] = {}  # (queue, first lane of the span) -> the last one


def pick(tx: Transaction, queues: Sequence[str], wish: Claim, rounds: Rounds) -> list[int]:
    """The rows to lease, with their permits written to them."""
    settings = tx.places.settings
    rules = ClaimRules({queue: settings.get(queue) for queue in queues}, tx.places.limits)
    planner = ClaimPlanner(rules, rounds, tx.now)
    answers = _Answers(tx, rounds)
    picked = play(planner.pick(max(wish.limit, 0), wish.level), answers.answer)
    _keep(tx, picked, planner.tokens, answers.ahead)
    tx.wakes.wait = planner.wait
    return [one.head.row for one in picked]


def _keep(
    tx: Transaction, picked: Sequence[Picked], tokens: Mapping[str, float], ahead: Mapping[str, float]
) -> None:
    """Write down what was taken. A claim that took nothing writes nothing, and so wakes nobody."""
    taken: Counter[str] = Counter()
    limited: list[Row] = []
    for one in picked:
        keys = [permit.key for permit in one.permits]
        if keys:
            taken.update(keys)
            limited.append((permits_row(keys), one.head.row))
    tx.run_many("permit", limited)
    tx.wakes.freed.subtract(taken)
    # One that is ahead of a clock that was set back would not be refilled until the clock has caught up.
    changed = {key: tokens[key] for key in tokens if key in taken or key in ahead}
    tx.run_many("fill_bucket", [{"key": key, "tokens": left, "now": tx.at} for key, left in changed.items()])


class _Answers:
    """The answers within one claim. What was answered once as a task to take is not answered again."""

    def __init__(self, tx: Transaction, rounds: Rounds) -> None:
        self._tx = tx
        self._rounds = rounds
        self._given: Counter[tuple[str, str, str]] = Counter()  # queue, lane, key
        self._running: Counter[str] | None = None
        self.ahead: dict[str, float] = {}  # buckets that are later than now

    def answer(self, request: Question) -> Any:
        """The answer to a request; its kind says which."""
        match request:
            case Lanes(queue, first, below, limit):
                return self._lanes(queue, first, below, limit)
            case Sizes(queue, first, below):
                return self._sizes(queue, first, below)
            case Keys(queue, after):
                return self._keys(queue, after)
            case Counts(permits):
                return self._uses(permits)
            case Heads(queue, numbers):
                return [
                    head
                    for (lane, key), number in numbers.items()
                    for head in self._heads(queue, lane, key, number)
                ]
            case LevelHeads(queue, level, number):
                return self._leveled(queue, level, number)

    # -- lanes ---------------------------------------------------------------------------------------

    def _lanes(self, queue: str, first: str, below: str, limit: int) -> list[str]:
        asked = {"queue": queue, "first": first, "below": below, "limit": limit}
        return [row[0] for row in self._tx.rows("lanes", asked)]

    def _sizes(self, queue: str, first: str, below: str) -> dict[str, int]:
        """With more lanes than are looked at in one go, the next time goes on behind them."""
        start = self._rounds.counted.get((queue, first), first)
        lanes = self._lanes(queue, start, below, LANES_AT_ONCE)
        if len(lanes) < LANES_AT_ONCE and start > first:  # Round to the beginning again.
            lanes += self._lanes(queue, first, start, LANES_AT_ONCE - len(lanes))
        if len(lanes) < LANES_AT_ONCE:
            self._rounds.counted.pop((queue, first), None)
        else:
            self._rounds.counted[queue, first] = lanes[-1]
        most = min(MAX_SIZE, COUNTED // max(len(lanes), 1))
        counted = self._tx.rows("sizes", {"queue": queue, "lanes": listed(lanes), "most": most})
        given: Counter[str] = Counter()
        for (of, lane, _), number in self._given.items():
            if of == queue:
                given[lane] += number
        return {lane: number - given[lane] for lane, number in counted if number > given[lane]}

    # -- keys ----------------------------------------------------------------------------------------

    def _keys(self, queue: str, after: Mapping[str, str]) -> list[Head]:
        """Of each lane the head of "", then those of the keys behind one, then those up to it."""
        found = {lane: self._first("heads", queue, lane, "", 1) for lane in after}
        self._add_keys(found, queue, [(lane, key, _LAST_KEY) for lane, key in after.items()])
        again = [(lane, "", key) for lane, key in after.items() if key and len(found[lane]) < KEYS_AT_ONCE]
        if again:
            self._add_keys(found, queue, again)
        return [head for heads in found.values() for head in heads[:KEYS_AT_ONCE]]

    def _add_keys(
        self, found: dict[str, list[Head]], queue: str, spans: Sequence[tuple[str, str, str]]
    ) -> None:
        """Those of keys between a first, not included, and a last one."""
        # Keys that have given all they have are left out, and must not cut the list short.
        limit = KEYS_AT_ONCE + len(self._given)
        for row in self._tx.rows("keys", {"queue": queue, "lanes": listed(spans), "limit": limit}):
            lane, key = row[0], row[1]
            if self._given[queue, lane, key]:
                found[lane] += self._first("heads", queue, lane, key, 1)
            else:
                found[lane].append(_head(queue, row))

    def _heads(self, queue: str, lane: str, key: str, number: int) -> list[Head]:
        """The first tasks of a lane and key that were not given yet, and are given now."""
        heads: list[Head] = []
        if not key and queue in self._tx.places.rearranging and self._tx.places.is_free(queue):
            # A limit that is gone has left keys behind, and nobody else asks for those.
            heads = self._first("left_heads", queue, lane, _LAST_KEY, number)
            self._given[queue, lane, _LAST_KEY] += len(heads)
        if len(heads) < number:
            more = self._first("heads", queue, lane, key, number - len(heads))
            self._given[queue, lane, key] += len(more)
            heads += more
        return heads

    def _first(self, name: str, queue: str, lane: str, key: str, number: int) -> list[Head]:
        past = self._given[queue, lane, key]
        asked = {"queue": queue, "lane": lane, "key": key, "limit": number, "past": past}
        return [_head(queue, row) for row in self._tx.rows(name, asked)]

    # -- levels --------------------------------------------------------------------------------------

    def _leveled(self, queue: str, level: Level, number: int) -> list[Head]:
        asked = {"queue": queue, "limit": number}
        found = self._tx.rows("level", {**asked, "level": _SIGNS[level]})
        if level is Level.MEDIUM:
            # Under strict order they begin at nought, behind however many of the high level.
            near = [{**asked, "window": LINE_WINDOW, "rank": rank} for rank in (_FIRST_RANK, 0)]
            found += [row for terms in near for row in self._tx.rows("middle_of_line", terms)]
        rows = {row[4]: row for row in found}
        first = sorted(rows.values(), key=lambda row: (row[2], row[3]))[:number]
        return [_head(queue, row) for row in first]

    # -- what is in use ------------------------------------------------------------------------------

    def _uses(self, permits: Sequence[Permit]) -> dict[str, PermitUsage]:
        if self._running is None:
            self._running = running(self._tx.rows("limited"))
        rated = [permit.key for permit in permits if permit.limit.rate is not None]
        buckets = self._tx.rows("buckets", {"keys": listed(rated)}) if rated else ()
        left = {key: (tokens, moment(at)) for key, tokens, at in buckets}
        self.ahead.update({key: tokens for key, tokens, at in buckets if at > self._tx.at})
        return {
            permit.key: PermitUsage(self._running[permit.key], *left.get(permit.key, (None, None)))
            for permit in permits
        }


def running(rows: Sequence[Row]) -> "Counter[str]":
    """Count the tasks that run under each permit, from the rows of limited.sql."""
    numbers: Counter[str] = Counter()
    for text, number in rows:
        for key in read_permits(text):
            numbers[key] += number
    return numbers


def _head(queue: str, row: Row) -> Head:
    lane, key, rank, task_id, rowid, type_, tenant, payload = row
    return Head(lane, key, rank, task_id, Subject(queue, type_, tenant, payload), rowid)
