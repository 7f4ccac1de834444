"""Quotas of tenants: list, set and remove them, and count what is used."""

from collections.abc import Mapping, Sequence

from .._model.filter import By, Dimension, Filter
from .._model.limit import OTHERS, Quota, Use
from .._policy.input.quote import quoted, suggestion
from .._policy.quota import new_quota, uses
from .._store.protocol import Store
from ..errors import NotFound
from .records import list_records


class Quotas:
    """List, set and remove how much tenants may have stored: `app.operator.quotas`.

    `windlass serve` enforces them on everything that is enqueued over HTTP. Programs that have the database
    itself are not held to them.
    """

    def __init__(self, store: Store, by: By | None = None) -> None:
        self._store = store
        self._by = by  # for the audit log; None: a program, whose changes are not recorded

    async def list(self) -> Sequence[Quota]:
        """List all quotas, by tenant. "*" is the one of every tenant without an own quota."""
        return await list_records(self._store, Quota)

    async def get(self, tenant: str) -> Quota:
        """Return a tenant's own quota, or that of "*"; raises NotFound if there is none."""
        found = {quota.name: quota for quota in await self.list()}
        if tenant not in found:
            raise NotFound(f"there is no quota for {quoted(tenant)}{suggestion(tenant, found)}")
        return found[tenant]

    async def set(
        self, tenant: str = OTHERS, *, tasks: int | None = None, bytes: int | str | None = None
    ) -> Quota:
        """Set the quota of a tenant, in place of its present one. Servers apply it within 2 seconds.

            await app.operator.quotas.set("acme", tasks=100_000, bytes="2GB")

        `tenant`: [default: "*", every tenant without an own quota]. `tasks`: at most this many stored, ended
        ones and steps to come included. `bytes`: at most this much in payloads, results and following steps;
        a number, or text such as "500MB". None is no bound. Raises InvalidOption.
        """
        quota = new_quota(tenant, tasks=tasks, bytes=bytes)
        await self._store.open()
        await self._store.put(quota, self._by)
        return quota

    async def remove(self, tenant: str) -> None:
        """Remove a quota; raises NotFound if there is none."""
        await self.get(tenant)
        await self._store.remove(Quota, tenant, self._by)

    async def uses(self) -> Mapping[str, Use]:
        """Count what each tenant has stored, with a quota or not. Reads every task, so it may take a while.

        The tenant "" has the tasks without one.
        """
        await self._store.open()
        return uses(await self._store.count(Filter(), (Dimension.TENANT,), sized=True))
