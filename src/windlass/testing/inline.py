"""Inline mode: tasks run where they are enqueued, before `enqueue` returns."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from .._client.client import Client, Handle, LoopThread
from .._client.sync.client import SyncClient
from .._model.task import NewTask
from ..app import App


class Runs(Protocol):
    """What runs tasks: a harness."""

    def run_until_idle(self) -> int: ...
    async def arun_until_idle(self) -> int: ...


class InlineClient(Client):
    """A client that runs what is due after each enqueue, unless a task that it runs has called it."""

    def __init__(self, app: App, runs: Runs) -> None:
        super().__init__(app.store, app.builder, app.client.types)
        self._runs = runs
        self._is_running = False

    async def enqueue_tasks(
        self, batch: Sequence[NewTask], *, within: object | None = None
    ) -> list[Handle[Any]]:
        """Enqueue, then run what is due on the caller's event loop."""
        handles = await super().enqueue_tasks(batch, within=within)
        if not self._is_running:
            with self._running():
                await self._runs.arun_until_idle()
        return handles

    def enqueue_tasks_sync(
        self, loop: LoopThread, batch: Sequence[NewTask], *, within: object | None = None
    ) -> list[Handle[Any]]:
        """Enqueue, then run what is due in the caller's thread."""
        if self._is_running:
            return super().enqueue_tasks_sync(loop, batch, within=within)
        with self._running():
            handles = super().enqueue_tasks_sync(loop, batch, within=within)
            self._runs.run_until_idle()
        return handles

    @contextmanager
    def _running(self) -> Iterator[None]:
        self._is_running = True
        try:
            yield
        finally:
            self._is_running = False


@contextmanager
def inline(app: App, runs: Runs) -> Iterator[None]:
    """Run a block in which the tasks of the app run where they are enqueued."""
    before = app.client, app.sync_client
    app.client = InlineClient(app, runs)
    app.sync_client = SyncClient(app.client, LoopThread())
    try:
        yield
    finally:
        app.client, app.sync_client = before
