"""API keys: authenticate requests, and check scopes and bounds."""

import asyncio
import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request

from .._model.filter import Filter
from .._model.key import ApiKey, Login, Scope
from .._observe.cached_reads import RecentRead
from .._policy import api_key
from .._policy.api_key import Rejection
from .._store.protocol import Store, all_records
from ..errors import StoreError, WindlassError
from .web.body import header
from .web.keyless import require_local, require_same_origin
from .web.problems import Problem
from .web.refusal import Reason, Refusal

logger = logging.getLogger("windlass.http")

FRESH_FOR = 1.0
"""Seconds for which keys are cached: a revoked key is refused after this time at the latest."""

MISSING_FOR = 0.1
"""Seconds between two looks at the store for keys and logins that are not known here; more if it is slow."""

_REASONS = {
    Rejection.UNKNOWN: Reason.UNKNOWN_KEY,
    Rejection.EXPIRED: Reason.EXPIRED_KEY,
    Rejection.REVOKED: Reason.REVOKED_KEY,
}


class Caller(Struct, frozen=True):
    """The sender of a request, identified by key; None if the server requires no keys.

    A key may be bound to a tenant or to queues: everything else does not exist for it.
    """

    key: ApiKey | None = None
    who: str = ""  # the person, if something else than a key tells

    @property
    def name(self) -> str:
        """The name in the audit log and in `enqueued_by`."""
        if self.who:
            return self.who
        return "anonymous" if self.key is None else f"key {self.key.name} ({self.key.label})"

    @property
    def key_name(self) -> str:
        """The key's id; empty without a key."""
        return "" if self.key is None else self.key.name

    @property
    def tenant(self) -> str | None:
        """The tenant that the key is bound to; None: any."""
        return None if self.key is None else self.key.tenant

    @property
    def queues(self) -> tuple[str, ...] | None:
        """The queues that the key is bound to; None: any."""
        return None if self.key is None else self.key.queues

    @property
    def rights(self) -> tuple[object, ...]:
        """What the caller may see and do; callers with equal rights see the same."""
        scopes = None if self.key is None else frozenset(self.key.scopes)
        return self.tenant, self.queues, scopes

    @property
    def sees_payloads(self) -> bool:
        """Whether what the caller reads has payloads, results and texts of tasks in it."""
        return self.key is None or api_key.sees_payloads(self.key)

    @property
    def is_bound(self) -> bool:
        """Whether the key is bound to a tenant or to queues."""
        return self.tenant is not None or self.queues is not None

    @property
    def session_prefix(self) -> str:
        """The prefix of the session ids that this key opens."""
        return "" if self.key is None else f"{self.key.name}."

    def visible(self, where: Filter) -> Filter:
        """Narrow a filter to what the key may see."""
        if self.tenant is not None:
            where = replace(where, tenants=_intersection(where.tenants, (self.tenant,)))
        if self.queues is not None:
            where = replace(where, queues=_intersection(where.queues, self.queues))
        return where

    def may_see(self, queue: str, tenant: str) -> bool:
        """Tell whether tasks of this queue and tenant are within the key's bounds."""
        return self.tenant in (None, tenant) and (self.queues is None or queue in self.queues)

    def require_within(self, queue: str, tenant: str) -> None:
        """Raise 403 for a tenant or queue that the key is not bound to."""
        if self.tenant is not None and tenant != self.tenant:
            raise self._out_of_bounds(f"this key is bound to the tenant {self.tenant}")
        if self.queues is not None and queue not in self.queues:
            raise self._out_of_bounds(f"this key is bound to the queues {', '.join(self.queues)}")

    def has_scope(self, scope: Scope) -> bool:
        """Tell whether the caller's key has the scope."""
        return self.key is None or api_key.allows(self.key, scope)

    def require_scope(self, scope: Scope, *others: Scope) -> None:
        """Raise 403 unless the key has the scope, or one of the others."""
        if not any(self.has_scope(one) for one in (scope, *others)):
            raise Refusal("forbidden", f"this key lacks the scope {scope.value}", Reason.SCOPE)

    def require_work_on(self, queues: Iterable[str]) -> None:
        """Raise 403 unless the key covers these queues, for any tenant: a claim serves whichever is next."""
        if self.tenant is not None:
            raise self._out_of_bounds("this key is bound to a tenant; a worker needs one that is not")
        for queue in queues:
            self.require_within(queue, "")

    def require_queue_control(self, queue: str) -> None:
        """Raise 403 unless the key may change this queue. Tenant-bound keys may not: tenants share queues."""
        if self.tenant is not None:
            raise self._out_of_bounds("this key is bound to a tenant; queues are shared by all tenants")
        self.require_within(queue, "")

    def require_any_tenant(self) -> None:
        """Raise 403 for keys bound to a tenant, on what is not known by tenant."""
        if self.tenant is not None:
            raise self._out_of_bounds("this key is bound to a tenant, and history is not kept by tenant")

    def require_unbound(self) -> None:
        """Raise 403 for bound keys, on operations that concern the whole store."""
        if self.is_bound:
            raise self._out_of_bounds(
                "this key is bound to a tenant or to queues, and the operation concerns the whole store"
            )

    @staticmethod
    def _out_of_bounds(detail: str) -> Refusal:
        return Refusal("forbidden", detail, Reason.BOUNDS)


ANONYMOUS = Caller()


def _intersection(wanted: tuple[str, ...] | None, bounds: tuple[str, ...]) -> tuple[str, ...]:
    return bounds if wanted is None else tuple(one for one in wanted if one in bounds)


class Authenticator:
    """Authenticates requests by their bearer keys, which it caches for `FRESH_FOR` seconds.

    A key that was made or rotated since is found: the store is asked before a key is refused as unknown.
    Without keys it refuses web pages of other origins than `origins`, and unless it is `open_to_all` also
    whatever is not sent to this machine by its own name.
    """

    def __init__(
        self,
        store: Store,
        *,
        open_to_all: bool,
        open_until_keys: bool = False,
        origins: Iterable[str] = (),
    ) -> None:
        self._origins = frozenset(origin.encode() for origin in origins)
        self._store = store
        self._open_to_all = open_to_all
        self._open_until_keys = open_until_keys
        self._keys: dict[str, ApiKey] = {}
        self._accepted: dict[str, ApiKey] = {}  # by the header that was sent, until the keys are read again
        self._store_now = datetime.min.replace(tzinfo=UTC)
        self._reading = RecentRead(self._read)
        self._uses = KeyUses(store)

    async def authenticate(self, request: Request, *, forms: bool = False) -> Caller:
        """Return the caller; raise 401 unless its key is known and valid. `forms`: our pages send them."""
        if self._open_to_all:
            require_same_origin(request.scope["headers"], request.method, self._origins, forms=forms)
            return ANONYMOUS
        if self._open_until_keys and await self._has_no_keys():
            require_local(request.scope["headers"], request.scope["http_version"])
            require_same_origin(request.scope["headers"], request.method, self._origins, forms=forms)
            return ANONYMOUS
        return await self.authenticate_key(request)

    async def authenticate_key(self, request: Request) -> Caller:
        """Return the caller by its key, also if the server requires none; raise 401 without a valid one."""
        given = header(request, b"authorization")
        if (
            accepted := self._accepted.get(given)
        ) is not None and monotonic() - self._reading.read_at < FRESH_FOR:
            return Caller(accepted)
        kind, _, text = given.partition(" ")
        if kind.lower() != "bearer" or not text:
            raise Refusal("unauthorized", "send an API key as Authorization: Bearer wl_…", Reason.NO_KEY)
        key, _ = await self.verify(text.strip())
        self._accepted[given] = key
        return Caller(key)

    async def verify(self, text: str) -> tuple[ApiKey, str]:
        """Return the key of this text, and the hash of its secret; raise 401 unless it is valid."""
        asked_at, sent = monotonic(), api_key.parse_key(text)
        await self._refresh(asked_at - FRESH_FOR)
        key, now = self._keys.get(sent.id) if sent else None, self._now
        rejected = api_key.rejection(sent, key, now)
        if sent is not None and rejected is Rejection.UNKNOWN:
            await self._refresh(asked_at)
            key, now = self._keys.get(sent.id), self._now
            rejected = api_key.rejection(sent, key, now)
        if (
            sent is None or key is None or rejected is not None
        ):  # the response is the same whatever the reason
            reason = _REASONS[rejected or Rejection.UNKNOWN]
            detail = "the API key is unknown, expired or revoked"
            raise Refusal("unauthorized", detail, reason, key_id=sent.id if sent else "")
        self._uses.note(key, now)
        return key, api_key.hash_secret(sent.secret)

    async def key_of(self, login: Login) -> ApiKey | None:
        """Return the key that someone is signed in with; None if the login, the key or its secret ended."""
        await self._refresh(monotonic() - FRESH_FOR)
        key, now = self._keys.get(login.key), self._now
        if key is None or not api_key.is_signed_in(login, key, now):
            return None
        self._uses.note(key, now)
        return key

    @property
    def _now(self) -> datetime:
        return self._store_now + timedelta(seconds=monotonic() - self._reading.read_at)

    async def _has_no_keys(self) -> bool:
        """Tell whether no key has existed so far; once one has, the server stays closed without keys."""
        await self._refresh(monotonic() - FRESH_FOR)
        self._open_until_keys = not self._keys
        return self._open_until_keys

    async def _refresh(self, since: float) -> None:
        """Read the keys, unless they were since then."""
        await self._reading.since(since, pause=MISSING_FOR, at_most=FRESH_FOR)

    async def _read(self) -> None:
        try:
            await self._store.open()
            now = await self._store.now()
            keys = {key.name: key for key in await all_records(self._store, ApiKey)}
        except StoreError as error:  # its message may name hosts and files: for the log only
            logger.warning("cannot read API keys from the store: %s", error)
            raise Problem("store-unavailable", "cannot read API keys from the store; retry") from error
        self._keys, self._store_now = keys, now
        self._accepted.clear()


# -- when keys were last used --------------------------------------------------------------------------


_WRITTEN_EVERY = timedelta(minutes=1)
"""How often the use of a key is written."""

_MAX_NOTED = 10_000


class KeyUses:
    """Writes the last use of keys in the background. A write that fails is lost; a later use makes another.

    A key that someone changes meanwhile (rotates, revokes, or another server notes) stays as they left it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._noted: dict[str, datetime] = {}
        self._due: dict[str, tuple[ApiKey, datetime]] = {}
        self._writing: asyncio.Future[None] | None = None

    def note(self, key: ApiKey, now: datetime) -> None:
        """Note that a key, as it is stored, is used now."""
        if key.last_used_at is not None and now - key.last_used_at < _WRITTEN_EVERY:
            return
        noted = self._noted.get(key.name)
        if noted is not None and now - noted < _WRITTEN_EVERY:
            return
        if len(self._noted) >= _MAX_NOTED:
            self._noted.clear()
        self._noted[key.name] = now
        self._due[key.name] = key, now
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        try:
            while self._due:
                _, (key, now) = self._due.popitem()
                await self._put(key, replace(key, last_used_at=now))
        finally:
            self._writing = None

    async def _put(self, before: ApiKey, used: ApiKey) -> None:
        try:
            await self._store.put(used, None, before)
        except WindlassError as error:
            logger.debug("did not note the use of key %s: %s", used.name, error)
