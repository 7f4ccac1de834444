"""Claim, settle, mark and renew over shards: what workers use."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from time import monotonic

from msgspec.structs import replace

from ..._model.lease import Claim, Claimed, Heartbeat, HeartbeatReply, Lease
from ..._model.task import TaskId
from ..._model.verdict import Receipt, Settled, Settlement
from ..._store.protocol import Wake
from ...errors import SessionLost, StoreError, StoreUnavailable
from .connection.handle import OnShards, ShardHandles
from .connection.shard import ANSWER_WITHIN, Shard
from .routes import places

_LISTEN_AGAIN_AFTER = 1.0
_LOOK_FOR_SHARDS_EVERY = 2.0


class ShardWork(OnShards):
    """The verbs of workers over all shards."""

    def __init__(self, shards: ShardHandles) -> None:
        super().__init__(shards)
        self._turn = 0

    # -- claim ---------------------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Sequence[Claimed]:
        """Claim from one shard after another, each time beginning with another one, for what is left."""
        await self._shards.ready()
        return await self._claim_in_turn(self._claims(claim), claim.limit)

    def _claims(self, claim: Claim) -> list[tuple[str, Claim]]:
        """Return the shards that may have tasks of these queues, each with the claim for it."""
        queues: dict[str, list[str]] = {}
        for queue in claim.queues:
            for name in places(self._shards.map, queue):
                queues.setdefault(name, []).append(queue)
        if not queues:
            return [(self._shards.map.home, claim)]
        claims = [(name, replace(claim, queues=tuple(some))) for name, some in queues.items()]
        self._turn += 1
        first = self._turn % len(claims)
        return claims[first:] + claims[:first]

    async def _claim_in_turn(self, claims: Sequence[tuple[str, Claim]], limit: int) -> list[Claimed]:
        """Claim up to `limit` tasks; raise only if no shard gave an answer."""
        claimed: list[Claimed] = []
        problem: Exception | None = None
        answered = False
        for name, claim in claims:
            if len(claimed) >= limit:
                break
            try:
                shard = self._shards[name]
                asked = replace(claim, limit=limit - len(claimed))
                claimed += self._claimed(name, await shard.call_within(shard.store.claim, asked))
                answered = True
            except (StoreError, SessionLost) as error:  # the next heartbeat opens the session there
                problem = problem if isinstance(problem, SessionLost) else error
        if problem is not None and not answered:
            raise problem
        return claimed

    def _claimed(self, name: str, claimed: Sequence[Claimed]) -> Sequence[Claimed]:
        if claimed:
            self._shards.places.add([one.task.id for one in claimed], name)
        return claimed

    # -- settle --------------------------------------------------------------------------------------

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        """Settle on the shards of the tasks, all at once, and claim with the one whose turn it is.

        Without a claim, a shard that does not answer fails the whole; with one, its tasks are UNKNOWN.
        """
        await self._shards.ready()
        parts = await self._split(batch, may_be_unknown=claim is not None)
        claims = [] if claim is None else self._claims(claim)
        first = claims[:1]
        names = [name for name in parts if name is not None] + [name for name, _ in first]

        async def call(shard: Shard) -> Settled:
            part = [batch[number] for number in parts.get(shard.name, ())]
            wanted = next((one for name, one in first if name == shard.name), None)
            return await shard.call_within(shard.store.settle, part, wanted)

        answers, errors = await self._shards.each(names, call)
        for error in errors.values():
            if not isinstance(error, StoreUnavailable) or not (answers or claims[1:]) or claim is None:
                raise error
        receipts = [Receipt.UNKNOWN] * len(batch)
        claimed: list[Claimed] = []
        for name, settled in answers.items():
            for number, receipt in zip(parts.get(name, ()), settled.receipts, strict=True):
                receipts[number] = receipt
            claimed += self._claimed(name, settled.claimed)
        if claim is not None and len(claimed) < claim.limit and claims[1:]:
            # What was settled is done, so a claim that fails is not an error: it is repeated anyway.
            with suppress(SessionLost, *([StoreError] if answers else [])):
                claimed += await self._claim_in_turn(claims[1:], claim.limit - len(claimed))
        return Settled(
            receipts=tuple(receipts),
            claimed=tuple(claimed),
            transitions=tuple(one for settled in answers.values() for one in settled.transitions),
            may_claim_more=any(settled.may_claim_more for settled in answers.values()),
        )

    async def _split(
        self, batch: Sequence[Settlement], *, may_be_unknown: bool
    ) -> dict[str | None, list[int]]:
        """Return the numbers of the settlements by shard; None: a shard that may have it did not answer."""
        found = await self._shards.locate([one.lease.task_id for one in batch])
        parts: dict[str | None, list[int]] = {}
        for number, one in enumerate(batch):  # a task that no shard has is lost: any shard says so
            parts.setdefault(found.get(one.lease.task_id, self._shards.map.home), []).append(number)
        if None in parts and not may_be_unknown:
            raise StoreUnavailable("a shard that may have some of the tasks did not answer; settle again")
        return parts

    async def once(self, lease: Lease, key: str) -> bool:
        """Mark a key on the shard of the task."""
        shard = await self._shard_of(lease.task_id)
        return await shard.call(shard.store.once, lease, key)

    async def _shard_of(self, task_id: TaskId) -> Shard:
        await self._shards.ready()
        found = (await self._shards.locate([task_id])).get(task_id, self._shards.map.home)
        if found is None:
            raise StoreUnavailable(f"a shard that may have task {task_id} did not answer; retry")
        return self._shards[found]

    # -- sessions ------------------------------------------------------------------------------------

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Renew the session on every shard, and open it on those that do not have it, if some have it.

        A shard that does not answer must not keep it from being renewed on the others in time.
        """
        await self._shards.known()
        began = monotonic()
        seconds = min(ANSWER_WITHIN, beat.lease_for.total_seconds() / 4)
        known = {lease.task_id: self._shards.places.get(lease.task_id) for lease in beat.held}

        async def send(shard: Shard, *, opening: bool = beat.opening) -> HeartbeatReply:
            part = replace(
                beat,
                opening=opening,
                held=tuple(one for one in beat.held if known[one.task_id] in (None, shard.name)),
                progress=tuple(
                    one for one in beat.progress if known.get(one.lease.task_id) in (None, shard.name)
                ),
            )
            return await shard.call_for(seconds, shard.store.heartbeat, part)

        replies = await self._shards.some(self._shards.names, send)
        missing = [name for name, reply in replies.items() if not reply.alive]
        if len(missing) == len(replies):
            return HeartbeatReply(alive=False)
        if missing:  # a shard that was added or was out of reach
            replies |= (await self._shards.each(missing, lambda shard: send(shard, opening=True)))[0]
        self._shards.renewals.note(beat.session, replies, began)
        silent = self._shards.renewals.silent(beat.session, beat.lease_for)

        def is_lost(lease: Lease) -> bool:
            place = known[lease.task_id]
            if place is None:
                return len(replies) == len(self._shards.names) and all(
                    lease in reply.lost for reply in replies.values()
                )
            return lease in replies[place].lost if place in replies else place in silent

        return HeartbeatReply(
            alive=True,
            lost=tuple(filter(is_lost, beat.held)),
            cancel=tuple(one for reply in replies.values() for one in reply.cancel),
            transitions=tuple(one for reply in replies.values() for one in reply.transitions),
            workers=max(reply.workers for reply in replies.values()),
        )

    # -- wakes ---------------------------------------------------------------------------------------

    async def wakes(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        """Yield the hints of every shard that may have tasks of these queues; of all shards if none is given.

        A shard whose connection broke is listened to again, with a hint of each kind: one may be missed.
        """
        hints: asyncio.Queue[Wake] = asyncio.Queue()
        listeners: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                shard_map = await self._shards.ready()
                needed = {name for queue in queues for name in places(shard_map, queue)}
                needed = needed if queues else set(self._shards.names)
                for name in listeners.keys() - needed:
                    listeners.pop(name).cancel()
                for name in needed - listeners.keys():
                    listeners[name] = asyncio.create_task(self._listen(name, queues, hints))
                try:  # not by wait_for, which in Python 3.11 loses a cancellation that coincides with a hint
                    async with asyncio.timeout(_LOOK_FOR_SHARDS_EVERY):
                        wake = await hints.get()
                except TimeoutError:
                    continue
                yield wake
        finally:
            for listener in listeners.values():
                listener.cancel()
            if listeners:
                await asyncio.wait(listeners.values())

    async def _listen(self, name: str, queues: Sequence[str], hints: "asyncio.Queue[Wake]") -> None:
        missed: Sequence[Wake] = ()
        while True:
            with suppress(StoreError):  # The shard's outage is logged by those who call it.
                shard = self._shards[name]
                await shard.check()
                await shard.open_within()
                for wake in missed:
                    hints.put_nowait(wake)
                async for wake in shard.store.wakes(queues):
                    hints.put_nowait(wake)
            missed = tuple(Wake)
            await asyncio.sleep(_LISTEN_AGAIN_AFTER)
