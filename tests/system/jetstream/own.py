"""An owner process: `python -m tests.system.jetstream.own '{"url": "nats://…", "folder": "…"}'`.

It runs until SIGTERM, when it hands over. Other options are those of OwnerSettings; `skew`, the error of its
clock in seconds; `snapshot_every`, the seconds between two snapshots; `part_bytes`, above which commits have
parts; and `checkpoint_frames`, after which it empties the WAL of its file.
"""

import asyncio
import json
import logging
import os
import signal
import sys
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from random import uniform
from typing import Any

from windlass._store.clock import SystemClock
from windlass._stores.jetstream import commits, entry
from windlass._stores.jetstream.address import parse
from windlass._stores.jetstream.log import FencedError
from windlass._stores.jetstream.owner import Owner
from windlass._stores.jetstream.reign import OwnerSettings, Reign
from windlass._stores.jetstream.stream import TRANSIENT
from windlass.errors import StoreError

LARGE_BYTES = 20_000_000


class WrongClock(SystemClock):
    """The machine's clock, wrong by this much."""

    def __init__(self, skew: timedelta) -> None:
        self._skew = skew

    def now(self) -> datetime:
        return super().now() + self._skew


def snapshot_often(seconds: float) -> None:
    """Let owners write a snapshot again and again, however small the log is; unless the store is large."""

    async def snapshot(self: Reign) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), seconds * uniform(0.5, 1.5))
            if os.fstat(self._follower.file).st_size > LARGE_BYTES:
                continue
            try:
                await self._snapshot()
            except FencedError:
                return
            except (StoreError, *TRANSIENT):
                continue
            logging.getLogger("windlass.owner").info("wrote a snapshot")

    Reign._snapshot_when_due = snapshot  # type: ignore[method-assign]


async def own(
    url: str,
    folder: str,
    skew: float = 0.0,
    snapshot_every: float = 3600.0,
    part_bytes: int = entry.MAX_PART_BYTES,
    checkpoint_frames: int = commits.CHECKPOINT_FRAMES,
    **settings: Any,
) -> None:
    snapshot_often(snapshot_every)
    entry.MAX_PART_BYTES, commits.CHECKPOINT_FRAMES = part_bytes, checkpoint_frames
    clock = WrongClock(timedelta(seconds=skew))
    owner = Owner(parse(url), Path(folder), settings=OwnerSettings(**settings), clock=clock)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, owner.stop)
    await owner.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    asyncio.run(own(**json.loads(sys.argv[1])))
