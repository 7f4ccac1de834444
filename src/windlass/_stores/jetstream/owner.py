"""The process that owns a store, or waits to: it follows the log, takes over, serves, and gives up."""

import asyncio
import logging
import os
import random
import secrets
import socket
import sqlite3
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from ..._store.clock import Clock
from ...errors import SchemaMismatch, StoreError
from ..migrations import require_current
from ..sqlite import schema
from .address import Address
from .checks import Servers, prepare, presence
from .client import connect
from .follower import Follower
from .log import FencedError
from .reign import OwnerSettings, Reign
from .snapshots import Snapshots
from .stream import TRANSIENT, StreamLog

logger = logging.getLogger("windlass.owner")

CANCEL_SECONDS = 5.0
"""After which work is cancelled again that goes on although it was cancelled."""

_LOOK_SECONDS = 5.0
_MEND_SECONDS = 5.0
"""After which an owner tries again whose disk is full or broken; another has taken over by then."""


class Owner:
    """One process of those that may own a store.

    It keeps its copy of the store in `folder`, which it may lose. With `if_fewer_than` it does not follow the
    log while so many others do: workers by the hundred need not copy it all.
    """

    def __init__(
        self,
        address: Address,
        folder: Path,
        *,
        settings: OwnerSettings | None = None,
        clock: Clock | None = None,
        if_fewer_than: int | None = None,
    ) -> None:
        self.address = address
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self.settings = settings or OwnerSettings()
        self._clock = clock
        self._folder = folder
        self._if_fewer_than = if_fewer_than
        self._follows = False
        self._stopping = asyncio.Event()
        self._closed = asyncio.Event()  # the connection, by a server and for good
        self._reign: Reign | None = None
        self._servers: Servers | None = None
        self.owns = asyncio.Event()

    async def run(self) -> None:
        """Follow and own the store in turn, until `stop`. Raises StoreError if the servers are unfit."""
        await self._run_connected()
        while not self._stopping.is_set():
            await self._unless_stopped(asyncio.sleep(_MEND_SECONDS))
            try:
                await self._run_connected()
            except StoreError as error:
                logger.warning("%s neither owns %s nor stands by: %s", self.name, self.address.display, error)

    async def _run_connected(self) -> None:
        """Do so until `stop`, or until a server closes the connection, as when credentials expire."""
        self._closed.clear()
        client = await connect(self.address, reconnected=self._reconnected, closed=self._note_closed)
        try:
            await _unless(self._closed, self._work(client))
            if self._closed.is_set():
                why = client.last_error
                logger.warning("NATS at %s closed the connection: %s", self.address.display, why)
        finally:
            with suppress(*TRANSIENT):
                await client.close()

    async def _work(self, client: Client) -> None:
        if await self._unless_stopped(self._prepare(client)):
            await self._follow_and_own(client)

    async def _prepare(self, client: Client) -> None:
        self._servers = await prepare(client, self.address)
        await client.subscribe(self.address.subject("owners"), cb=self._tell_presence)
        await self._wait_until_needed(client)

    async def _follow_and_own(self, client: Client) -> None:
        log, snapshots = StreamLog(client, self.address), Snapshots(client, self.address)
        try:
            follower = Follower(log, snapshots, self._folder)
        except OSError as error:
            raise StoreError(
                f"cannot keep a copy of {self.address.display} in {self._folder}: {error.strerror}; make "
                f"room there, or choose another folder (--owner-folder)"
            ) from error
        logger.info("%s stands by for %s", self.name, self.address.display)
        try:
            is_whole = True
            while not self._stopping.is_set():
                try:
                    if not is_whole:
                        follower.begin()
                    is_whole = True
                    await self._next_reign(client, log, snapshots, follower)
                except (OSError, sqlite3.Error, StoreError):
                    logger.exception("%s cannot keep a copy of %s", self.name, self.address.display)
                    is_whole = self._follows = False
                    await self._unless_stopped(asyncio.sleep(_MEND_SECONDS))
                    self._follows = True
        finally:
            follower.close()

    async def _wait_until_needed(self, client: Client) -> None:
        """Wait until fewer processes follow the log than are enough."""
        enough = self._if_fewer_than
        while not self._follows:
            self._follows = enough is None or len(await presence(client, self.address)) < enough
            if not self._follows:
                await asyncio.sleep(_LOOK_SECONDS * random.uniform(0.5, 1.5))

    def stop(self) -> None:
        """Hand the store over, if it is owned here, and end."""
        self._stopping.set()

    async def _next_reign(
        self, client: Client, log: StreamLog, snapshots: Snapshots, follower: Follower
    ) -> None:
        assert self._servers is not None
        silence = self.settings.silence * random.uniform(1, 1.3)
        if not await self._unless_stopped(follower.follow(silence, self._usurp_after())):
            return
        try:
            _check_schema(follower.path)
        except SchemaMismatch as error:
            logger.warning("cannot own %s: %s", self.address.display, error)
            await self._unless_stopped(asyncio.sleep(self.settings.silence * 5))
            return
        reign = Reign(
            f"{self.name}-{secrets.token_hex(4)}",
            client=client,
            address=self.address,
            settings=self.settings,
            follower=follower,
            log=log,
            snapshots=snapshots,
            servers=self._servers,
            clock=self._clock,
        )
        try:
            if await self._unless_stopped(reign.take()):
                self._reign = reign
                self.owns.set()
                logger.info("%s owns %s, from %d on", self.name, self.address.display, reign.appender.epoch)
                why = await reign.serve(self._stopping)
                logger.info("%s no longer owns %s: %s", self.name, self.address.display, why)
        except FencedError:
            pass  # Another was faster, or took over at once.
        except StoreError:
            if not reign.appender.fenced.done():
                raise
        finally:
            self._reign = None
            self.owns.clear()
            await reign.close()
            if reign.is_opened:  # Its file is ahead of the log, or may be.
                follower.begin()
        if reign.unfit.done():
            raise reign.unfit.result()

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """Wait for the work to finish; False if it was stopped instead."""
        return await _unless(self._stopping, work)

    def _usurp_after(self) -> float | None:
        after = self.settings.usurp_after
        return None if after is None else after * random.uniform(0.5, 1.5)

    async def _note_closed(self) -> None:
        self._closed.set()

    async def _reconnected(self) -> None:
        """Let clients repeat what they have asked: requests and answers got lost with the connection."""
        if self._reign is not None:
            await self._reign.announce()

    async def _tell_presence(self, message: Msg) -> None:
        """Answer whoever asks which processes own the store or stand by."""
        if not self._follows:
            return
        role = "standby" if self._reign is None else "owner"
        with suppress(*TRANSIENT):
            await message.respond(msgspec.msgpack.encode([self.name, role]))


async def _unless(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Wait for the work to finish; False if the event came first, which cancels it."""
    task, waiting = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return not event.is_set()
        return False
    finally:
        waiting.cancel()
        while not task.done():  # asyncio.wait_for, which nats-py uses, can swallow it on Python 3.11.
            task.cancel()
            await asyncio.wait([task], timeout=CANCEL_SECONDS)
        await asyncio.gather(task, waiting, return_exceptions=True)


def _check_schema(path: Path) -> None:
    """Raise SchemaMismatch if the file was written by a newer windlass."""
    if path.stat().st_size == 0:
        return
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        number = schema.number(connection)
    finally:
        connection.close()
    if number > len(schema.steps()):
        require_current(schema.steps(), number, str(path))
