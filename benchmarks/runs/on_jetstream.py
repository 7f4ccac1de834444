"""What a standby of a store on JetStream does, step by step: it plays the log, or begins from a snapshot."""

import os
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.runs import probe
from windlass import App
from windlass._stores.jetstream.address import parse
from windlass._stores.jetstream.client import connect
from windlass._stores.jetstream.entry import Base
from windlass._stores.jetstream.follower import Follower
from windlass._stores.jetstream.snapshots import Snapshots
from windlass._stores.jetstream.stream import StreamLog
from windlass.testing.conformance.steps import worker_on

T = TypeVar("T")

SILENCE_SECONDS = 1.2


def recover(url: str, folder: str) -> dict[str, Any]:
    """Play the log of a store that nobody owns; upload the file as a snapshot, and download it again."""

    async def work() -> dict[str, Any]:
        address = parse(url)
        client = await connect(address)
        log, snapshots = StreamLog(client, address), Snapshots(client, address)
        follower = Follower(log, snapshots, Path(folder))
        extent = await log.extent()
        assert extent is not None
        played, _ = await _timed(follower.follow(SILENCE_SECONDS))
        size = os.fstat(follower.file).st_size
        uploaded, manifest = await _timed(snapshots.upload(follower.file, Base("0-measured", 0, 0, 0)))
        packed = (await client.jetstream().stream_info(address.base_stream)).state.bytes
        with (Path(folder) / "copy").open("w+b") as copy:
            downloaded, is_whole = await _timed(snapshots.download(manifest, copy.fileno()))
        assert is_whole, "the snapshot is damaged"
        follower.close()
        await client.close()
        seconds = {"played": played, "uploaded": uploaded, "downloaded": downloaded}
        return seconds | {"log": extent.bytes / 1e6, "file": size / 1e6, "packed": packed / 1e6}

    return probe.looped(work())


def claim(url: str) -> dict[str, Any]:
    """Claim a task as soon as there is an owner; return when that was, by the clock of all processes."""

    async def work() -> float:
        app = App(url)
        worker = await worker_on(app.store)
        assert await worker.claim(1)
        claimed = time.monotonic()
        await app.close()
        return claimed

    return {"claimed": probe.looped(work())}


async def _timed(work: Awaitable[T]) -> tuple[float, T]:
    started = time.perf_counter()
    done = await work
    return time.perf_counter() - started, done


if __name__ == "__main__":
    probe.main({"recover": recover, "claim": claim})
