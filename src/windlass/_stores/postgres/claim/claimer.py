"""Split a claim between FIFO queues and queues with lanes, and settle along with it."""

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from ...._model.lease import Claim
from ...._model.verdict import Settlement
from ...._policy.order.share import advance, split_picks
from ..database import Database
from ..settle import Grant, merged, read_grant, settle_and_claim
from .fifo import FifoClaims
from .lanes import LaneClaims

_FIFO, _LANES = "fifo", "lanes"


class Claimer:
    """The claims of one store, with what they have learnt about its queues."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._fifo = FifoClaims(database)
        self._lanes = LaneClaims(database)
        self._passes: dict[str, float] = {}

    async def settle_and_claim(self, batch: Sequence[Settlement], claim: Claim | None) -> Grant:
        """Complete these tasks and, if that was possible for all of them, claim."""
        if claim is None:
            database = self._database
            return read_grant(await database.fetch(settle_and_claim(database.env, batch, None, ())))
        fifo, laned = self.divide(claim)
        if laned:
            return await self._from_both(batch, claim, fifo, laned)
        grant = await self._fifo.claim(batch, claim, fifo)
        if not grant.guarded or grant.done is not None or not grant.alive:
            return grant
        # There is a limit that this store had not read yet.
        await self._database.refresh_layout()
        rest = replace(claim, limit=claim.limit - len(grant.claimed))
        return merged(grant, await self._lanes.claim_counted(rest, self.divide(claim)[1]))

    def divide(self, claim: Claim) -> tuple[list[str], list[str]]:
        """Return a claim's FIFO queues and its queues with lanes; a claim by level treats all as laned."""
        queues = list(dict.fromkeys(claim.queues))
        if claim.level is not None:
            return [], queues
        has_lanes = self._database.layout.has_lanes
        laned = [queue for queue in queues if has_lanes(queue)]
        return [queue for queue in queues if not has_lanes(queue)] if laned else queues, laned

    async def _from_both(
        self, batch: Sequence[Settlement], claim: Claim, fifo: list[str], laned: list[str]
    ) -> Grant:
        """Claim from both kinds of queue, each first in turn; the second gets the rest of the limit."""
        wait = self._lanes.seconds_blocked(batch) if fifo and claim.level is None else 0.0
        if wait:
            grant = await self._fifo.claim(batch, claim, fifo)
            return replace(grant, wait=wait) if len(grant.claimed) < claim.limit else grant
        weights = {_FIFO: len(fifo), _LANES: len(laned)} if fifo else {_LANES: len(laned)}
        first = max(split_picks(1, weights, self._passes).items(), key=lambda item: item[1])[0]
        claims = {
            _FIFO: partial(self._fifo.claim, queues=fifo),
            _LANES: partial(self._lanes.claim, queues=laned),
        }
        grant = await claims[first](batch=batch, claim=claim)
        if grant.done is not None:
            return grant  # Some tasks need a transaction to settle, which claims as well.
        taken, short = {first: len(grant.claimed)}, set[str]()
        room = claim.limit - len(grant.claimed)
        if room > 0 and grant.alive:
            short.add(first)
            for second in weights.keys() - {first}:
                more = await claims[second](batch=(), claim=replace(claim, limit=room))
                taken[second] = len(more.claimed)
                grant = merged(grant, more)
                if len(more.claimed) < room:
                    short.add(second)
        self._passes = advance(weights, self._passes, taken, short)
        return grant
