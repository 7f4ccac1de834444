"""State that all operations share: the app, authentication, watchers and caches."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .._client.client import Client
from .._client.operator import Operator
from .._client.tasks.unserved import never_tell_enqueuer
from .._documents.check import CheckDocument
from .._model.filter import By, Count, Dimension, Failure, Filter
from .._model.task import DEFAULT_QUEUE
from .._observe.cached_reads import CachedReads
from .._observe.overview import OverviewCache, read_tenants
from .._store.served_queues import ServedQueues
from ..app import App
from .auth import Authenticator, Caller
from .bounds.leases import KeyLeases
from .bounds.quotas import QuotaStore
from .bounds.rate_limit import Buckets, RateLimiter
from .bounds.tenant_queues import TenantBounds, TenantQueues
from .masked_store import MaskedStore
from .page import PageReader
from .refusals import Refusals
from .web.load import Load, LoadLimits
from .web.off_loop import in_thread

if TYPE_CHECKING:
    from .operation import Operation
    from .resources.history import HistoryRead

_OVERVIEW_AGE = timedelta(seconds=1)
"""Maximum age of an overview; one query serves all requests within it."""

_HISTORY_AGE = timedelta(seconds=4)

_FAILURES_AGE = timedelta(0)
"""Failures are read again for each request, unless that takes more than a tenth of the store's time."""

_CHECK_AGE = timedelta(minutes=1)
"""Maximum age of a check of the store, which may keep a SQLite file busy for 2 s."""

_CHECK_TIME = timedelta(seconds=20)


class Service:
    """One served app."""

    def __init__(
        self,
        app: App,
        authenticator: Authenticator,
        operations: "tuple[Operation, ...]" = (),
        limits: LoadLimits | None = None,
        buckets: Buckets | None = None,
    ) -> None:
        self.app = app
        self.metrics = app.metrics() if find_spec("prometheus_client") else None
        meter = None if self.metrics is None else self.metrics.meter
        if self.metrics is not None:
            self.metrics.in_thread = in_thread
        self.store: QuotaStore | MaskedStore = QuotaStore(
            app.store, None if meter is None else meter.quota_exceeded
        )
        never_tell_enqueuer(self.store)  # who enqueues does not read this log, and would wait
        self.authenticator = authenticator
        self.operations = operations  # for the OpenAPI document
        self.load = Load(limits)
        most = self.load.limits
        bounds = TenantBounds(
            queues=most.queues_per_tenant,
            types=most.types_per_tenant,
            pairs=most.queue_type_pairs_per_tenant,
        )
        self.tenant_queues = TenantQueues(app.store, bounds)
        self.pages = PageReader()
        # Shared by all workers that claim from every queue:
        self.served_queues = ServedQueues(app.store, (DEFAULT_QUEUE,), is_open=True)
        self.rate_limiter = RateLimiter(buckets, refused=None if meter is None else meter.rate_limited)
        self.refusals = Refusals(meter)
        self.closing = asyncio.Event()  # set when the server stops: long polls return at once
        self.read_from(self.store)
        self.whole_operator = self.operator  # reads payloads, to act with them and show nothing
        self._masked: Service | None = None

    def seen_by(self, caller: Caller) -> "Service":
        """Return the service over what this caller may see of tasks and records."""
        if caller.sees_payloads or isinstance(self.store, MaskedStore):
            return self
        if self._masked is None:
            masked = copy(self)
            masked.read_from(MaskedStore(self.store))
            self._masked = masked
        return self._masked

    def read_from(self, store: QuotaStore | MaskedStore) -> None:
        """Make all that reads tasks and records read them from this store."""
        app, self.store = self.app, store
        self.leases = KeyLeases(store)
        self.client = Client(store, app.builder, app.client.types)
        self.operator = Operator(store, By(who="server"), app.client.types)
        self.overviews = OverviewCache(store, max_age=_OVERVIEW_AGE)
        read = partial(read_tenants, store)
        self.tenants = CachedReads(read, "the tenants of a queue", max_age=_OVERVIEW_AGE)
        self.checks = CachedReads(
            self._check, "findings", max_age=_CHECK_AGE, timeout=_CHECK_TIME, is_partial=False
        )
        self.counts = CachedReads(self._count_states, "the numbers of tasks", max_age=_OVERVIEW_AGE)
        self.failures = CachedReads(self._read_failures, "the failures", max_age=_FAILURES_AGE)
        # History changes every 10 seconds, and adding it up takes long.
        self.histories = CachedReads(self._read_history, "the history", max_age=_HISTORY_AGE)

    async def _read_history(self, wanted: "HistoryRead") -> Any:
        return await wanted.read(self)

    async def _count_states(self, where: Filter) -> Sequence[Count]:
        return await self.operator.count(where, (Dimension.STATE,))

    async def _read_failures(self, wanted: tuple[Filter, int]) -> Sequence[Failure]:
        where, limit = wanted
        return await self.operator.failures(where, limit=limit)

    async def _check(self, check: "Callable[[Service], Awaitable[CheckDocument]]") -> CheckDocument:
        return await check(self)
