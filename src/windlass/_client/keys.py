"""API keys: create, list and revoke them."""

import secrets
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Unpack

from msgspec import Struct

from .._model.filter import By
from .._model.key import ApiKey, Scope
from .._policy import api_key
from .._policy.api_key import KeyRates
from .._policy.input.options import checked_name, parse_duration
from .._policy.input.quote import quoted
from .._store.protocol import Store
from ..errors import InvalidOption, NotFound
from .records import list_records

_ENTROPY = 48  # bytes; the text of a key encodes 41 of them


class NewKey(Struct, frozen=True):
    """A key that was just created. `text` is what its holder sends; it is not stored, so keep it now."""

    key: ApiKey
    text: str

    def __repr__(self) -> str:
        return f"NewKey(key={self.key!r}, text=…)"


class Keys:
    """Create, list and revoke the API keys of a store: `app.operator.keys`."""

    def __init__(self, store: Store, by: By | None = None) -> None:
        self._store = store
        self._by = by  # for the audit log; None: a program, whose changes are not recorded

    async def create(
        self,
        label: str,
        *,
        scopes: Iterable[Scope | str],
        tenant: str | None = None,
        queues: Iterable[str] | None = None,
        expires_in: timedelta | float | str | None = None,
        **rates: Unpack[KeyRates],
    ) -> NewKey:
        """Create a key for the HTTP API. Its text is only returned here.

            made = await app.operator.keys.create("shop", scopes=("enqueue", "read"), tenant="acme")

        `label`: whose key it is, 1 to 100 characters. `scopes`: what it allows: "enqueue", "read", "work",
        "operate", "admin". `tenant`, `queues`: only these [default: all]. `expires_in`: how long it is valid;
        seconds, a timedelta or text such as "90d" [default: until it is revoked]. `rate`, `task_rate`,
        `byte_rate`: at most this many requests, enqueued tasks, and bytes of those a second [default: no
        bound]. Raises InvalidOption.
        """
        await self._store.open()
        now = await self._store.now()
        sent = api_key.new_key(secrets.token_bytes(_ENTROPY))
        key = ApiKey(
            name=sent.id,
            label=api_key.checked_label(label),
            hash=api_key.hash_secret(sent.secret),
            scopes=_scopes(scopes),
            created_at=now,
            expires_at=None if expires_in is None else now + _lifetime(expires_in),
            tenant=None if tenant is None else checked_name(tenant, "tenant"),
            queues=None if queues is None else api_key.checked_queues(queues),
            **api_key.checked_rates(rates),
        )
        await self._store.put(key, self._by)
        return NewKey(key, sent.text)

    async def list(self) -> Sequence[ApiKey]:
        """List all keys, by id, without their texts."""
        return await list_records(self._store, ApiKey)

    async def revoke(self, key_id: str) -> None:
        """Revoke a key; servers refuse it within a second. Raises NotFound if there is none."""
        await self._store.open()
        if not await self._store.remove(ApiKey, key_id, self._by):
            raise NotFound(f"there is no key {quoted(key_id)}; `windlass keys list` shows all keys")


def _scopes(scopes: Iterable[Scope | str]) -> tuple[Scope, ...]:
    if isinstance(scopes, str):
        raise InvalidOption(f"scopes takes several names; for one write ({quoted(scopes)},)")
    known = ", ".join(Scope)
    found = []
    for one in scopes:
        try:
            found.append(Scope(one))
        except ValueError:
            raise InvalidOption(f"there is no scope {quoted(one)}; the scopes are: {known}") from None
    if not found:
        raise InvalidOption(f"a key needs at least one scope; the scopes are: {known}")
    return tuple(dict.fromkeys(found))


def _lifetime(expires_in: timedelta | float | str) -> timedelta:
    lifetime = parse_duration(expires_in, "key's lifetime")
    if lifetime <= timedelta(0):
        raise InvalidOption(f"expires_in must be more than 0, not {quoted(expires_in)}")
    return lifetime
