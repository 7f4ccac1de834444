"""Blocking calls: without an event loop if the store needs none; a warning in a thread that has one."""

import asyncio
import logging
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

logger = logging.getLogger("windlass.client")

_HERE = str(Path(__file__).parents[1])
_MAX_PLACES = 1_000
_warned: set[str] = set()


def is_on_event_loop() -> bool:
    """Whether an event loop is running in this thread."""
    return asyncio._get_running_loop() is not None  # noqa: SLF001 - the public one raises, which costs more


def run_without_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits for an event loop. A hop to another thread costs more than it."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a store that needs no event loop waited for one")


def warn_on_event_loop() -> None:
    """Log a warning, once for each place in the program, if an event loop is running in this thread."""
    if not is_on_event_loop():
        return
    called, frame = "", sys._getframe(1)  # noqa: SLF001 - as the standard library does to find a caller
    while frame.f_code.co_filename.startswith(_HERE) and frame.f_back is not None:
        called, frame = frame.f_code.co_name, frame.f_back
    place = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
    if place in _warned or len(_warned) >= _MAX_PLACES:
        return
    _warned.add(place)
    logger.warning(
        "%s() blocks the event loop until the store has responded, at %s; in async code use "
        "`await ….aenqueue(…)`, `app.client` or `app.operator`",
        called,
        place,
    )
