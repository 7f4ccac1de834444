"""Snapshots: copies of the owner's file in a stream of their own, in chunks, each with a manifest."""

import asyncio
import hashlib
import os
from contextlib import suppress

import msgspec
import zstandard
from msgspec import Struct
from nats.aio.client import Client

from .address import Address
from .entry import Base
from .stream import TRANSIENT

CHUNK_BYTES = 512 * 1024
_AT_ONCE = 4
_TRIES = 50
_PAUSE = 0.1


class Manifest(Struct, frozen=True, array_like=True):
    """What a snapshot consists of."""

    base: Base
    size: int  # of the file, in bytes
    digests: list[bytes]  # of the chunks


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
        room = asyncio.Semaphore(_AT_ONCE)

        async def send(at: int) -> bytes:
            async with room:
                packed = await asyncio.to_thread(_pack, file, at * CHUNK_BYTES)
                await self._publish(self._subject(base.generation, str(at)), packed)
                return hashlib.sha256(packed).digest()

        async with asyncio.TaskGroup() as sending:
            chunks = [sending.create_task(send(at)) for at in range(-(-size // CHUNK_BYTES))]
        manifest = Manifest(base, size, [chunk.result() for chunk in chunks])
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
        with suppress(*TRANSIENT):  # The next one deletes them.
            for generation in await self._generations():
                if _place(generation) < base.place:
                    await self._stream.purge_stream(
                        self._address.base_stream, subject=self._subject(generation, ">")
                    )

    # -- read ----------------------------------------------------------------------------------------

    async def manifests(self) -> list[Manifest]:
        """Return the snapshots that are complete, newest first."""
        found = []
        with suppress(*TRANSIENT):
            for generation in await self._generations(only="manifest"):
                data = await self._get(self._subject(generation, "manifest"))
                with suppress(msgspec.DecodeError):
                    if data is not None:
                        found.append(_decode(data))
        return sorted(found, key=lambda manifest: manifest.base.place, reverse=True)

    async def download(self, manifest: Manifest, file: int) -> bool:
        """Write the file of a snapshot; False if a chunk is missing or damaged."""
        room = asyncio.Semaphore(_AT_ONCE)

        async def receive(at: int) -> bool:
            async with room:
                packed = await self._get(self._subject(manifest.base.generation, str(at)))
                if packed is None or hashlib.sha256(packed).digest() != manifest.digests[at]:
                    return False
                await asyncio.to_thread(_unpack, packed, file, at * CHUNK_BYTES)
                return True

        done = await asyncio.gather(*(receive(at) for at in range(len(manifest.digests))))
        os.ftruncate(file, manifest.size)
        return all(done)

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


def _place(generation: str) -> int:
    """Return the place of a generation, which its name begins with."""
    return int(generation.partition("-")[0])


def _pack(file: int, at: int) -> bytes:
    return zstandard.compress(os.pread(file, CHUNK_BYTES, at), 1)


def _unpack(packed: bytes, file: int, at: int) -> None:
    os.pwrite(file, zstandard.decompress(packed, max_output_size=CHUNK_BYTES), at)
