"""Ways to run a worker: as a process of its own, or in the background of another program."""

import asyncio
import atexit
import gc
import logging
import signal
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .._client.tasks.left_ready import left_ready
from .._store.protocol import Store
from ..errors import WindlassError

if TYPE_CHECKING:
    from .worker import Worker

logger = logging.getLogger("windlass.worker")

_GC_THRESHOLDS = 50_000, 20, 50


def run_process(run: Callable[[], Awaitable[None]], close: Callable[[], Awaitable[None]]) -> None:
    """Run a worker, then close. Uses uvloop where it is installed."""
    calm_collector()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run_and_close(run, close))


async def run_to_end(worker: "Worker", store: Store) -> None:
    """Run a worker until a signal; if it drains, warn of tasks that it leaves."""
    await worker.run(signals=True)
    await warn_of_left(worker, store)


async def warn_of_left(worker: "Worker", store: Store) -> bool:
    """Log which tasks a worker leaves that was to drain and was not stopped; return whether there are any."""
    if not worker.settings.drain or worker.is_stopping:
        return False
    left = ""
    with suppress(WindlassError):  # a key may not show tasks; and nobody is left to retry for
        left = await left_ready(store, worker.describe())
    if left:
        logger.warning("worker %s has drained: %s", worker.name, left)
    return bool(left)


async def _run_and_close(run: Callable[[], Awaitable[None]], close: Callable[[], Awaitable[None]]) -> None:
    try:
        await run()
    finally:
        await close()


@contextmanager
def stopped_by_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` on SIGTERM and SIGINT."""
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def calm_collector() -> None:
    """Collect garbage less often: a worker makes many values and hardly any cycles.

    Objects that exist by now are not examined again until the process exits. This took 7 % off a no-op task.
    """
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # or a file that a module has open would lose what is in its buffer
    gc.set_threshold(*_GC_THRESHOLDS)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory of event loops if it is installed, else None."""
    if find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    return factory


class Background(ABC):
    """What runs for the time of an `async with` block. Entering and leaving may be in different tasks."""

    name: str

    @property
    @abstractmethod
    def is_stopping(self) -> bool: ...

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
        if at_once or not self.is_stopping:  # a second call would stop running tasks at once
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
