"""The connection between the supervisor and a server process: signs of life one way, orders the other."""

import os
import socket
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress

READY, ALIVE = b"R", b"."
STOP, STOP_NOW = b"s", b"n"
BEAT_SECONDS = 1.0
ORPHAN_SECONDS = 15.0
"""Time for a server process to stop by itself once its supervisor has died."""


class Control:
    """The server process's end."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)
        self._orders = self._socket.makefile("rb")

    def receive_settings(self) -> bytes:
        """Return the first line that the supervisor sends."""
        return self._orders.readline()

    def start(self, loop: AbstractEventLoop, stop: Callable[[], None], stop_now: Callable[[], None]) -> None:
        """Send a sign of life every second while the event loop runs, and obey orders.

        Orders are read in a thread: if the supervisor dies, a process whose loop is blocked must end, too.
        """
        threading.Thread(target=self._obey, args=(loop, stop, stop_now), daemon=True).start()
        self._beat(loop)

    def report_ready(self) -> None:
        """Tell the supervisor that this process accepts connections."""
        self._send(READY)

    def _beat(self, loop: AbstractEventLoop) -> None:
        self._send(ALIVE)
        loop.call_later(BEAT_SECONDS, self._beat, loop)

    def _send(self, sign: bytes) -> None:
        with suppress(OSError):  # the supervisor is gone, or so slow that the buffer is full
            self._socket.send(sign, socket.MSG_DONTWAIT)

    def _obey(self, loop: AbstractEventLoop, stop: Callable[[], None], stop_now: Callable[[], None]) -> None:
        with suppress(OSError, RuntimeError):  # RuntimeError: the loop has ended meanwhile
            while order := self._orders.read(1):
                loop.call_soon_threadsafe(stop_now if order == STOP_NOW else stop)
            loop.call_soon_threadsafe(stop)
        threading.Event().wait(ORPHAN_SECONDS)
        os._exit(1)
