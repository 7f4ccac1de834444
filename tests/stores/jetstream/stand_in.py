"""A log in memory, whose stores and replies wait when told to, and a reign over it."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from windlass._ids import new_id
from windlass._model.task import NewTask
from windlass._stores.jetstream.address import Address
from windlass._stores.jetstream.checks import Servers
from windlass._stores.jetstream.entry import Base, Entry, Kind, decode, encode
from windlass._stores.jetstream.follower import Follower
from windlass._stores.jetstream.reign import OwnerSettings, Reign
from windlass._stores.jetstream.snapshots import Manifest
from windlass._stores.jetstream.stream import Extent

SERVERS = Servers(version=(2, 15, 1), replicas=3, max_payload=1 << 20, synced=True)


class MemoryLog:
    """A log that works; while it is held, publishes wait before they are stored."""

    def __init__(self) -> None:
        self.stored: list[bytes] = []
        self.first = 1
        self.held: list[Kind] = []  # what waits
        self._kinds: tuple[Kind, ...] = ()
        self._flows = asyncio.Event()
        self._flows.set()

    def hold(self, *kinds: Kind) -> None:
        """Let publishes of entries of these kinds wait."""
        self._kinds = kinds
        self._flows.clear()

    def let_go(self) -> None:
        self._flows.set()

    def usurp(self) -> None:
        """Another process takes the store over."""
        place = len(self.stored) + 1
        self.stored.append(encode(Entry(Kind.TAKE, place, 0, "another", 0)))

    async def publish(self, data: bytes, place: int) -> int | None:
        kind = Kind(decode(data).kind)
        if kind in self._kinds and not self._flows.is_set():
            self.held.append(kind)
            await self._flows.wait()
        if place != len(self.stored) + 1:
            return None
        self.stored.append(data)
        return place

    async def read(self, place: int) -> bytes | None:
        return self.stored[place - 1] if self.first <= place <= len(self.stored) else None

    async def extent(self) -> Extent:
        return Extent(self.first, len(self.stored))

    async def entries(self, place: int) -> AsyncGenerator[list[tuple[int, bytes]], None]:
        while place >= self.first:
            found = list(enumerate(self.stored[place - 1 :], place))
            place += len(found)
            yield found

    async def delete_through(self, place: int) -> None:
        self.first = place + 1


class MemorySnapshots:
    """Snapshots of a reign over a log in memory."""

    def __init__(self) -> None:
        self.files: dict[Base, bytes] = {}

    async def upload(self, file: int, base: Base) -> Manifest:
        with open(file, "rb", closefd=False) as copied:  # noqa: ASYNC230 - in memory
            copied.seek(0)
            self.files[base] = copied.read()
        return Manifest(base, len(self.files[base]), b"")

    async def delete_before(self, base: Base) -> None:
        self.files = {kept: data for kept, data in self.files.items() if kept.place >= base.place}

    async def manifests(self) -> list[Manifest]:
        return [Manifest(base, len(data), b"") for base, data in self.files.items()]

    async def download(self, manifest: Manifest, file: int) -> bool:
        os.pwrite(file, self.files[manifest.base], 0)
        return True


class Nobody:
    """A NATS client that nobody talks to. It keeps the answers that were published."""

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes]] = []

    async def subscribe(self, *_: Any, **__: Any) -> "Nobody":
        return self

    async def unsubscribe(self) -> None: ...

    async def publish(self, subject: str, data: bytes, **_: Any) -> None:
        if ".wake." not in subject and not subject.endswith(".new"):
            self.published.append((subject, data))


@asynccontextmanager
async def reigning(
    folder: Path,
    log: MemoryLog,
    snapshots: MemorySnapshots,
    client: Nobody | None = None,
    *,
    beat: float = 1000.0,
) -> AsyncIterator[Reign]:
    """A reign that has taken the store over; it does not beat within a test, unless told to."""
    follower = Follower(log, snapshots, folder)  # type: ignore[arg-type]
    reign = Reign(
        "owner",
        client=client or Nobody(),  # type: ignore[arg-type]
        address=Address(hosts=()),
        settings=OwnerSettings(depth=4, beat=beat),
        follower=follower,
        log=log,  # type: ignore[arg-type]
        snapshots=snapshots,  # type: ignore[arg-type]
        servers=SERVERS,
        clock=None,
    )
    try:
        await reign.take()
        yield reign
    finally:
        log.let_go()
        await reign.close()
        follower.close()


def new_task(**options: Any) -> NewTask:
    task_id = new_id()
    return NewTask(id=task_id, type="t", payload=b"{}", root=task_id, **options)
