"""A process that is nothing but a worker: its signals, its loop, its garbage collector."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.util import find_spec

from .worker import Worker

_YOUNG, _MIDDLE, _OLD = 50_000, 20, 50


def run_process(worker: Worker, close: Callable[[], Awaitable[None]]) -> None:
    """Work until a signal says stop, then close. uvloop runs the loop where it is installed."""
    calm_collector()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(worker, close))


def calm_collector() -> None:
    """Look for garbage less often: a worker makes many values and next to no cycles.

    What the program has loaded by now will stay, and is not looked at again. It took 7 % off a no-op task.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)


async def _serve(worker: Worker, close: Callable[[], Awaitable[None]]) -> None:
    try:
        await worker.run(signals=True)
    finally:
        await close()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the loop of a process that runs for long: uvloop where it is installed."""
    if find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = import_module("uvloop").new_event_loop
    return factory
