"""Claiming on behalf of one handle: where to reach, by what it knows of stripes and floors."""

from collections.abc import Awaitable, Callable, Sequence
from time import monotonic

from msgspec.structs import replace

from ..._model.lease import Claim, Claimed
from ..._model.verdict import Settlement
from .arms import FLOOR, Arm
from .enqueueing import Terms
from .floors import Floors
from .leases import Grant, exchange, read_grant
from .scripts import Ask, Row
from .striping import Striping

Fetch = Callable[[Ask], Awaitable[Sequence[Row]]]


class Claiming:
    """The hot path of one handle, with what it has learnt."""

    def __init__(self, striping: Striping) -> None:
        self._striping = striping
        self._floors = Floors()

    async def exchange(
        self, fetch: Fetch, terms: Terms, batch: Sequence[Settlement], claim: Claim | None
    ) -> Grant:
        """Complete and claim. Where too little came of a part of the queues, the whole is looked at."""
        if claim is None:
            return read_grant(await fetch(exchange(terms, batch, None, ())))
        queues = list(dict.fromkeys(claim.queues))
        striped = self._striping.is_striped(queues)
        arms = self._striping.one_each(queues) if striped else self._floored(queues)
        floored = any(arm.floor != FLOOR for arm in arms)
        started = monotonic()
        grant = read_grant(await fetch(exchange(terms, batch, claim, arms)))
        short = len(grant.claimed) < claim.limit
        if not (striped or floored):
            self._learn(grant, len(batch), started, floored=False, short=short)
        elif short and grant.alive:
            return await self._look_at_all(fetch, terms, claim, grant)
        elif floored:
            self._learn(grant, len(batch), started, floored=True, short=False)
        return grant

    async def _look_at_all(self, fetch: Fetch, terms: Terms, claim: Claim, grant: Grant) -> Grant:
        rest = replace(claim, limit=claim.limit - len(grant.claimed))
        more = read_grant(await fetch(exchange(terms, (), rest, self.every_arm(claim))))
        claimed = sorted([*grant.claimed, *more.claimed], key=_place)
        return Grant(done=grant.done, alive=more.alive, claimed=claimed)

    def every_arm(self, claim: Claim | None) -> list[Arm]:
        """All there is to reach into."""
        return [] if claim is None else self._striping.all_of(list(dict.fromkeys(claim.queues)))

    def _floored(self, queues: Sequence[str]) -> list[Arm]:
        floors = self._floors.of(queues, monotonic())
        return [Arm(queue, 0, floor) for queue, floor in zip(queues, floors, strict=True)]

    def _learn(self, grant: Grant, settled: int, started: float, *, floored: bool, short: bool) -> None:
        if grant.claimed and not short:
            now = monotonic()
            number = settled + len(grant.claimed)
            self._floors.learn(grant.claimed, number, now - started, floored=floored, now=now)


def _place(claimed: Claimed) -> tuple[int, str]:
    return claimed.task.rank, claimed.task.id
