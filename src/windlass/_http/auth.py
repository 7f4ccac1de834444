"""Who asks, and whether it may. (I3)"""

import logging
from asyncio import Lock
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request

from .._model.filter import Filter
from .._model.key import ApiKey, Scope
from .._policy import api_key
from .._store.protocol import Store, all_records
from ..errors import StoreError
from .rate_limit import Pacing
from .web.body import header
from .web.problems import Problem

logger = logging.getLogger("windlass.http")

FRESH_FOR = 1.0
"""Seconds after which a revoked key is refused at the latest."""


class Caller(Struct, frozen=True):
    """Who asks. Without a key it is whoever reaches a server that asks for none."""

    key: ApiKey | None = None

    @property
    def name(self) -> str:
        """How the audit log calls it."""
        return "anonymous" if self.key is None else f"key {self.key.name} ({self.key.label})"

    @property
    def tenant(self) -> str | None:
        """The only tenant there is for it; None: all of them."""
        return None if self.key is None else self.key.tenant

    @property
    def queues(self) -> tuple[str, ...] | None:
        """The only queues there are for it; None: all of them."""
        return None if self.key is None else self.key.queues

    def sees(self, where: Filter) -> Filter:
        """What of these it may see: what lies beyond its bounds is not there."""
        if self.tenant is not None:
            where = replace(where, tenants=_both(where.tenants, (self.tenant,)))
        if self.queues is not None:
            where = replace(where, queues=_both(where.queues, self.queues))
        return where

    def may_see(self, queue: str, tenant: str) -> bool:
        """Whether what is in this queue, for this tenant, is within its bounds."""
        return self.tenant in (None, tenant) and (self.queues is None or queue in self.queues)

    def needs_within(self, queue: str, tenant: str) -> None:
        """Refuse what is for another tenant or another queue than the key is."""
        if self.tenant is not None and tenant != self.tenant:
            raise Problem(403, "forbidden", f"this key is for the tenant {self.tenant} alone")
        if self.queues is not None and queue not in self.queues:
            raise Problem(403, "forbidden", f"this key is for these queues alone: {', '.join(self.queues)}")

    def needs(self, scope: Scope) -> None:
        """Refuse unless the key allows it. What else it may be the answer does not say."""
        if self.key is not None and not api_key.allows(self.key, scope):
            raise Problem(403, "forbidden", f"this key lacks the scope {scope.value}")

    @property
    def is_bound(self) -> bool:
        """Whether there is only a part of the store for it."""
        return self.tenant is not None or self.queues is not None

    @property
    def mark(self) -> str:
        """What the sessions that it opens begin with."""
        return "" if self.key is None else f"{self.key.name}."

    def needs_to_work_on(self, queues: Iterable[str]) -> None:
        """Refuse others' queues; and one tenant's key, as a claim takes whose turn it is."""
        if self.tenant is not None:
            raise Problem(403, "forbidden", "this key is for one tenant; a worker's has queues of its own")
        for queue in queues:
            self.needs_within(queue, "")

    def needs_to_steer(self, queue: str) -> None:
        """Refuse to change a queue that is not the key's own; all tenants share one, so none of them may."""
        if self.tenant is not None:
            raise Problem(403, "forbidden", "this key is for one tenant, and a queue is everybody's")
        self.needs_within(queue, "")

    def needs_no_bounds(self) -> None:
        """Refuse a key that is bound to a tenant or to queues: a store as a whole knows no such bounds."""
        if self.is_bound:
            raise Problem(
                403, "forbidden", "this key is bound to a tenant or queues, and this asks for the whole store"
            )


def _both(asked: tuple[str, ...] | None, bounds: tuple[str, ...]) -> tuple[str, ...]:
    return bounds if asked is None else tuple(one for one in asked if one in bounds)


class Doorkeeper:
    """Knows the keys, and lets in who has one."""

    def __init__(self, store: Store, *, open_to_all: bool, open_until_keys: bool = False) -> None:
        self.pacing = Pacing()
        self._store = store
        self._open_to_all = open_to_all
        self._open_until_keys = open_until_keys
        self._keys: dict[str, ApiKey] = {}
        self._looked_at = -FRESH_FOR
        self._now = datetime.min.replace(tzinfo=UTC)
        self._looking = Lock()

    async def caller(self, request: Request) -> Caller:
        """Who asks; raises a Problem unless it has a key that is good."""
        if self._open_to_all or (self._open_until_keys and await self._has_no_keys()):
            return Caller()
        kind, _, text = header(request, b"authorization").partition(" ")
        if kind.lower() != "bearer" or not text:
            raise Problem(401, "unauthorized", "send your key as Authorization: Bearer wl_…")
        sent = api_key.parse_key(text.strip())
        await self._refresh()
        key = self._keys.get(sent.id) if sent else None
        now = self._now + timedelta(seconds=monotonic() - self._looked_at)
        if not api_key.is_valid(sent, key, now):
            raise Problem(401, "unauthorized", "this key is unknown, expired or revoked")
        return Caller(key)

    async def _has_no_keys(self) -> bool:
        """Whether there have been no keys so far. Once there were, the door stays shut."""
        await self._refresh()
        self._open_until_keys = not self._keys
        return self._open_until_keys

    async def _refresh(self) -> None:
        """Look at the keys anew, if need be: once, however many ask at the same time."""
        if monotonic() - self._looked_at < FRESH_FOR:
            return
        async with self._looking:
            if monotonic() - self._looked_at < FRESH_FOR:
                return
            try:
                await self._look()
            except StoreError as error:  # What it says is not for strangers.
                logger.warning("the keys cannot be looked up: %s", error)
                raise Problem(503, "store-unavailable", "the keys cannot be looked up; try again") from error

    async def _look(self) -> None:
        looked_at = monotonic()
        await self._store.open()
        now = await self._store.now()
        keys = {key.name: key for key in await all_records(self._store, ApiKey)}
        self._keys, self._now, self._looked_at = keys, now, looked_at
