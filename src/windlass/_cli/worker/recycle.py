"""Recycling: stop or replace a worker that has run many tasks, or whose process has grown."""

import asyncio
import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from ..._policy.input.quote import counted
from ..._policy.quota import format_size
from ..._timers import wait_for_event
from ...config import Settings

if TYPE_CHECKING:
    from ..._worker.worker import Worker

CHECK_SECONDS = 0.25

_STATM = Path("/proc/self/statm")  # on Linux: sizes in pages, the resident one second
_IN_USE = 1  # its field


class Recycling(Struct, frozen=True):
    """The tasks and bytes of memory after which a worker is recycled; None: it never is."""

    max_tasks: int | None = None
    max_memory: int | None = None

    def reason(self, ran: int, memory: Callable[[], int]) -> str | None:
        """Return why a worker that ran so many tasks is to be recycled; None if it is not."""
        if ran == 0:  # otherwise a limit below what a worker needs to start would let it run nothing
            return None
        if self.max_tasks is not None and ran >= self.max_tasks:
            return f"it has run {counted(ran, 'task')} (max_tasks is {self.max_tasks:,})"
        if self.max_memory is not None and (used := memory()) >= self.max_memory:
            return f"it uses {format_size(used)} of memory (max_memory is {format_size(self.max_memory)})"
        return None

    async def watch(self, worker: "Worker", recycle: Callable[[str], None]) -> None:
        """Call `recycle` once, with the reason, when it is due."""
        if self.max_tasks is None and self.max_memory is None:
            return
        never = asyncio.Event()
        while (why := self.reason(worker.ran, memory_in_use)) is None:
            await wait_for_event(never, CHECK_SECONDS)
        recycle(why)


@contextmanager
def recycling(settings: Settings, worker: "Worker", recycle: Callable[[str], None]) -> Iterator[None]:
    """Within this, call `recycle` when the settings say so, or when stuck handlers wear the process out."""
    worker.stuck.recycle = recycle
    limits = Recycling(settings.max_tasks, settings.max_memory)
    watching = asyncio.ensure_future(limits.watch(worker, recycle))
    try:
        yield
    finally:
        watching.cancel()


def memory_in_use() -> int:
    """Return the bytes of memory that this process uses; where the system does not tell, used at most."""
    try:
        return int(_STATM.read_text().split()[_IN_USE]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
