"""A client that enqueues in the transaction that is open on Django's connection."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async
from django.db import transaction

from ..._client.builder import TaskBuilder
from ..._client.client import Client, Handle, LoopThread
from ..._client.published_types import KnownTypes
from ..._model.task import Enqueued, NewTask
from ..._store.protocol import Capability, Store
from .database import open_transaction


class TransactionClient(Client):
    """Enqueues in the transaction that is open on a Django database, or after it commits.

    In it, if the store is in that database; else after the commit, and never if it is rolled back. Without an
    open transaction, and with `within=`, it enqueues as any client does.
    """

    def __init__(
        self,
        store: Store,
        builder: TaskBuilder,
        types: KnownTypes,
        loop: LoopThread,
        alias: str,
        *,
        joins: bool,
    ) -> None:
        super().__init__(store, builder, types)
        self._loop = loop
        self._alias = alias
        self._joins = joins

    async def enqueue_tasks(
        self, batch: Sequence[NewTask], *, within: object | None = None
    ) -> list[Handle[Any]]:
        """Enqueue tasks that are already built, all or none."""
        if within is not None:
            return await super().enqueue_tasks(batch, within=within)
        # In the thread in which Django runs the ORM for this code: its transaction is there. And on the loop
        # of the app, as Django makes a new one for each call of async code from a thread.
        return await sync_to_async(self.enqueue_tasks_sync)(self._loop, batch)

    def enqueue_tasks_sync(
        self, loop: LoopThread, batch: Sequence[NewTask], *, within: object | None = None
    ) -> list[Handle[Any]]:
        """Do the same for a thread without an event loop."""
        if within is not None:
            return super().enqueue_tasks_sync(loop, batch, within=within)
        enqueued = self._enqueue_in_transaction(batch)
        if enqueued is not None:
            return enqueued
        return loop.run(super().enqueue_tasks(batch))

    def _enqueue_in_transaction(self, batch: Sequence[NewTask]) -> list[Handle[Any]] | None:
        """Enqueue if a transaction is open in this thread; else return None."""
        connection = open_transaction(self._alias)
        if connection is None:
            return None
        if self._joins and Capability.JOIN in self._store.capabilities:
            return super().enqueue_tasks_sync(self._loop, batch, within=connection)
        enqueue = partial(super().enqueue_tasks, batch)
        transaction.on_commit(lambda: self._loop.run(enqueue()), using=self._alias)
        return self._handles(batch, [Enqueued(id=new.id, created=True) for new in batch])
