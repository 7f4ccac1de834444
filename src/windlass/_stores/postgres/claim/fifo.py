"""Claiming on behalf of one handle: where to reach, by what it knows of stripes, lanes and floors."""

from collections.abc import Sequence
from functools import partial
from time import monotonic

from msgspec.structs import replace

from ...._model.lease import Claim
from ...._model.verdict import Settlement
from ...._policy.order.share import advance, split_picks
from ..connection.database import Database
from ..enqueue.plain import Terms
from ..queue_layout import Layout
from ..settle import Grant, exchange, read_grant, together
from .arms import FLOOR, Arm
from .floors import Floors
from .lanes import LaneClaims

_LINES, _LANES = "lines", "lanes"


class Claiming:
    """The hot path of one handle, with what it has learnt."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._floors = Floors()
        self._lanes = LaneClaims(layout)
        self._passes: dict[str, float] = {}

    async def exchange(
        self, database: Database, terms: Terms, batch: Sequence[Settlement], claim: Claim | None
    ) -> Grant:
        """Complete and claim."""
        if claim is None:
            return read_grant(await database.fetch(exchange(terms, batch, None, ())))
        lines, lanes = self.divide(claim)
        if lanes:
            return await self._from_both(database, terms, batch, claim, lines, lanes)
        grant = await self._from_lines(database, terms, batch, claim, lines)
        if not grant.guarded or grant.done is not None or not grant.alive:
            return grant
        # There is a limit that we did not know of.
        await database.know()
        rest = replace(claim, limit=claim.limit - len(grant.claimed))
        return together(grant, await self._lanes.play(database, terms, rest, self.divide(claim)[1]))

    def divide(self, claim: Claim) -> tuple[list[str], list[str]]:
        """The queues of a claim that are lines, and those that have lanes; by level, all count as such."""
        queues = list(dict.fromkeys(claim.queues))
        if claim.level is not None:
            return [], queues
        lanes = [queue for queue in queues if self._layout.is_laned(queue)]
        return [queue for queue in queues if queue not in lanes] if lanes else queues, lanes

    async def _from_both(
        self,
        database: Database,
        terms: Terms,
        batch: Sequence[Settlement],
        claim: Claim,
        lines: list[str],
        lanes: list[str],
    ) -> Grant:
        """Lines or lanes first, in turn; who comes second gets what is left."""
        rest = self._lanes.nothing_for(batch) if lines and claim.level is None else 0.0
        if rest:
            grant = await self._from_lines(database, terms, batch, claim, lines)
            return replace(grant, wait=rest) if len(grant.claimed) < claim.limit else grant
        weights = {_LINES: len(lines), _LANES: len(lanes)} if lines else {_LANES: len(lanes)}
        first = max(split_picks(1, weights, self._passes).items(), key=lambda item: item[1])[0]
        ways = {
            _LINES: partial(self._from_lines, database, terms, queues=lines),
            _LANES: partial(self._lanes.claim, database, terms, queues=lanes),
        }
        grant = await ways[first](batch=batch, claim=claim)
        if grant.done is not None:
            return grant  # Not all could be completed like this; the longer way claims as well.
        taken, short = {first: len(grant.claimed)}, set[str]()
        room = claim.limit - len(grant.claimed)
        if room > 0 and grant.alive:
            short.add(first)
            for second in weights.keys() - {first}:
                more = await ways[second](batch=(), claim=replace(claim, limit=room))
                taken[second] = len(more.claimed)
                grant = together(grant, more)
                if len(more.claimed) < room:
                    short.add(second)
        self._passes = advance(weights, self._passes, taken, short)
        return grant

    # -- lines ---------------------------------------------------------------------------------------

    async def _from_lines(
        self,
        database: Database,
        terms: Terms,
        batch: Sequence[Settlement],
        claim: Claim,
        queues: Sequence[str],
    ) -> Grant:
        """Where too little came of a part of the queues, the whole is looked at."""
        striped = self._layout.is_striped(queues)
        arms = self._layout.one_each(queues) if striped else self._floored(queues)
        floored = any(arm.floor != FLOOR for arm in arms)
        started = monotonic()
        grant = read_grant(await database.fetch(exchange(terms, batch, claim, arms)))
        short = len(grant.claimed) < claim.limit
        if not (striped or floored):
            self._learn(grant, len(batch), started, floored=False, short=short)
        elif short and grant.alive:
            rest = replace(claim, limit=claim.limit - len(grant.claimed))
            whole = exchange(terms, (), rest, self.every_arm(queues))
            return together(grant, read_grant(await database.fetch(whole)))
        elif floored:
            self._learn(grant, len(batch), started, floored=True, short=False)
        return grant

    def every_arm(self, queues: Sequence[str]) -> list[Arm]:
        """All there is to reach into in these queues, which are lines."""
        return self._layout.all_of(queues)

    def _floored(self, queues: Sequence[str]) -> list[Arm]:
        floors = self._floors.of(queues, monotonic())
        return [Arm(queue, 0, floor) for queue, floor in zip(queues, floors, strict=True)]

    def _learn(self, grant: Grant, settled: int, started: float, *, floored: bool, short: bool) -> None:
        if grant.claimed and not short:
            now = monotonic()
            number = settled + len(grant.claimed)
            self._floors.learn(grant.claimed, number, now - started, floored=floored, now=now)
