"""Snapshots: copies of the owner's file in a stream of their own, in chunks, each with a manifest."""

import asyncio
import hashlib
import os
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import zstandard
from msgspec import Struct
from nats.aio.client import Client

from ..sqlite.connection.wal import write_whole
from .address import Address
from .entry import Base
from .stream import TRANSIENT
from .wire import UNREADABLE

CHUNK_BYTES = 512 * 1024
_AT_ONCE = 4
_TRIES = 50
_PAUSE = 0.1


class Manifest(Struct, frozen=True, array_like=True):
    """What a snapshot consists of."""

    base: Base
    size: int  # of the file, in bytes
    digest: bytes  # of the digests of its chunks, which would not fit into a message

    @property
    def chunks(self) -> int:
        return -(-self.size // CHUNK_BYTES)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Manifest).decode


class Snapshots:
    """The snapshots of one store."""

    def __init__(self, client: Client, address: Address) -> None:
        self._stream = client.jetstream(timeout=5)
        self._address = address

    # -- write ---------------------------------------------------------------------------------------

    async def upload(self, file: int, base: Base) -> Manifest:
        """Store a file that does not change meanwhile. It counts once an entry of the log names it."""
        size = os.fstat(file).st_size
        digests: dict[int, bytes] = {}

        async def send(at: int) -> None:
            packed = await asyncio.to_thread(_pack, file, at * CHUNK_BYTES)
            await self._publish(self._subject(base.generation, str(at)), packed)
            digests[at] = hashlib.sha256(packed).digest()

        await _for_each(range(-(-size // CHUNK_BYTES)), send)
        manifest = Manifest(base, size, _digest(digests))
        await self._publish(self._subject(base.generation, "manifest"), _encode(manifest))
        return manifest

    async def _publish(self, subject: str, data: bytes) -> None:
        for _ in range(_TRIES):
            with suppress(*TRANSIENT):
                await self._stream.publish(subject, data, timeout=5)
                return
            await asyncio.sleep(_PAUSE)
        raise TimeoutError(f"the stream {self._address.base_stream} does not accept a snapshot")

    async def delete_before(self, base: Base) -> None:
        """Delete the snapshots of earlier places, and those that were left unfinished there."""
        for generation in await self._generations():
            place = _place(generation)
            if place is not None and place < base.place:
                subject = self._subject(generation, ">")
                await self._stream.purge_stream(self._address.base_stream, subject=subject)

    # -- read ----------------------------------------------------------------------------------------

    async def manifests(self) -> list[Manifest]:
        """Return the snapshots that are complete, newest first."""
        found = []
        with suppress(*TRANSIENT):
            for generation in await self._generations(only="manifest"):
                data = await self._get(self._subject(generation, "manifest"))
                with suppress(*UNREADABLE):
                    if data is not None:
                        found.append(_decode(data))
        return sorted(found, key=lambda manifest: manifest.base.place, reverse=True)

    async def download(self, manifest: Manifest, file: int) -> bool:
        """Write the file of a snapshot; False if a chunk is missing or damaged.

        When it returns or raises, nothing more is written: the number of the file may be another's then.
        """
        digests: dict[int, bytes] = {}

        async def receive(at: int) -> None:
            packed = await self._get(self._subject(manifest.base.generation, str(at)))
            if packed is None:
                raise LookupError
            digests[at] = hashlib.sha256(packed).digest()
            write_whole(file, zstandard.decompress(packed, max_output_size=CHUNK_BYTES), at * CHUNK_BYTES)

        try:
            await _for_each(range(manifest.chunks), receive)
        except (LookupError, zstandard.ZstdError):
            return False
        os.ftruncate(file, manifest.size)
        return _digest(digests) == manifest.digest

    async def _get(self, subject: str) -> bytes | None:
        for _ in range(3):
            with suppress(*TRANSIENT):
                return (await self._stream.get_msg(self._address.base_stream, subject=subject)).data
            await asyncio.sleep(_PAUSE)
        return None

    async def _generations(self, only: str = ">") -> list[str]:
        info = await self._stream.stream_info(
            self._address.base_stream, subjects_filter=self._subject("*", only)
        )
        return sorted({subject.split(".")[2] for subject in info.state.subjects or {}})

    def _subject(self, generation: str, what: str) -> str:
        return self._address.subject("base", generation, what)


async def _for_each(places: Iterable[int], work: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """Do the work for each place, several at once; after an error nothing of it goes on."""
    left = deque(places)

    async def some() -> None:
        while left:
            await work(left.popleft())

    tasks = [asyncio.ensure_future(some()) for _ in range(_AT_ONCE)]
    try:
        await asyncio.gather(*tasks)
    finally:
        left.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _digest(digests: Mapping[int, bytes]) -> bytes:
    return hashlib.sha256(b"".join(digests[at] for at in sorted(digests))).digest()


def _place(generation: str) -> int | None:
    """Return the place of a generation, which its name begins with; None if it is not ours."""
    place = generation.partition("-")[0]
    return int(place) if place.isdecimal() else None


def _pack(file: int, at: int) -> bytes:
    return zstandard.compress(os.pread(file, CHUNK_BYTES, at), 1)
