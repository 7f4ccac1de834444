"""API keys: made, listed and revoked by people. (I3)"""

import secrets
from collections.abc import Iterable, Sequence
from datetime import timedelta

from msgspec import Struct

from .._model.filter import By
from .._model.key import ApiKey, Scope
from .._policy import api_key
from .._policy.input.options import checked_name, checked_names, parse_duration
from .._policy.input.quoting import quoted
from .._store.protocol import Store
from ..errors import InvalidOption, NotFound
from .declarations import every
from .loop import LoopThread

_ENTROPY = 48  # bytes: more than the 41 that the letters of a key take
_MAX_LABEL = 100


class NewKey(Struct, frozen=True):
    """A key that was just made. `text` is what its holder sends; it is shown this once, and kept nowhere."""

    key: ApiKey
    text: str

    def __repr__(self) -> str:
        return f"NewKey(key={self.key!r}, text=…)"


class Keys:
    """The keys of a store."""

    def __init__(self, store: Store, by: By | None = None) -> None:
        self._store = store
        self._by = by  # whom the audit log names; None: a program, which it does not tell of

    async def create(
        self,
        label: str,
        *,
        scopes: Iterable[Scope | str],
        tenant: str | None = None,
        queues: Iterable[str] | None = None,
        expires_in: timedelta | float | str | None = None,
        rate: float | None = None,
    ) -> NewKey:
        """Make a key that allows this and no more, and so many requests a second (`rate`)."""
        await self._store.open()
        now = await self._store.now()
        sent = api_key.new_key(secrets.token_bytes(_ENTROPY))
        key = ApiKey(
            name=sent.id,
            label=_label(label),
            hash=api_key.hash_secret(sent.secret),
            scopes=_scopes(scopes),
            created_at=now,
            expires_at=None if expires_in is None else now + _term(expires_in),
            tenant=None if tenant is None else checked_name(tenant, "tenant"),
            queues=None if queues is None else _queues(queues),
            rate=None if rate is None else api_key.checked_rate(rate),
        )
        await self._store.put(key, self._by)
        return NewKey(key, sent.text)

    async def list(self) -> Sequence[ApiKey]:
        """Every key, by its id; none of them can be used with what is here."""
        return await every(self._store, ApiKey)

    async def revoke(self, key_id: str) -> None:
        """Take a key back: servers refuse it within a second."""
        await self._store.open()
        if not await self._store.remove(ApiKey, key_id, self._by):
            raise NotFound(f"there is no key {quoted(key_id)}; `windlass keys list` shows those there are")


class SyncKeys:
    """The same, blocking."""

    def __init__(self, keys: Keys, loop: LoopThread) -> None:
        self._keys = keys
        self._loop = loop

    def create(
        self,
        label: str,
        *,
        scopes: Iterable[Scope | str],
        tenant: str | None = None,
        queues: Iterable[str] | None = None,
        expires_in: timedelta | float | str | None = None,
        rate: float | None = None,
    ) -> NewKey:
        """Make a key that allows this and no more, and so many requests a second (`rate`)."""
        made = self._keys.create(
            label, scopes=scopes, tenant=tenant, queues=queues, expires_in=expires_in, rate=rate
        )
        return self._loop.run(made)

    def list(self) -> Sequence[ApiKey]:
        """Every key, by its id; none of them can be used with what is here."""
        return self._loop.run(self._keys.list())

    def revoke(self, key_id: str) -> None:
        """Take a key back: servers refuse it within a second."""
        self._loop.run(self._keys.revoke(key_id))


def _label(label: str) -> str:
    if not isinstance(label, str) or not label.strip() or len(label) > _MAX_LABEL or not label.isprintable():
        raise InvalidOption(
            f"a key's label says whose it is, in 1 to {_MAX_LABEL} characters, not {quoted(label)}"
        )
    return label


def _scopes(scopes: Iterable[Scope | str]) -> tuple[Scope, ...]:
    if isinstance(scopes, str):
        raise InvalidOption(f"scopes takes several; for one alone write ({quoted(scopes)},)")
    known = ", ".join(Scope)
    found = []
    for one in scopes:
        try:
            found.append(Scope(one))
        except ValueError:
            raise InvalidOption(f"there is no scope {quoted(one)}; there are: {known}") from None
    if not found:
        raise InvalidOption(f"a key without a scope allows nothing; there are: {known}")
    return tuple(dict.fromkeys(found))


def _queues(queues: Iterable[str]) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(checked_name(queue, "queue") for queue in checked_names(queues, "queues")))
    if not found:
        raise InvalidOption("a key for no queue allows nothing; None is for every queue")
    return found


def _term(expires_in: timedelta | float | str) -> timedelta:
    term = parse_duration(expires_in, "key's term")
    if term <= timedelta(0):
        raise InvalidOption(f"a key is good for more than no time, not {quoted(expires_in)}")
    return term
