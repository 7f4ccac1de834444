"""Limits: list, set and remove them. What the store holds applies, whatever a program declared."""

import secrets
from collections.abc import Sequence
from typing import Unpack

from .._handler.task_types import TaskTypes
from .._model.filter import By
from .._model.limit import Limit, Usage
from .._model.record import Declaration
from .._policy.input.quote import quoted, suggestion
from .._policy.order.limit_options import LimitChanges, check_field, set_limit
from .._policy.secrets.fields import is_secret_field
from .._policy.secrets.shown import masked_usage
from .._store.protocol import Store
from ..errors import NotFound
from .declarations import check_limit
from .published_types import KnownTypes
from .records import HOW_TO_CREATE, change_record, list_records

_KEY = secrets.token_bytes(32)


class Limits:
    """List limits and what is in use of them; set, change and remove them: `app.operator.limits`."""

    def __init__(self, store: Store, by: By | None = None, types: KnownTypes | None = None) -> None:
        self._store = store
        self._types = types or KnownTypes(store, TaskTypes())
        self._by = by  # for the audit log; None: a program, whose changes are not recorded

    async def list(self) -> Sequence[Limit]:
        """List all limits, by name."""
        return await list_records(self._store, Limit)

    async def get(self, name: str) -> Limit:
        """Return a limit; raises NotFound if there is none."""
        found = {limit.name: limit for limit in await self.list()}
        if name not in found:
            raise NotFound(f"there is no limit {quoted(name)}{suggestion(name, found)}")
        return found[name]

    async def declared(self) -> frozenset[str]:
        """Return the names of the limits that programs declare in code."""
        found = await list_records(self._store, Declaration)
        return frozenset(one.subject for one in found if one.kind == "limit")

    async def set(self, name: str, *, create: bool = False, **changes: Unpack[LimitChanges]) -> Limit:
        """Change the given options of a limit; None removes one. It applies from the next claim on.

            await app.operator.limits.set("bank", running=4)
            await app.operator.limits.set("bank", type="shop.charge", rate="100/m", create=True)

        `create`: set up a new limit if there is none of this name. `all`: let it apply to all tasks; a limit
        without a queue, type and tenant must be asked for so. See `App.limit` for the options. Raises
        NotFound or InvalidOption.
        """
        known = {limit.name: limit for limit in await self.list()}

        def change(stored: Limit | None) -> Limit:
            if stored is None and not create:
                others = [one for one in known if one != name]  # it may have been removed meanwhile
                hint = suggestion(str(name), others)
                raise NotFound(f"there is no limit {quoted(name)}; {HOW_TO_CREATE}{hint}")
            return set_limit(stored, name, changes)

        await self._check(change(known.get(name)))
        return await change_record(self._store, Limit, name, change, self._by)

    async def change(self, name: str, **changes: Unpack[LimitChanges]) -> Limit:
        """Do the same as `set`, for a limit that exists."""
        return await self.set(name, **changes)

    async def _check(self, limit: Limit) -> None:
        await self._types.refresh(at_once=True)
        check_limit(limit, self._types.declared)
        check_field(limit, None, self._types.secret_for(limit))

    async def remove(self, name: str) -> None:
        """Remove a limit; raises NotFound if there is none."""
        await self.get(name)
        await self._store.remove(Limit, name, self._by)

    async def usages(self, name: str | None = None) -> Sequence[Usage]:
        """List what is in use of a limit [default: of all], for each value of its `by` that has been used.

        If that field has become secret since the limit was set, the values are digests, whose key is this
        process's own.
        """
        found = [usage for usage in await list_records(self._store, Usage) if name in (None, usage.limit)]
        return await masked_usages(self._store, self._types, found)


async def masked_usages(store: Store, types: KnownTypes, usages: Sequence[Usage]) -> Sequence[Usage]:
    """Return what is in use of limits, with digests of the values of secret fields."""
    await types.refresh()
    secret = {
        limit.name
        for limit in (await list_records(store, Limit) if usages else ())
        if limit.field is not None and is_secret_field(limit.field, types.secret_for(limit))
    }
    return [masked_usage(usage, _KEY) if usage.limit in secret else usage for usage in usages]
