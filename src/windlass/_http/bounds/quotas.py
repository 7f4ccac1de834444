"""Quotas of tenants: what each has stored as far as this server knows, and the store that enforces them.

What is stored is counted at intervals. In between, a server adds what it has enqueued itself, so that one
server alone never exceeds a quota; what it stores while it counts may be counted twice, until the next count.
Of several, each may fill the room that it saw at its last count: together they exceed a quota by at most that
room times the number of the other servers.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from math import ceil, inf
from time import monotonic
from typing import Any

from ..._model.filter import By, Dimension, Filter, Page
from ..._model.limit import Quota, Use
from ..._model.record import Record
from ..._model.task import Enqueued, NewTask
from ..._policy.input.quote import quoted
from ..._policy.quota import TenantUse, demand, first_exceeded, format_size, quota_of, uses
from ..._store.forward import ForwardingStore
from ..._store.protocol import Store, all_records
from ...errors import NotFound, Refused, StoreError, StoreUnavailable, UsageError
from ..web.problems import Problem, QuotaProblem

logger = logging.getLogger("windlass.http")

READ_EVERY = 2.0
"""Seconds after which a changed quota applies."""

COUNT_EVERY = 5.0
"""Seconds between counts, at least."""

_SHARE = 20  # Counting takes up one part in this many of the time.
_NOTHING = Use()


class StoredUse:
    """The quotas, and what tenants have stored: by the last count, and added by this server since."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], float] = monotonic,
        refused: Callable[[str], None] | None = None,
    ) -> None:
        self.quotas: Mapping[str, Quota] = {}
        self._refused = refused  # called with the name of a quota, to count refusals
        self._store = store
        self._clock = clock
        self._reading = asyncio.Lock()
        self._read_until = -inf
        self._counted: Mapping[str, Use] | None = None
        self._added: dict[str, Use] = defaultdict(Use)  # since the last count began
        self._added_meanwhile: dict[str, Use] = defaultdict(Use)  # since the count began that is under way
        self._reserved: dict[str, Use] = defaultdict(Use)  # by requests that are being stored
        self._counting: asyncio.Task[None] | None = None
        self._due = self._stale = -inf  # when to count again, and until when the last count is of any use

    @property
    def is_unlimited(self) -> bool:
        """Whether no tenant has a quota, as far as is known and fresh."""
        return not self.quotas and self._clock() < self._read_until

    def forget_quotas(self) -> None:
        """Read the quotas again before the next use: they were changed."""
        self._read_until = -inf

    async def refresh(self) -> None:
        """Read the quotas if they are stale; if there are any and a count is due, start it.

        Wait for it if there is none so far or the last one is too old.
        """
        async with self._reading:
            if self._clock() >= self._read_until:
                began = self._clock()
                self.quotas = {quota.name: quota for quota in await all_records(self._store, Quota)}
                self._read_until = began + READ_EVERY
        if not self.quotas:
            self._counted = None
        elif self._clock() >= self._stale or self._counted is None:
            await self._count_now()
        elif self._clock() >= self._due:
            self._counting = self._started_count()

    async def recount(self) -> None:
        """Wait for the count that is under way or due, if one is."""
        if self._counting is not None or self._clock() >= self._due:
            await self._count_now()

    def of(self, tenant: str) -> Use:
        """Return what a tenant uses, requests that are being stored included."""
        counted = (self._counted or {}).get(tenant, _NOTHING)
        return counted + self._added.get(tenant, _NOTHING) + self._reserved.get(tenant, _NOTHING)

    def all(self) -> dict[str, Use]:
        """Return what each tenant uses, as far as it is counted."""
        return {tenant: self.of(tenant) for tenant in {**(self._counted or {}), **self._added}}

    def known(self) -> tuple[Mapping[str, Quota], Mapping[str, Use]]:
        """Return the quotas, and what each tenant uses."""
        return self.quotas, self.all()

    def exceeded(self, wanted: Mapping[str, Use]) -> TenantUse | None:
        """Return the first tenant that has no room for what is wanted, and what it uses."""
        return first_exceeded(self.quotas, {tenant: self.of(tenant) for tenant in wanted}, wanted)

    def reserve(self, wanted: Mapping[str, Use]) -> None:
        """Take room for tasks that are about to be stored."""
        for tenant, use in wanted.items():
            self._reserved[tenant] += use

    def release(self, wanted: Mapping[str, Use], stored: Mapping[str, Use]) -> None:
        """Give back room that was reserved, and note what was stored of it."""
        for tenant, use in wanted.items():
            self._reserved[tenant] -= use
            if self._reserved[tenant] == _NOTHING:
                del self._reserved[tenant]
        for tenant, use in stored.items():
            self._added[tenant] += use
            self._added_meanwhile[tenant] += use

    def refusal(self, full: TenantUse) -> Problem:
        """Return the problem of a request for which a tenant has no room, and count it."""
        quota = quota_of(self.quotas, full.tenant)
        assert quota is not None
        if self._refused is not None:
            self._refused(quota.name)
        seconds = max(ceil(self._due - self._clock()), 1)
        bounds = (
            "" if quota.tasks is None else f"{full.use.tasks:,} of {quota.tasks:,} tasks",
            "" if quota.bytes is None else f"{format_size(full.use.bytes)} of {format_size(quota.bytes)}",
        )
        whose = f"the tenant {quoted(full.tenant)} has" if full.tenant else "tasks without a tenant have"
        return Problem(
            "quota-exceeded",
            f"{whose} stored {' and '.join(filter(None, bounds))}, and this does not fit; wait until ended "
            f"tasks are pruned, discard some, or raise the quota",
            headers={"Retry-After": str(seconds)},
            quota=QuotaProblem(
                tenant=full.tenant,
                tasks=quota.tasks,
                bytes=quota.bytes,
                used_tasks=full.use.tasks,
                used_bytes=full.use.bytes,
            ),
        )

    # -- counting ------------------------------------------------------------------------------------

    async def _count_now(self) -> None:
        """Count, or wait for the count that is under way. Raises StoreUnavailable if there was never one."""
        self._counting = self._started_count()
        await asyncio.shield(self._counting)
        if self._counted is None:
            raise StoreUnavailable("cannot count what tenants have stored; retry")

    def _started_count(self) -> asyncio.Task[None]:
        return self._counting or asyncio.create_task(self._count())

    async def _count(self) -> None:
        began = self._clock()
        self._added_meanwhile = defaultdict(Use)
        try:
            counts = await self._store.count(Filter(), (Dimension.TENANT,), sized=True)
        except StoreError as error:
            logger.warning("cannot count what tenants have stored; quotas use the last count: %s", error)
        else:
            self._counted = uses(counts)
            self._added, self._added_meanwhile = self._added_meanwhile, defaultdict(Use)
        finally:
            pause = max(COUNT_EVERY, (self._clock() - began) * _SHARE)
            self._due = self._clock() + pause
            self._stale = self._due + pause
            self._counting = None


class QuotaStore(ForwardingStore):
    """The store behind the HTTP API. It refuses to store more than the quotas of tenants allow."""

    def __init__(self, inner: Store, refused: Callable[[str], None] | None = None) -> None:
        super().__init__(inner)
        self.use = StoredUse(inner, refused=refused)

    def another(self) -> "QuotaStore":
        return QuotaStore(self.inner.another())

    def enqueue(self, batch: Sequence[NewTask]) -> Coroutine[Any, Any, Sequence[Enqueued]]:
        """Enqueue the batch, or raise 507 if a tenant has no room for its part of it."""
        return self.inner.enqueue(batch) if self.use.is_unlimited else self._enqueue_within_quotas(batch)

    async def put(self, record: Record, *args: Any, **options: Any) -> None:
        """Store a record; quotas apply here from now on."""
        await self.inner.put(record, *args, **options)
        if isinstance(record, Quota):
            self.use.forget_quotas()

    async def remove(self, kind: type[Record], name: str, by: By | None = None) -> bool:
        """Delete a record."""
        removed = await self.inner.remove(kind, name, by)
        if kind is Quota:
            self.use.forget_quotas()
        return removed

    async def _enqueue_within_quotas(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        use = self.use
        await use.refresh()
        wanted = self._limited(batch)
        if use.exceeded(wanted):
            await use.recount()
            if use.exceeded(wanted):
                wanted = await self._wanted_by_new(batch)
        if full := use.exceeded(wanted):
            raise use.refusal(full)
        use.reserve(wanted)
        stored: Mapping[str, Use] = wanted  # unless it is known to be less: a failed call may have stored all
        try:
            enqueued = await self.inner.enqueue(batch)
            created = [task for task, one in zip(batch, enqueued, strict=True) if one.created]
            stored = wanted if len(created) == len(batch) else self._limited(created)
        except (Refused, UsageError, NotFound):
            stored = {}
            raise
        finally:
            use.release(wanted, stored)
        return enqueued

    def _limited(self, batch: Sequence[NewTask]) -> dict[str, Use]:
        """Return what a batch adds for the tenants that have a quota."""
        quotas = self.use.quotas
        return {tenant: use for tenant, use in demand(batch).items() if quota_of(quotas, tenant)}

    async def _wanted_by_new(self, batch: Sequence[NewTask]) -> dict[str, Use]:
        """Return what a batch adds without the tasks that exist already: to repeat a request is free.

        Only as much of it as exceeds a quota.
        """
        wanted: dict[str, Use] = defaultdict(Use)
        for task in batch:
            more = self._limited([task])
            if more and not await self._exists(task):
                for tenant, use in more.items():
                    wanted[tenant] += use
                if self.use.exceeded(wanted):
                    break
        return wanted

    async def _exists(self, task: NewTask) -> bool:
        names: list[Filter] = [Filter(ids=(task.id,))]
        if task.idempotency_key is not None:
            names.append(Filter(idempotency_key=task.idempotency_key, tenants=(task.tenant,)))
        for name in names:
            if (await self.inner.find(name, Page(limit=1))).items:
                return True
        return False
