"""The reign of one owner: it takes the store over, serves it, and ends when another has it."""

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any

from msgspec import Struct
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from ..._store.clock import Clock
from ..._store.messages import (
    REQUESTS,
    AboutRequest,
    CheckRequest,
    ClaimRequest,
    EnqueueRequest,
    HeartbeatRequest,
    Request,
    SettleRequest,
)
from ...errors import InvalidOption, StoreUnavailable, WindlassError
from ..sqlite.connection.errors import is_of_disk
from .address import INBOXES, Address
from .checks import Servers, current_findings, presence
from .follower import Follower
from .log import Appender, FencedError
from .notify import Announcer
from .owned_store import OwnedStore, ReignClock, at
from .snapshots import Snapshots
from .stream import TRANSIENT, StreamLog
from .wire import Answer, Gathered, answered, decode_requests, encode_answers, failed, in_parts

logger = logging.getLogger("windlass.owner")

_LEAVE_SECONDS = 5.0
_LAST_PAUSE = 60.0  # seconds between snapshots that fail


class OwnerSettings(Struct, frozen=True, kw_only=True):
    """How an owner behaves. The defaults suit a cluster in one region."""

    beat: float = 0.3  # seconds without an entry after which an idle owner appends one
    silence: float = 1.2  # after which a standby takes over
    depth: int = 3  # commits in flight
    snapshot_bytes: int = 256 << 20  # of the log, or as much as the file has, whatever is more
    usurp_after: float | None = None  # in tests: take over after this time without need


class Reign:
    """What one owner does between its TAKE and its end."""

    def __init__(  # noqa: PLR0913  one for each thing that it works with
        self,
        name: str,
        *,
        client: Client,
        address: Address,
        settings: OwnerSettings,
        follower: Follower,
        log: StreamLog,
        snapshots: Snapshots,
        servers: Servers,
        clock: Clock | None,
    ) -> None:
        self._client, self._address, self._settings = client, address, settings
        self._follower, self._log, self._snapshots = follower, log, snapshots
        self._clock = ReignClock(clock, at(follower.now))
        self.appender = Appender(
            log, place=follower.chain.place + 1, owner=name, now=self._clock.microseconds
        )
        self._announcer = Announcer(address, lambda subject, data: self._spawn(self._publish(subject, data)))
        self._store = OwnedStore(
            follower.path,
            appender=self.appender,
            depth=settings.depth,
            wake=self._announcer.announce,
            clock=self._clock,
            servers=servers,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._gathered = Gathered()
        self._in_progress: set[str] = set()  # requests, by the inbox that waits for the answer
        self._subscriptions: list[Subscription] = []
        self._beating: asyncio.Task[None] | None = None
        self.unfit: asyncio.Future[WindlassError] = asyncio.get_running_loop().create_future()
        self.is_opened = False

    async def take(self) -> None:
        """Take the store over. Raises FencedError if another was faster."""
        silence = self._clock.now() - at(self._follower.now) if self._follower.now else timedelta(0)
        await self.appender.take()
        self._beating = asyncio.create_task(self._beat())  # From here on, as a migration may take long.
        self.is_opened = True
        await self._store.open()
        await self._store.extend_leases(silence)
        self._subscriptions = [
            await self._client.subscribe(self._address.subject("ask", verb), cb=self._hear)
            for verb in REQUESTS
        ]
        await self.announce()

    async def announce(self) -> None:
        """Let clients repeat whatever has not been answered."""
        await self._publish(self._address.subject("new"), b"")

    async def serve(self, stopping: asyncio.Event) -> str:
        """Serve until another owns the store, or `stopping`, or `unfit`; return why it ended."""
        checked = asyncio.create_task(self._snapshot_when_due())
        stopped = asyncio.create_task(stopping.wait())
        try:
            waited: list[asyncio.Future[Any]] = [self.appender.fenced, self.unfit, stopped]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            return self.appender.fenced.result() if self.appender.fenced.done() else await self._leave()
        finally:
            for task in (checked, stopped):
                task.cancel()
            await asyncio.gather(checked, stopped, return_exceptions=True)

    async def _beat(self) -> None:
        """Show standbys that the store is owned, whenever nothing else was appended for a while."""
        while not self.appender.fenced.done():
            await asyncio.sleep(self._settings.beat)
            self.appender.beat(self._settings.beat)

    def _stop_beating(self) -> None:
        if self._beating is not None:
            self._beating.cancel()

    async def _leave(self) -> str:
        """Finish what was asked, then let a standby take over at once."""
        await self._unsubscribe()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LEAVE_SECONDS)
        self._stop_beating()
        with suppress(FencedError, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                await asyncio.shield(self.appender.leave())
        self.appender.fence("it was handed over")
        return "it was handed over"

    async def close(self) -> None:
        """Stop serving, without an answer to anything that is left."""
        self.appender.fence("it was closed")
        self._stop_beating()
        await self._unsubscribe()
        self._announcer.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.is_opened:
            await self._store.close()

    async def _unsubscribe(self) -> None:
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            with suppress(*TRANSIENT):
                await subscription.unsubscribe()

    # -- requests ------------------------------------------------------------------------------------

    async def _hear(self, message: Msg) -> None:
        if not message.reply.startswith(INBOXES):
            return  # Who may only ask could otherwise publish to the log, by the owner's permissions.
        if message.reply in self._in_progress:
            return  # It was sent again, as it takes long: to carry it out twice would take longer.
        try:
            whole = self._gathered.add(message.reply, message.data, message.headers)
        except ValueError:
            return
        if whole is not None:
            self._in_progress.add(message.reply)
            self._spawn(self._answer(message.subject.rpartition(".")[2], whole, message.reply))

    async def _publish(self, subject: str, data: bytes) -> None:
        with suppress(*TRANSIENT):
            await self._client.publish(subject, data)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, verb: str, data: bytes, reply: str) -> None:
        try:
            answers = await self._answers(verb, data)
            if answers is not None:
                with suppress(*TRANSIENT):
                    for part, headers in in_parts(encode_answers(answers)):
                        await self._client.publish(reply, part, headers=headers)
        finally:
            self._in_progress.discard(reply)

    async def _answers(self, verb: str, data: bytes) -> list[Answer] | None:
        """Carry out the requests of a message; None if they must not be answered."""
        try:
            requests = decode_requests(verb, data)
        except InvalidOption as error:
            return [failed(error)]
        found = [await self._carry_out(requests[0])] if len(requests) == 1 else await self._all(requests)
        answers = [one for one in found if one is not None]
        return answers if len(answers) == len(found) else None

    async def _all(self, requests: list[Request[Any]]) -> list[Answer | None]:
        batches = [request.batch for request in requests if isinstance(request, EnqueueRequest)]
        together = await self._store.enqueue_together(batches) if batches else None
        if together is not None:
            return [answered(one) for one in together]
        return await asyncio.gather(*(self._carry_out(one) for one in requests))

    async def _carry_out(self, request: Request[Any]) -> Answer | None:
        """Carry out a request; None if it must not be answered, as another may own the store."""
        began = time.monotonic()
        try:
            value = await request.call(self._store)
            self._note(request, value, began)
            if isinstance(request, CheckRequest):
                value = (*value, *await current_findings(self._client, self._address))
            if isinstance(request, AboutRequest):
                await self._store.confirm()
            return answered(value)
        except FencedError:
            return None
        except WindlassError as error:
            is_silent = self.appender.fenced.done() or (is_of_disk(error) and await self._is_relieved(error))
            return None if is_silent else failed(error)
        except Exception as error:
            if self.appender.fenced.done():
                return None
            logger.exception("cannot carry out a request of %s", request.verb)
            return failed(StoreUnavailable(f"the owner of the store failed: {type(error).__name__}"))

    async def _is_relieved(self, error: WindlassError) -> bool:
        """Whether a standby can serve in place of this process, whose disk is full or broken; let it then."""
        if not self.unfit.done():
            with suppress(*TRANSIENT):
                others = await presence(self._client, self._address)
                if "standby" in others.values() and not self.unfit.done():
                    self.unfit.set_result(error)
        return self.unfit.done()

    def _note(self, request: Request[Any], value: Any, began: float) -> None:
        """Take into account for hints what claims got, and how many workers there are."""
        if isinstance(request, ClaimRequest):
            self._announcer.note_claim(request.claim, len(value), began)
        elif isinstance(request, SettleRequest) and request.claim is not None:
            self._announcer.note_claim(request.claim, len(value.claimed), began)
        elif isinstance(request, HeartbeatRequest) and value.alive:
            self._announcer.workers = value.workers

    # -- snapshots -----------------------------------------------------------------------------------

    async def _snapshot_when_due(self) -> None:
        """Replace the beginning of the log by a snapshot whenever it has grown."""
        pause = first_pause = self._settings.beat * 3
        while not self.appender.fenced.done():
            await asyncio.sleep(pause)
            try:
                extent = await self._log.extent()
                size = os.fstat(self._follower.file).st_size
                if extent is not None and extent.bytes > max(self._settings.snapshot_bytes, size):
                    await self._snapshot()
                pause = first_pause
            except FencedError:
                return
            except Exception:  # The log only grows meanwhile.
                pause = min(pause * 2, _LAST_PAUSE)
                text = "cannot replace the log of %s by a snapshot; trying again in %.0f s"
                logger.warning(text, self._address.display, pause, exc_info=True)

    async def _snapshot(self) -> None:
        try:
            base = await self._store.freeze(secrets.token_hex(4))
            if base is None:
                return
            await self._snapshots.upload(self._follower.file, base)
            await asyncio.shield(self.appender.snapshot(base))
        finally:
            self._store.thaw()
        await self._log.delete_through(base.place)
        await self._snapshots.delete_before(base)
