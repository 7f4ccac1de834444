"""Lead, promote, rescue, prune and check on every shard: what the keeper and installers use."""

from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from ..._model.filter import By
from ..._model.lease import Claimed
from ..._model.queue import Retention
from ..._model.state import State
from ..._model.transition import Pruned, TaskTransition, pruned_counts
from ..._store.protocol import Capability, Finding, Migration, Promoted
from ...errors import NotSupported, SessionLost, StoreError
from .connection.handle import OnShards
from .connection.shard import Shard
from .records import ShardRecords
from .status import clock_findings, finding_of, read_status

T = TypeVar("T")


class ShardUpkeep(ShardRecords, OnShards):
    """The verbs of the keeper and of installers over all shards."""

    async def lead(self, holder: str, lease_for: timedelta) -> bool:
        """Lead all shards or none: the first shard that answers decides, the home shard if it can.

        While the home shard is out of reach of some processes only, two keepers may lead; chores may be done
        twice. The lead is given up on every shard.
        """
        await self._shards.ready()
        if not lease_for:
            await self._shards.some(
                self._shards.names, lambda shard: shard.call_within(shard.store.lead, holder, lease_for)
            )
            return False
        problem: StoreError | None = None
        for name in self._shards.names:
            try:
                shard = self._shards[name]
                return await shard.call_within(shard.store.lead, holder, lease_for)
            except StoreError as error:
                problem = problem or error
        assert problem is not None
        raise problem

    async def _in_turn(
        self, limit: int, call: Callable[[Shard, int], Coroutine[Any, Any, T]], number: Callable[[T], int]
    ) -> list[T]:
        """Call every shard with what is left of the limit; raise only if none answers."""
        await self._shards.ready()
        answers: list[T] = []
        problem: Exception | None = None
        left = limit
        for name in self._shards.names:
            try:
                answer = await call(self._shards[name], left)
            except (StoreError, SessionLost) as error:
                problem = problem or error
                continue
            answers.append(answer)
            left -= number(answer)
        if problem is not None and not answers:
            raise problem
        return answers

    async def promote(self, limit: int) -> Promoted:
        """Promote on every shard, up to `limit` tasks in all."""
        answers = await self._in_turn(
            limit, lambda shard, left: shard.call_within(shard.store.promote, left), lambda one: one.number
        )
        instants = [one.next_at for one in answers if one.next_at is not None]
        return Promoted(number=sum(one.number for one in answers), next_at=min(instants, default=None))

    async def rescue(self, session: str, limit: int) -> Sequence[Claimed]:
        """Rescue on every shard, up to `limit` tasks in all."""

        async def rescue(shard: Shard, left: int) -> Sequence[Claimed]:
            rescued = await shard.call_within(shard.store.rescue, session, left)
            self._shards.places.add([one.task.id for one in rescued], shard.name)
            return rescued

        return [one for part in await self._in_turn(limit, rescue, len) for one in part]

    async def prune(self, default: Retention, limit: int, by: By | None = None) -> Pruned:
        """Prune every shard, up to `limit` tasks in all, by the settings of the home shard.

        Shards that missed a change of settings get it before. The home shard has the entry of the audit log.
        """
        await self._shards.ready()
        await self.copy_settings_to_all()

        async def prune(shard: Shard, left: int) -> Pruned:
            who = by if shard.name == self._shards.map.home else None
            return await shard.call_unless_silent(shard.store.prune, default, left, who)

        answers = await self._in_turn(limit, prune, lambda one: one.number)
        numbers: Counter[tuple[str, State]] = Counter()
        transitions: list[TaskTransition] = []
        for answer in answers:
            numbers.update({(one.queue, one.state): one.number for one in answer.counts})
            transitions += answer.transitions
        return Pruned(counts=pruned_counts(numbers), transitions=tuple(transitions))

    @property
    def _have_one_schema(self) -> bool:
        stores = [*self._shards.registry.stores.values()]
        is_one_kind = len({type(store) for store in stores}) == 1
        return is_one_kind and all(Capability.MIGRATE in store.capabilities for store in stores)

    # -- admin ---------------------------------------------------------------------------------------

    async def migrations(self) -> Sequence[Migration]:
        """Return the migrations of the shards, if all are of one kind; applied are those that all have.

        A shard that does not answer is left out: every command asks for them. So is one without a schema if
        another has one: it is new, and gets its schema when it is added. `migrate` needs all shards.
        """
        if not self._have_one_schema:
            return ()
        answers = await self._shards.some(
            self._shards.registry.names, lambda shard: shard.call_unopened(shard.store.migrations)
        )
        used = [steps for steps in answers.values() if any(one.applied for one in steps)]
        first, *others = used or answers.values()
        behind = {one.number for steps in others for one in steps if not one.applied}
        return [
            one
            if one.number not in behind
            else Migration(number=one.number, name=one.name, applied=False, phase=one.phase)
            for one in first
        ]

    async def migrate(self, target: int | None = None) -> Sequence[Migration]:
        """Migrate one shard after another; return the steps taken on any of them.

        Those of the file: their maps cannot be read before, nor can they be opened.
        """
        if not self._have_one_schema:
            raise NotSupported("the shards have no schema in common; migrate each by its own URL")
        taken: dict[int, Migration] = {}
        for name in self._shards.registry.names:
            shard = self._shards[name]
            taken |= {one.number: one for one in await shard.call_unopened(shard.store.migrate, target)}
        return [taken[number] for number in sorted(taken)]

    async def check(self) -> Sequence[Finding]:
        """Check each shard, and whether tasks are where claims look for them."""
        await self._shards.ready()
        answers, _ = await self._shards.each(
            self._shards.names, lambda shard: shard.call_unless_silent(shard.store.check)
        )
        clocks, _ = await self._shards.each(
            self._shards.names, lambda shard: shard.call_within(shard.store.now)
        )
        findings: list[Finding] = []
        for status in await read_status(self._shards):
            findings.append(finding_of(status))
            findings += clock_findings(status.name, clocks, self._shards.map.home)
            findings += [
                Finding(severity=one.severity, subject=f"{status.name}: {one.subject}", message=one.message)
                for one in answers.get(status.name, ())
            ]
        return findings
