"""Claim: in one script where the order of ranks decides, by the planner where lanes, limits or a level do."""

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from ...._model.lease import Claim, Claimed
from ...._model.task import TaskId
from ...._policy.order.limits import Permit, Subject
from ...._policy.order.windows import open_queues
from ....errors import StoreError
from ...rules import refusals
from ...rules.claim_planner import ClaimPlanner, ClaimRules, Picked, Plan, Rotation, earliest
from ...rules.queue_rules import QueueRules
from ..connection.link import Argument
from ..database import TRIES, Database
from ..keys import unpacked
from ..rows import Stored, instant, read_task
from ..unit_of_work import UnitOfWork
from .answers import Answers, Offers
from .relayout import RECOUNT

CLAIMED_AT_ONCE = 125
"""Tasks that one script settles, and claims, at most: about two milliseconds in which the server is busy.

A worker with 250 slots then has two round trips under way: it runs what one brought while the server is busy
with the other.
"""

_SESSION_LOST = -1
_RECOUNT_SECONDS = 0.05
MAX_KEPT = 20_000
"""Claimed tasks that a handle remembers, so that settling them needs no reading."""

MAX_KEPT_BYTES = 4_000
"""The longest payload that it remembers; for a longer one, another round trip does not matter."""


class Claimer:
    """Claims of one handle: its rotation, and the tasks that it has claimed and not settled."""

    def __init__(self, database: Database, wake_in: Callable[[float], None]) -> None:
        """`wake_in` is told after how many seconds another claim is worthwhile, if time alone decides."""
        self._database = database
        self._wake_in = wake_in
        self._rotation = Rotation(random.random)
        self._kept: dict[TaskId, Stored] = {}
        self._subjects_rules: QueueRules | None = None
        self._subjects: dict[tuple[str, str], Subject] = {}  # what limits apply to, by queue and place
        self._offers = Offers()

    def take_kept(self, ids: Sequence[TaskId]) -> dict[TaskId, Stored]:
        """Return those of these tasks that this handle has claimed, and forget them."""
        return {one: stored for one in ids if (stored := self._kept.pop(one, None)) is not None}

    # -- in order ------------------------------------------------------------------------------------

    def in_order(self, rules: QueueRules, now: datetime, claim: Claim) -> list[Argument] | None:
        """Return the arguments of a claim in the order of ranks; None if lanes, limits or a level decide."""
        queues, wait = open_queues(claim.queues, rules.settings, now)
        if claim.level is not None or not all(map(rules.is_fifo, queues)):
            return None
        if not rules.relayouts.isdisjoint(queues):
            return None
        if wait is not None:
            self._wake_in(wait)
        number, types = (-1, ()) if claim.types is None else (len(claim.types), claim.types)
        return [claim.session, claim.number, _at_once(claim), number, *types, *queues]

    def claimed(self, rows: Any) -> tuple[Claimed, ...] | None:
        """Read the rows of a script; None if the session is not alive."""
        if rows == _SESSION_LOST:
            return None
        tasks = [read_task(unpacked(member), row, *document) for member, row, *document in rows]
        if len(self._kept) + len(tasks) > MAX_KEPT:
            self._kept.clear()
        self._kept.update(
            (stored.task.id, stored) for stored in tasks if len(stored.task.payload) <= MAX_KEPT_BYTES
        )
        return tuple([Claimed(stored.task) for stored in tasks])

    def granted(self, reply: Any, claim: Claim) -> tuple[tuple[Claimed, ...] | None, bool]:
        """Read the reply of a script that claims: the tasks as `claimed`, and whether more may be ready."""
        claimed, stopped_looking = self.claimed(reply[3]), reply[4:] == [1]
        is_full = claimed is not None and CLAIMED_AT_ONCE == len(claimed) < claim.limit
        return claimed, is_full or stopped_looking

    async def claim(self, claim: Claim) -> tuple[Claimed, ...]:
        """Lease ready tasks to a live session. Raises SessionLost if it is not alive.

        If a later part fails, those of the earlier ones are returned: the next request will tell.
        """
        claimed: tuple[Claimed, ...] = ()
        while True:
            try:
                found, may_claim_more = await self._claim_part(
                    replace(claim, limit=claim.limit - len(claimed))
                )
            except StoreError:
                if not claimed:
                    raise
                return claimed
            claimed += found
            if not may_claim_more:
                return claimed

    async def _claim_part(self, claim: Claim) -> tuple[tuple[Claimed, ...], bool]:
        for attempt in range(TRIES):
            unit = await self._database.begin()
            order = self.in_order(unit.rules, unit.now, claim)
            if order is None:
                reply = await self._by_plan(unit, claim)
            else:
                reply = await self._database.commit("exchange", unit, *order)
            if reply[0]:
                claimed, may_claim_more = self.granted(reply, claim)
                if claimed is None:
                    raise refusals.session_lost(claim.session)
                return claimed, may_claim_more
            await self._database.pause(attempt)
        raise self._database.contended()

    # -- by the planner ------------------------------------------------------------------------------

    async def _by_plan(self, unit: UnitOfWork, claim: Claim) -> Any:
        rules, now = unit.rules, unit.now
        queues, wait = open_queues(claim.queues, rules.settings, now)
        if RECOUNT in rules.relayouts:  # Which running tasks hold permits of a new limit is not known yet.
            queues = [queue for queue in queues if rules.is_unlimited(queue)]
            wait = earliest(wait, _RECOUNT_SECONDS)
        planner = ClaimPlanner(_claim_rules(rules, queues), self._rotation, now)
        if rules is not self._subjects_rules:
            self._subjects_rules, self._subjects = rules, {}
        answers = Answers(self._database, rules, self._subjects, now, self._offers, claim)
        try:
            picked = await _played(planner.pick(_at_once(claim), claim.level), answers)
            taken = {permit.key for one in picked for permit in one.permits}
            ledger = planner.ledger
            changed = {key: left for key, left in ledger.tokens.items() if ledger.is_rewound or key in taken}
            unit.spend(answers.buckets, {key: f"{left!r} {instant(now)}" for key, left in changed.items()})
            reply = await self._database.commit(
                "grant", unit, claim.session, claim.number, "1" if changed else "", *_runs(picked)
            )
        finally:
            self._offers.remove(answers.offered)
        wait = earliest(planner.wait, wait)
        if wait is not None:
            self._wake_in(wait)
        if picked and reply[0] and reply[3] == []:
            return [0]  # Others have taken all of them meanwhile: look again.
        return reply


def _at_once(claim: Claim) -> int:
    return max(min(claim.limit, CLAIMED_AT_ONCE), 0)


async def _played(plan: Plan[list[Picked]], answers: Answers) -> list[Picked]:
    """Answer all questions of a plan; return what it picked."""
    try:
        question = next(plan)
        while True:
            question = plan.send(await answers.answer(question))
    except StopIteration as end:
        picked: list[Picked] = end.value
        return picked


def _claim_rules(rules: QueueRules, queues: Sequence[str]) -> ClaimRules:
    settings: Mapping[str, Any] = {queue: rules.settings.get(queue) for queue in queues}
    return ClaimRules(settings, rules.limits, frozenset(rules.relayouts))


def _runs(picked: Sequence[Picked]) -> list[Argument]:
    """Return picked tasks as a script takes them: runs of tasks in one place that need the same permits."""
    runs: list[Argument] = []
    number = 0
    for (queue, place, permits), run in groupby(picked, key=_where):
        members = [one.head.row[1] for one in run]
        number += 1
        runs += (queue, place, len(permits), len(members))
        for permit in permits:
            runs += (permit.key, "" if permit.limit.running is None else permit.limit.running)
        runs += members
    return [number, *runs]


def _where(one: Picked) -> tuple[str, str, tuple[Permit, ...]]:
    return one.head.subject.queue, one.head.row[0], one.permits
