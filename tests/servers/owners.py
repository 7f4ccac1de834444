"""Owners of stores on NATS, on an event loop in a thread of their own.

with Owners() as owners:
    owners.start(server.new_url(), tmp_path)
"""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import nats.js.errors

from windlass._store.clock import Clock
from windlass._stores.jetstream.address import Address, parse
from windlass._stores.jetstream.client import connect
from windlass._stores.jetstream.owner import Owner
from windlass._stores.jetstream.reign import OwnerSettings

T = TypeVar("T")

QUICK = OwnerSettings(beat=0.1, silence=0.5)
PATIENCE_SECONDS = 30.0  # a cluster on a busy machine deletes a stream in more than the 5 s of the client


class Owners:
    """Owners that end, together with their stores, at the end of `with`."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="owners", daemon=True)
        self._thread.start()
        self._owners: dict[Owner, asyncio.Task[None]] = {}
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._stop_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def start(
        self, url: str, folder: Path, *, clock: Clock | None = None, settings: OwnerSettings = QUICK
    ) -> Owner:
        """Start an owner, and wait until it owns the store."""
        return self._call(self._start(parse(url), folder, clock, settings, until_it_owns=True))

    def stand_by(self, url: str, folder: Path, *, settings: OwnerSettings = QUICK) -> Owner:
        """Start an owner that takes over from another."""
        return self._call(self._start(parse(url), folder, None, settings, until_it_owns=False))

    def stop(self, owner: Owner) -> None:
        """Let it hand the store over, and wait until it has ended."""
        self._call(self._stop(owner))

    def clear(self) -> None:
        """Stop all owners and delete their stores."""
        self._call(self._stop_all())

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=40)

    async def _start(
        self,
        address: Address,
        folder: Path,
        clock: Clock | None,
        settings: OwnerSettings,
        *,
        until_it_owns: bool,
    ) -> Owner:
        owner = Owner(address, folder / "owners", settings=settings, clock=clock)
        running = self._owners[owner] = asyncio.create_task(owner.run())
        if until_it_owns:
            owns = asyncio.create_task(owner.owns.wait())
            await asyncio.wait([running, owns], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        return owner

    async def _stop(self, owner: Owner) -> None:
        running = self._owners.pop(owner)
        owner.stop()
        await running

    async def _stop_all(self) -> None:
        stores = {owner.address.name: owner.address for owner in self._owners}
        for owner in list(self._owners):
            await self._stop(owner)
        for address in stores.values():
            client = await connect(address)
            for stream in (address.log_stream, address.base_stream):
                with suppress(nats.js.errors.NotFoundError):
                    await client.jetstream(timeout=PATIENCE_SECONDS).delete_stream(stream)
            await client.close()
