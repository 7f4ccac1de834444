"""Claims where queues have lanes or limits: the claim planner, answered by Postgres in one transaction.

The keys of limits are locked before anything is counted, and each statement sees what was committed before
it: so a count is exact, and what was counted stands until the claim does.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from ...._model.lease import Claim, Claimed
from ...._model.queue import Level, QueueSettings
from ...._model.task import TaskId
from ...._policy.order.limits import PermitUsage, Subject, needs_lock
from ...rules.claim_planner import (
    KEYS_AT_ONCE,
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
    Plan,
    Question,
    Rotation,
    Sizes,
)
from ..enqueue.plain import Terms
from ..queue_layout import read_limit, read_settings
from ..rows import Row, columns_of, read_leased
from ..script import Ask, Script, ask, pairs
from ..settle import Grant
from ..statements import statement
from .relayout import lay_some

PRIORITIES = {
    Level.HIGH: "t.priority > 0",
    Level.LOW: "t.priority < 0",
}


class Known(Struct, frozen=True):
    """What a claim goes by, as it stands now."""

    now: datetime
    worker: str | None
    rules: ClaimRules
    lines: list[str]  # queues that have no lanes
    outside: list[str]  # queues that have, with ready tasks that lie outside them


def claim(terms: Terms, turns: Rotation, wish: Claim, queues: Sequence[str]) -> Script[Grant]:
    """Lease tasks of these queues to a live session."""
    known = read_known((yield from ask("claim_begin", terms.clock, wish.session, list(queues))))
    if known.worker is None:
        return Grant(done=None, alive=False, claimed=[])
    unfinished = (yield from lay_some(known.rules, known.outside)) if known.outside else False
    planner = ClaimPlanner(known.rules, turns, known.now)
    planner.unfinished = unfinished
    answering = Answering(terms, known.now)
    picked = yield from answering.answer(planner.pick(max(wish.limit, 0), wish.level))
    is_outdated = wish.level is None and bool(known.lines)
    claimed = (
        (yield from _lease(known, wish, picked, planner, answering.locked))
        if picked or planner.is_rewound
        else []
    )
    wait = 0.0 if is_outdated else planner.wait
    return Grant(
        done=None, alive=True, claimed=claimed, wait=wait, is_unlaid=unfinished, is_outdated=is_outdated
    )


def read_known(rows: Sequence[Row]) -> Known:
    """What claim_begin.sql's rows say."""
    now, worker = rows[0][:2]
    queues: dict[str, QueueSettings | None] = {}
    limits, lines, outside, unsettled = [], [], [], set()
    for _, _, queue, paused, body, is_laned, is_unsettled, is_outside in rows[1:]:
        if queue is None:
            limits.append(read_limit(body))
        elif not paused:
            queues[queue] = None if body is None else read_settings(body)
            if is_unsettled:
                unsettled.add(queue)
            if not is_laned:
                lines.append(queue)
            elif is_outside:
                outside.append(queue)
    return Known(now, worker, ClaimRules(queues, limits, frozenset(unsettled)), lines, outside)


def _lease(
    known: Known, wish: Claim, picked: Sequence[Picked], planner: ClaimPlanner, locked: set[str]
) -> Script[list[Claimed]]:
    permits = sorted((permit.key, one.head.id) for one in picked for permit in one.permits)
    tokens = sorted((key, left) for key, left in planner.tokens.items() if key in locked)
    rows = yield from ask(
        "lease",
        planner.now,
        wish.session,
        wish.number,
        known.worker,
        [one.head.id for one in picked],
        [bool(one.permits) for one in picked],
        *columns_of(permits, 2),
        *columns_of(tokens, 2),
    )
    assert len(rows) == len(picked), f"{len(rows)} of {len(picked)} tasks that were locked were leased"
    place = {one.head.id: number for number, one in enumerate(picked)}
    return [Claimed(task) for task in sorted(map(read_leased, rows), key=lambda task: place[task.id])]


class Answering:
    """Asks the database what the claim planner wants to know."""

    def __init__(self, terms: Terms, now: datetime) -> None:
        self._schema = terms.schema
        self._clock = terms.clock
        self._now = now
        self._seen: list[TaskId] = []
        self.locked: set[str] = set()  # permits' keys

    def answer(self, picks: Plan[list[Picked]]) -> Script[list[Picked]]:
        """Play the claim planner to its end."""
        try:
            request = next(picks)
            while True:
                request = picks.send((yield from self._one(request)))
        except StopIteration as end:
            result: list[Picked] = end.value
            return result

    def _one(self, request: Question) -> Script[Any]:
        match request:
            case Lanes(queue, first, below, limit):
                return [row[0] for row in (yield from ask("lanes", queue, first, below, limit, 0))]
            case Sizes(queue, first, below):
                return (yield from pairs("lanes", queue, first, below, None, MAX_SIZE))
            case Keys(queue, after):
                lanes, behind = list(after), list(after.values())
                rows = yield from ask("lane_keys", queue, lanes, behind, KEYS_AT_ONCE, self._seen)
                return [_head(queue, row) for row in rows]
            case Counts():
                return (yield from self._counts(request))
            case Heads(queue, numbers):
                columns = columns_of([(lane, key, number) for (lane, key), number in numbers.items()], 3)
                return self._noted(queue, (yield from ask("lane_heads", queue, *columns, self._seen)))
            case LevelHeads(queue, Level.MEDIUM, number):
                return self._noted(queue, (yield from ask("middle_heads", queue, number, self._seen)))
            case LevelHeads(queue, level, number):
                sql = statement("level_heads", self._schema, level=PRIORITIES[level])
                rows = yield Ask(f"level_heads {level}", (queue, number, self._seen), sql)
                return self._noted(queue, rows)

    def _counts(self, request: Counts) -> Script[dict[str, PermitUsage]]:
        """Lock and count. Keys that have nothing left need no lock: nothing will be granted of them."""
        seen = yield from ask("peek", [permit.key for permit in request.permits], self._clock)
        uses = {key: PermitUsage(running, tokens, at, now) for key, running, tokens, at, now in seen}
        keys = [permit.key for permit in request.permits if needs_lock(permit, uses[permit.key])]
        locked = yield from self._locked(keys, wait=request.wait)
        return {key: use for key, use in uses.items() if key not in keys} | locked

    def _locked(self, keys: list[str], *, wait: bool) -> Script[dict[str, PermitUsage]]:
        if not keys:
            return {}
        name = "bucket_lock" if wait else "bucket_try"
        rows = yield from ask(name, keys)
        if len(rows) < len(keys):
            yield from ask("bucket_make", keys, self._now)
            rows = yield from ask(name, keys)
        self.locked.update(row[0] for row in rows)
        held = yield from ask("permits", [row[0] for row in rows], self._clock)
        running = {key: (number, now) for key, number, now in held}
        return {key: PermitUsage(running[key][0], tokens, at, running[key][1]) for key, tokens, at in rows}

    def _noted(self, queue: str, rows: Sequence[Row]) -> list[Head]:
        """A lock of our own does not keep us from finding a task again."""
        self._seen += [row[3] for row in rows]
        return [_head(queue, row) for row in rows]


def _head(queue: str, row: Row) -> Head:
    lane, key, rank, task_id, type_, tenant, payload = row
    return Head(lane, key, rank, task_id, Subject(queue, type_, tenant, payload))
