"""API keys: create, list, rotate and revoke them; see who is signed in with them, and sign them out."""

import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Unpack

from msgspec import Struct

from .._model.brief import Brief
from .._model.filter import By
from .._model.key import ApiKey, Login, Scope
from .._policy import api_key
from .._policy.api_key import KeyRates
from .._policy.input.keys import checked_key
from .._policy.input.options import checked_name, parse_duration
from .._policy.input.quote import quoted
from .._store.protocol import Store
from ..errors import Conflict, DuplicateKey, IdempotencyConflict, InvalidOption, NotFound, Refused, StoreError
from .records import change_record, list_records

_ENTROPY = 48  # bytes; the text of a key encodes 41 of them
_BOUNDS = ("tenant", "queues", "expires_in")


class KeyOptions(KeyRates, total=False):
    """What a key is bound to, how long it is valid, and its rates; None, or left out: no bound."""

    tenant: str | None
    queues: Iterable[str] | None
    expires_in: timedelta | float | str | None


class NewKey(Brief, Struct, frozen=True):
    """A key just created or rotated. `text` is what its holder sends; it is not stored, so keep it now."""

    key: ApiKey
    text: str


class Keys:
    """Create, list, rotate and revoke the API keys of a store: `app.operator.keys`."""

    def __init__(self, store: Store, by: By | None = None) -> None:
        self._store = store
        self._by = by  # for the audit log; None: a program, whose changes are not recorded

    async def create(
        self,
        label: str,
        *,
        scopes: Iterable[Scope | str],
        idempotency_key: str | None = None,
        **options: Unpack[KeyOptions],
    ) -> NewKey:
        """Create a key for the HTTP API. Its text is only returned here.

            made = await app.operator.keys.create("shop", scopes=("enqueue", "read"), tenant="acme")

        `label`: whose key it is, 1 to 100 characters. `scopes`: what it allows: "enqueue", "read", "observe",
        "work", "operate", "reveal", "admin"; "observe" goes with "operate" only. `tenant`, `queues`: only
        these [default: all]. `expires_in`: how long it is valid; seconds, a timedelta or text such as "90d"
        [default: until it is revoked]. `rate`, `task_rate`, `byte_rate`: at most this many requests, enqueued
        tasks, and bytes of those a second [default: no bound]. `idempotency_key`: a repeat creates no second
        key and raises DuplicateKey with the id of the first; its text cannot be returned again, but `rotate`
        makes another. Raises InvalidOption, and IdempotencyConflict if the key was created with other
        options.
        """
        await self._store.open()
        now = await self._store.now()
        sent = _new_key(None if idempotency_key is None else api_key.id_from(checked_key(idempotency_key)))
        key = ApiKey(
            name=sent.id,
            label=api_key.checked_label(label),
            hash=api_key.hash_secret(sent.secret),
            scopes=api_key.checked_scopes(scopes),
            created_at=now,
            **_checked(options, now),
        )
        try:
            await self._store.put(key, self._by, None)
        except Conflict:
            raise await self._standing(key) from None
        with suppress(StoreError):  # or the next creation does it; the text must be returned now
            await self._remove_obsolete(now)
        return NewKey(key, sent.text)

    async def list(self, *, inactive: bool = False) -> Sequence[ApiKey]:
        """List keys by id, without their texts; with `inactive` also those revoked or expired."""
        keys = await list_records(self._store, ApiKey)
        now = await self._store.now()
        return [key for key in keys if inactive or api_key.is_active(key, now)]

    async def rotate(self, key_id: str, *, overlap: timedelta | float | str = api_key.OVERLAP) -> NewKey:
        """Give a key a new secret; its id, scopes and bounds stay. The text is only returned here.

            made = await app.operator.keys.rotate("xR6EmtIocwvR", overlap="7d")

        `overlap`: how long the former secret stays valid; seconds, a timedelta or text such as "7d". With 0
        all former secrets end at once. Servers know the new secret within a second. Raises NotFound, and
        Refused if the key is revoked or expired.
        """
        both_valid_for = parse_duration(overlap, "overlap")
        sent = _new_key(key_id)
        now = await self._now()
        key = await self._change(key_id, lambda key: api_key.rotated(key, sent.secret, now, both_valid_for))
        return NewKey(key, sent.text)

    async def revoke(self, key_id: str) -> None:
        """Revoke a key; servers refuse it within a second. Raises NotFound if there is none.

        It is kept for 90 days at least, and a server whose keys are all revoked stays closed.
        """
        now = await self._now()

        def revoke(key: ApiKey) -> ApiKey:
            if key.revoked_at is not None:
                raise NotFound(f"key {quoted(key_id)} is already revoked")
            return api_key.revoked(key, now)

        await self._change(key_id, revoke)

    async def logins(self) -> Sequence[Login]:
        """List who is signed in to the dashboard, the newest first."""
        keys = {key.name: key for key in await list_records(self._store, ApiKey)}
        now = await self._store.now()
        found = [
            one
            for one in await list_records(self._store, Login)
            if api_key.is_signed_in(one, keys.get(one.key), now)
        ]
        return sorted(found, key=lambda one: one.created_at, reverse=True)

    async def sign_out(self, key_id: str) -> int:
        """Sign out of the dashboard everyone who signed in with a key; return how many.

        The key stays valid. Servers notice within a second. Raises NotFound if there is no such key.
        """
        if key_id not in {key.name for key in await list_records(self._store, ApiKey)}:
            raise _no_key(key_id)
        own = [one for one in await list_records(self._store, Login) if one.key == key_id]
        removed = [await self._store.remove(Login, one.name, self._by) for one in own]
        return sum(removed)

    async def _now(self) -> datetime:
        await self._store.open()
        return await self._store.now()

    async def _change(self, key_id: str, change: Callable[[ApiKey], ApiKey]) -> ApiKey:
        def changed(stored: ApiKey | None) -> ApiKey:
            if stored is None:
                raise _no_key(key_id)
            return change(stored)

        return await change_record(self._store, ApiKey, key_id, changed, self._by)

    async def _remove_obsolete(self, now: datetime) -> None:
        """Remove keys that ended long ago: every server reads all keys once a second."""
        for key in await list_records(self._store, ApiKey):
            if api_key.is_obsolete(key, now):
                await self._store.remove(ApiKey, key.name)

    async def _standing(self, key: ApiKey) -> Refused:
        """Return the error of a repeated request: a key of this id exists."""
        existing = {one.name: one for one in await list_records(self._store, ApiKey)}.get(key.name, key)
        if not api_key.is_same_request(existing, key):
            return IdempotencyConflict(
                f"the idempotency key belongs to the key {key.name}, which was created with other options",
                standing=key.name,
            )
        return DuplicateKey(
            f"the key {key.name} was created before with this idempotency key; its text was shown once, and "
            f"`windlass keys rotate {key.name}` makes another",
            standing=key.name,
        )


def _no_key(key_id: str) -> NotFound:
    return NotFound(f"there is no key {quoted(key_id)}; `windlass keys list` shows all keys")


def _new_key(key_id: str | None) -> api_key.PresentedKey:
    made = api_key.new_key(secrets.token_bytes(_ENTROPY))
    return made if key_id is None else api_key.PresentedKey(key_id, made.secret)


def _checked(options: KeyOptions, now: datetime) -> dict[str, Any]:
    """Return the fields of a key that these options set."""
    rates = {name: value for name, value in options.items() if name not in _BOUNDS}
    tenant, queues, expires_in = options.get("tenant"), options.get("queues"), options.get("expires_in")
    return {
        "tenant": None if tenant is None else checked_name(tenant, "tenant"),
        "queues": None if queues is None else api_key.checked_queues(queues),
        "expires_at": None if expires_in is None else now + _lifetime(expires_in),
        **api_key.checked_rates(rates),
    }


def _lifetime(expires_in: timedelta | float | str) -> timedelta:
    lifetime = parse_duration(expires_in, "key's lifetime")
    if lifetime <= timedelta(0):
        raise InvalidOption(f"expires_in must be more than 0, not {quoted(expires_in)}")
    return lifetime
