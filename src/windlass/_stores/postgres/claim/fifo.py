"""Claims from FIFO queues: ready tasks in order of rank, stripe by stripe.

A claim reads the index from the lowest rank on, where the entries of tasks claimed before are. Vacuum removes
them, unless a long-running transaction holds it up; then each claim skips over all of them and gets slower
and slower. A claim that starts at the rank where the last one started does not, but it would miss more urgent
tasks. So that is done only while it is faster, and from time to time the whole queue is read.
"""

from collections.abc import Sequence
from time import monotonic

from msgspec.structs import replace

from ...._model.lease import Claim, Claimed
from ...._model.task import TaskId
from ...._model.verdict import Settlement
from ..database import Database
from ..queue_layout import START, Stripe
from ..settle import Grant, merged, read_grant, settle_and_claim

_GROWTH = 4  # of the number of tasks that others may have locked, from one attempt to the next
_MOST_LOCKED = 100_000

SLOWDOWN = 3.0
"""How many times slower than at best claims must be before a start position is tried."""

_GAIN = 0.6  # A start position must bring the time down to this fraction.
_SMOOTHING = 0.2
_MIN_TASKS = 50  # of a claim whose time is taken into account
_RETRY_SECONDS = 5.0  # before the next trial, if a start position did not help
_FULL_READ_SHARE = 10.0  # Reads of the whole queue take up one part in this many of the time.
_MIN_INTERVAL, _MAX_INTERVAL = 0.05, 1.0  # seconds between them


class FifoClaims:
    """The claims of one store from queues without lanes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._starts = StartPositions()

    async def claim(self, batch: Sequence[Settlement], claim: Claim, queues: Sequence[str]) -> Grant:
        """Complete and claim; if a part of the queues yields too little, read the whole of them."""
        env, layout = self._database.env, self._database.layout
        striped = layout.is_striped(queues)
        stripes = layout.random_stripes(queues) if striped else self._from_starts(queues)
        started = any(stripe.start != START for stripe in stripes)
        began = monotonic()
        grant = read_grant(await self._database.fetch(settle_and_claim(env, batch, claim, stripes)))
        room = claim.limit - len(grant.claimed)
        if room > 0 and grant.alive and (striped or started or grant.missed):
            return await self._claim_rest(grant, claim, queues)
        if room <= 0 and grant.claimed and not striped:
            now = monotonic()
            number = len(batch) + len(grant.claimed)
            self._starts.learn(grant.claimed, number, now - began, started=started, now=now)
        return grant

    async def _claim_rest(self, grant: Grant, claim: Claim, queues: Sequence[str]) -> Grant:
        """Claim what is missing from the whole queues, past tasks that other claims under way have locked."""
        env, locked = self._database.env, 0
        stripes = self._database.layout.all_stripes(queues)
        while (room := claim.limit - len(grant.claimed)) > 0 and grant.alive:
            if grant.missed:
                locked = (locked + claim.limit) * _GROWTH
            query = settle_and_claim(env, (), replace(claim, limit=room), stripes, locked)
            grant = merged(grant, read_grant(await self._database.fetch(query)))
            if not grant.missed or locked > _MOST_LOCKED:
                break
        return grant

    def _from_starts(self, queues: Sequence[str]) -> list[Stripe]:
        starts = self._starts.of(queues, monotonic())
        return [Stripe(queue, 0, start) for queue, start in zip(queues, starts, strict=True)]


class StartPositions:
    """The rank and id at which the next claim from each queue starts."""

    def __init__(self) -> None:
        self._lowest: dict[str, tuple[int, TaskId]] = {}  # of the last claim, by queue
        self._best: float | None = None  # seconds a task
        self._whole = 0.0  # the same, lately, reading from the start of the queue
        self._active = False
        self._trial = False
        self._next_whole = 0.0
        self._next_trial = 0.0

    def of(self, queues: Sequence[str], now: float) -> list[tuple[int, TaskId]]:
        """Return the rank and id to start at in each of these queues."""
        started = self._trial or (self._active and now < self._next_whole)
        return [self._lowest.get(queue, START) if started else START for queue in queues]

    def learn(
        self, claimed: Sequence[Claimed], number: int, seconds: float, *, started: bool, now: float
    ) -> None:
        """Take into account a claim that got all it asked for: how many tasks it was about, and its time."""
        for one in reversed(claimed):
            self._lowest[one.task.queue] = (one.task.rank, one.task.id)
        if number < _MIN_TASKS:
            return
        pace = seconds / number
        if started:
            self._learn_started(pace, now)
        else:
            self._learn_whole(pace, seconds, now)

    def _learn_whole(self, pace: float, seconds: float, now: float) -> None:
        self._whole = pace if not self._whole else self._whole + (pace - self._whole) * _SMOOTHING
        self._best = self._whole if self._best is None else min(self._best * 1.001, self._whole)
        if self._active:
            self._next_whole = now + min(max(seconds * _FULL_READ_SHARE, _MIN_INTERVAL), _MAX_INTERVAL)
            self._active = pace > self._best / _GAIN
        elif self._whole > self._best * SLOWDOWN and now >= self._next_trial:
            self._trial = True

    def _learn_started(self, pace: float, now: float) -> None:
        if not self._trial:
            return
        self._trial = False
        self._active = pace < self._whole * _GAIN
        self._next_whole = now + _MIN_INTERVAL
        if not self._active:
            self._next_trial = now + _RETRY_SECONDS
