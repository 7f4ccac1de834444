"""Claims from queues that have lanes, on behalf of one handle.

By what is known of the lanes they take one statement, like those from lines. Where too little comes of it, or
a limit applies, a script asks for everything; and now and then in any case, for it also puts into lanes what
lies outside.
"""

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from time import monotonic

from msgspec.structs import replace

from ...._model.lease import Claim
from ...._model.task import TaskId
from ...._model.verdict import Settlement
from ...rules.claim_planner import ClaimPlanner, ClaimRules, Rotation
from ..connection.database import Database
from ..enqueue.plain import Terms
from ..queue_layout import Layout
from ..settle import Grant, exchange, exchange_in_lanes, read_grant, together
from . import limited as laning
from .rosters import Planning, Rosters

SCRIPT_EVERY = 0.5
"""Seconds after which a script looks at what lies outside the lanes."""

REST = 0.05
"""Seconds for which a worker that has other work does not look again where limits let nothing start; unless
it gives a permit back itself."""

_MANY = 10_000
_NOTHING = Grant(done=None, alive=True, claimed=[])
_NO_TIME = datetime.min.replace(tzinfo=UTC)  # where nothing is counted by the clock


class LaneClaims:
    """What one handle knows of lanes, and whose turn it is."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._turns = Rotation(random.random)
        self._rosters = Rosters()
        self._next_script = 0.0
        self._nothing_until = 0.0
        self._counted: set[TaskId] = set()  # leased here under limits

    def nothing_for(self, batch: Sequence[Settlement]) -> float:
        """The seconds for which another look is not worth while: the last one saw that nothing may start.

        Unless what is being settled gives permits back.
        """
        if self._counted and not self._counted.isdisjoint(one.lease.task_id for one in batch):
            self._nothing_until = 0.0
        return max(self._nothing_until - monotonic(), 0.0)

    async def claim(
        self,
        database: Database,
        terms: Terms,
        batch: Sequence[Settlement],
        claim: Claim,
        queues: Sequence[str],
    ) -> Grant:
        """Complete, and claim from these queues."""
        by_rank = claim.level is not None or any(map(self._layout.is_guarded, queues))
        if by_rank or monotonic() >= self._next_script:
            settled = (
                read_grant(await database.fetch(exchange(terms, batch, None, ()))) if batch else _NOTHING
            )
            if settled.done is not None:
                return settled
            return together(settled, await self.play(database, terms, claim, queues))
        grant = await self._by_roster(database, terms, batch, claim, queues)
        room = claim.limit - len(grant.claimed)
        if grant.done is not None or not grant.alive or room <= 0:
            return grant
        self._rosters.forget()
        return together(grant, await self.play(database, terms, replace(claim, limit=room), queues))

    async def play(self, database: Database, terms: Terms, claim: Claim, queues: Sequence[str]) -> Grant:
        """Claim in a script, which asks for everything."""
        grant = await database.play(lambda: laning.claim(terms, self._turns, claim, queues))
        self._next_script = monotonic() + (0.0 if grant.is_unlaid else SCRIPT_EVERY)
        if grant.is_outdated:
            await database.know()
        if any(map(self._layout.is_guarded, queues)):
            self._note_limits(grant, claim)
        return grant

    def _note_limits(self, grant: Grant, claim: Claim) -> None:
        if len(self._counted) > _MANY:
            self._counted.clear()  # Some were settled elsewhere; a look too many is the price.
        self._counted.update(one.task.id for one in grant.claimed)
        if not grant.claimed and claim.limit > 0:
            self._nothing_until = monotonic() + REST

    async def _by_roster(
        self,
        database: Database,
        terms: Terms,
        batch: Sequence[Settlement],
        claim: Claim,
        queues: Sequence[str],
    ) -> Grant:
        """Complete and claim in one statement, by what is known of the lanes."""
        rules = ClaimRules({queue: self._layout.settings.get(queue) for queue in queues}, ())
        planning = Planning(
            self._rosters, ClaimPlanner(rules, self._turns, _NO_TIME).pick(max(claim.limit, 0))
        )
        while (asked := planning.go_on()) is not None:
            planning.learn(await database.fetch(asked))
        return read_grant(await database.fetch(exchange_in_lanes(terms, batch, claim, planning.numbers)))
