"""Endpoints of webhooks that responded with 410 Gone: list them, and enable them again."""

from collections.abc import Sequence

from .._model.filter import By
from .._model.record import DisabledEndpoint
from .._model.task import TaskId
from .._policy.endpoint import disabled_endpoint, to_forget
from .._policy.input.quote import quoted
from .._store.protocol import Store
from ..errors import NotFound
from .records import list_records


class Endpoints:
    """List and enable endpoints that deliver_webhook sends nothing to: `app.operator.endpoints`."""

    def __init__(self, store: Store, by: By | None = None) -> None:
        self._store = store
        self._by = by  # for the audit log; None: a program, whose changes are not recorded

    async def list(self) -> Sequence[DisabledEndpoint]:
        """List the disabled endpoints, longest disabled first."""
        return sorted(await list_records(self._store, DisabledEndpoint), key=lambda one: (one.at, one.name))

    async def disable(self, endpoint: str, *, tenant: str = "", task_id: TaskId) -> DisabledEndpoint:
        """Disable an endpoint for the tasks of a tenant, as this task has learned that it is gone.

        `endpoint`: as in payloads, a URL or the name of a configured one. Workers heed it within 10 seconds.
        """
        await self._store.open()
        disabled = disabled_endpoint(endpoint, tenant, await self._store.now(), task_id)
        others = [one for one in await self.list() if one.name != disabled.name]
        for one in to_forget(others):
            await self._store.remove(DisabledEndpoint, one.name)
        await self._store.put(disabled, self._by)
        return disabled

    async def enable(self, id: str) -> None:
        """Let messages be sent to an endpoint again, by the `name` of its record. Raises NotFound.

        Dead letters for it are not replayed.
        """
        await self._store.open()
        if not await self._store.remove(DisabledEndpoint, id, self._by):
            raise NotFound(f"no disabled endpoint has the id {quoted(id)}; see `windlass endpoints list`")
