"""Claim from queues with lanes or limits in one transaction, which answers the claim planner's requests.

The keys of limits are locked before permits are counted, and each statement sees what was committed before
it. So counts are exact and stay so until the claim commits.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from ...._model.lease import Claim, Claimed
from ...._model.queue import Level, QueueSettings
from ...._model.task import TaskId
from ...._policy.order.limits import PermitUsage, Subject, needs_lock
from ...records import readable
from ...rules import claim_planner as plan
from ...rules.claim_planner import ClaimPlanner, ClaimRules, Head, Picked
from ..queue_layout import Environment, read_limit, read_settings
from ..rows import Row, columns_of, read_leased
from ..script import Query, Script, answered, fetch, pairs, value
from ..settle import Grant
from ..statements import of_types, statement
from .relayout import place_in_lanes

IN_LANE = "AND t.queue = $1 AND t.lane = g.lane"
PRIORITIES = {Level.HIGH: "t.priority > 0", Level.LOW: "t.priority < 0"}


class ClaimState(Struct, frozen=True):
    """What a claim depends on, as claim_begin.sql reads it."""

    now: datetime
    worker: str | None
    rules: ClaimRules
    fifo: list[str]  # queues without lanes
    misplaced: list[str]  # queues with lanes and with ready tasks outside of them


def claim(env: Environment, turns: plan.Rotation, claim: Claim, queues: Sequence[str]) -> Script[Grant]:
    """Lease tasks of these queues to a live session."""
    state = read_state((yield from fetch("claim_begin", env.clock, claim.session, list(queues))))
    if state.worker is None:
        return Grant(done=None, alive=False, claimed=[])
    unfinished = (yield from place_in_lanes(state.rules, state.misplaced)) if state.misplaced else False
    planner = ClaimPlanner(state.rules, turns, state.now)
    planner.unfinished = unfinished
    requests = Requests(env, state.now, claim.types)
    picked = yield from answered(planner.pick(max(claim.limit, 0), claim.level), requests.answer)
    is_outdated = claim.level is None and bool(state.fifo)
    claimed: list[Claimed] = []
    if picked or planner.ledger.is_rewound:
        claimed = yield from _lease(state, claim, picked, planner, requests.locked)
    wait = 0.0 if is_outdated else planner.wait
    return Grant(
        done=None, alive=True, claimed=claimed, wait=wait, has_misplaced=unfinished, is_outdated=is_outdated
    )


def read_state(rows: Sequence[Row]) -> ClaimState:
    """Read the rows of claim_begin.sql."""
    now, worker = rows[0][:2]
    queues: dict[str, QueueSettings | None] = {}
    limits, fifo, misplaced, moving = [], [], [], set()
    for _, _, queue, paused, body, has_lanes, is_moving, has_misplaced in rows[1:]:
        if queue is None:
            limits += readable(read_limit, [body])
        elif not paused:
            queues[queue] = None if body is None else read_settings(body)
            if is_moving:
                moving.add(queue)
            if not has_lanes:
                fifo.append(queue)
            elif has_misplaced:
                misplaced.append(queue)
    return ClaimState(now, worker, ClaimRules(queues, limits, frozenset(moving)), fifo, misplaced)


def _lease(
    state: ClaimState, claim: Claim, picked: Sequence[Picked], planner: ClaimPlanner, locked: set[str]
) -> Script[list[Claimed]]:
    permits = sorted((permit.key, one.head.id) for one in picked for permit in one.permits)
    tokens = sorted((key, left) for key, left in planner.ledger.tokens.items() if key in locked)
    leased = columns_of([(one.head.id, bool(one.permits)) for one in picked], 2)
    columns = (*leased, *columns_of(permits, 2), *columns_of(tokens, 2))
    session = (claim.session, claim.number, state.worker)
    rows = yield from fetch("lease", planner.ledger.now, *session, *columns)
    assert len(rows) == len(picked), f"only {len(rows)} of {len(picked)} locked tasks could be leased"
    order = {one.head.id: number for number, one in enumerate(picked)}
    return [Claimed(task) for task in sorted(map(read_leased, rows), key=lambda task: order[task.id])]


class Requests:
    """Answers the claim planner's requests from the database."""

    def __init__(self, env: Environment, now: datetime, types: Sequence[str] | None) -> None:
        """`types`: only tasks of these are offered (None: of all)."""
        self._types = () if types is None else (types,)
        self._schema = env.schema
        self._clock = env.clock
        self._now = now
        self._seen: list[TaskId] = []
        self.locked: set[str] = set()  # permits' keys

    def answer(self, request: plan.Question) -> Script[Any]:
        match request:
            case plan.Lanes(queue, first, below, limit):
                return [row[0] for row in (yield from fetch("lanes", queue, first, below, limit, 0))]
            case plan.Sizes(queue, first, below):
                return (yield from pairs("lanes", queue, first, below, None, plan.MAX_SIZE))
            case plan.Keys(queue, after):
                lanes, behind = list(after), list(after.values())
                limits = (plan.KEYS_AT_ONCE, self._seen, self._now)
                in_lane = IN_LANE if self._types else ""
                rows = yield self._offerable("lane_keys", queue, lanes, behind, *limits, in_lane=in_lane)
                return [_head(queue, row) for row in rows]
            case plan.Counts():
                return (yield from self._counts(request))
            case plan.Heads(queue, numbers):
                columns = columns_of([(lane, key, number) for (lane, key), number in numbers.items()], 3)
                rows = yield self._offerable("lane_heads", queue, *columns, self._seen, self._now)
                return self._note(queue, rows)
            case plan.LevelHeads(queue, Level.MEDIUM, number):
                rows = yield self._offerable("medium_heads", queue, number, self._seen, self._now)
                return self._note(queue, rows)
            case plan.LevelHeads(queue, level, number):
                which = PRIORITIES[level]
                rows = yield self._offerable("level_heads", queue, number, self._seen, self._now, level=which)
                return self._note(queue, rows)

    def _offerable(self, name: str, *parameters: Any, **slots: str) -> Query:
        """Return a statement that finds tasks, of the types of this claim only."""
        number = len(parameters) + 1 if self._types else None
        sql = statement(name, self._schema, of_types=of_types(number), **slots)
        return Query(name, (*parameters, *self._types), sql)

    def _counts(self, request: plan.Counts) -> Script[dict[str, PermitUsage]]:
        """Lock and count permits. Keys without any left need no lock, as none will be granted."""
        seen = yield from fetch("permit_usage", [permit.key for permit in request.permits], self._clock)
        uses = {key: PermitUsage(running, tokens, at, now) for key, running, tokens, at, now in seen}
        keys = [permit.key for permit in request.permits if needs_lock(permit, uses[permit.key])]
        new = [key for key in keys if uses[key].at is None]
        locked = (yield from self._lock(keys, new, "" if request.wait else "try_")) if keys else {}
        return {key: use for key, use in uses.items() if key not in keys} | locked

    def _lock(self, keys: list[str], new: list[str], how: str) -> Script[dict[str, PermitUsage]]:
        """Lock and count the buckets of these keys, those that are new included."""
        if new and (yield from value(f"{how}lock_new_buckets")):
            yield from fetch("insert_buckets", new, self._now)
        rows = yield from fetch(f"{how}lock_buckets", keys)
        self.locked.update(row[0] for row in rows)
        held = yield from fetch("count_permits", [row[0] for row in rows], self._clock)
        running = {key: (number, now) for key, number, now in held}
        return {key: PermitUsage(running[key][0], tokens, at, running[key][1]) for key, tokens, at in rows}

    def _note(self, queue: str, rows: Sequence[Row]) -> list[Head]:
        """Remember what was read: SKIP LOCKED does not skip rows that this transaction has locked itself."""
        self._seen += [row[3] for row in rows]
        return [_head(queue, row) for row in rows]


def _head(queue: str, row: Row) -> Head:
    lane, key, rank, task_id, type_, tenant, payload = row
    return Head(lane, key, rank, task_id, Subject(queue, type_, tenant, payload))
