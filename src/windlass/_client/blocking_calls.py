"""Warn when a blocking call is made on the thread of an event loop, which it would stop."""

import asyncio
import logging
import sys
from pathlib import Path

logger = logging.getLogger("windlass.client")

_HERE = str(Path(__file__).parents[1])
_MAX_PLACES = 1_000
_warned: set[str] = set()


def warn_on_event_loop() -> None:
    """Log a warning, once for each place in the program, if an event loop is running in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
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
