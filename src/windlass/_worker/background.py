"""A worker beside other code of the same program, such as a web server: for the time of a block."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Self

logger = logging.getLogger("windlass.worker")


class Background(ABC):
    """What runs for the time of an `async with` block. Entering and leaving may be in different tasks."""

    name: str

    @abstractmethod
    def stop(self, *, at_once: bool = False) -> None: ...

    @abstractmethod
    async def run(self, *, signals: bool = False, ready: Callable[[], None] | None = None) -> None: ...

    async def __aenter__(self) -> Self:
        """Start it and wait until it claims tasks; raises what its start raises."""
        is_ready = asyncio.Event()
        self._run = asyncio.create_task(self.run(ready=is_ready.set), name=f"windlass worker {self.name}")
        self._run.add_done_callback(lambda _: is_ready.set())
        try:
            await is_ready.wait()
        except BaseException:  # the program gives up its start
            await self._stopped(at_once=True)
            raise
        if self._run.done():
            await self._run
        else:
            self._run.add_done_callback(self._log_failure)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Stop it: running tasks get their grace, the others are handed back. Raises what it failed with."""
        await self._stopped(at_once=isinstance(error, asyncio.CancelledError))
        if error is None:
            await self._run

    async def _stopped(self, *, at_once: bool) -> None:
        """Stop, and wait until all is settled; if that wait is cancelled, stop running tasks at once."""
        self.stop(at_once=at_once)
        try:
            await asyncio.wait([self._run])
        except asyncio.CancelledError:
            self.stop(at_once=True)
            await asyncio.wait([self._run])
            raise

    def _log_failure(self, run: "asyncio.Task[None]") -> None:
        if not run.cancelled() and (failure := run.exception()) is not None:
            logger.critical(
                "worker %s has failed; this program runs no tasks any more", self.name, exc_info=failure
            )
