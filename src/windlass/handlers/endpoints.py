"""Which endpoints are disabled, as the store has it; remembered for some seconds."""

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING

from .._model.filter import By
from .._model.record import DisabledEndpoint
from .._model.task import Task
from .._policy.endpoint import endpoint_id
from ..errors import WindlassError

if TYPE_CHECKING:
    from ..app import App

FRESH_FOR = 10.0
"""Seconds after which a worker reads from the store again which endpoints are disabled."""

logger = logging.getLogger("windlass.handlers")


class DisabledEndpoints:
    """The endpoints that responded with 410 Gone to any worker, until an operator enables them."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._known: dict[str, DisabledEndpoint] = {}
        self._until = 0.0  # by the monotonic clock
        self._reading: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def find(self, endpoint: str, tenant: str) -> DisabledEndpoint | None:
        """Return how an endpoint was disabled for a tenant; None if it is not."""
        if monotonic() >= self._until:
            async with self._lock():
                if monotonic() >= self._until:
                    await self._read()
        return self._known.get(endpoint_id(endpoint, tenant)) if self._known else None

    async def disable(self, endpoint: str, task: Task) -> DisabledEndpoint:
        """Disable an endpoint for the tenant of this task, in all workers."""
        by = By(who=task.type, why=f"410 Gone to task {task.id}")
        operator = self._app.operator.acting_as(by)
        disabled = await operator.endpoints.disable(endpoint, tenant=task.tenant, task_id=task.id)
        self._known[disabled.name] = disabled
        return disabled

    async def _read(self) -> None:
        try:
            self._known = {one.name: one for one in await self._app.operator.endpoints.list()}
        except WindlassError as error:  # messages are not held up by what is only about a few
            logger.warning("cannot read which endpoints are disabled: %s", error)
        self._until = monotonic() + FRESH_FOR

    def _lock(self) -> asyncio.Lock:
        """Return the lock of this event loop: tasks that start together read once."""
        loop = asyncio.get_running_loop()
        if self._reading is None or self._loop is not loop:
            self._reading, self._loop = asyncio.Lock(), loop
        return self._reading
