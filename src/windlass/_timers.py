"""Wait for an event or a condition with a timeout; call back at the earliest of several instants."""

import asyncio
from collections.abc import Callable
from time import monotonic


async def wait_for_event(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait until the event is set; False after `seconds` without it, None waits for ever.

    Not by asyncio.wait_for, which in Python 3.11 loses a cancellation that coincides with the event.
    """
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


async def wait_until(
    condition: Callable[[], bool], changed: asyncio.Event, seconds: float = float("inf")
) -> bool:
    """Wait for a condition that changes only when `changed` is set; return whether it came true in time."""
    deadline = monotonic() + seconds
    while not condition():
        left = deadline - monotonic()
        if left <= 0:
            return False
        changed.clear()
        await wait_for_event(changed, None if left == float("inf") else left)
    return True


class Timer:
    """One timer for the earliest of the instants given to `at`. It calls once, and can then be set again."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._instant = 0.0  # kept here, as not all of uvloop's handles have `when`

    def at(self, instant: float) -> None:
        """Call at this instant of the running loop's clock, unless it will call sooner anyway."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # A handle of another loop cannot be cancelled here, and may never fire: that loop may have ended.
            self._loop, self._handle = loop, None
        if self._handle is None or instant < self._instant:
            self.cancel()
            self._handle, self._instant = loop.call_at(instant, self._fire), instant

    def cancel(self) -> None:
        """Drop the instant. Must be called in the loop that `at` was called in."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        if asyncio.get_running_loop() is self._loop:
            self._handle = None
        self._call()
