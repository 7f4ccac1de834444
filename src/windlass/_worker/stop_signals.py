"""The signals that ask a worker to stop."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stopped_by_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[], object]) -> Iterator[None]:
    """SIGTERM and SIGINT call `stop`: once gently, twice at once."""
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
