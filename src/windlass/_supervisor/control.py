"""The connection between a supervisor and one of its processes: signs of life one way, orders the other."""

import os
import socket
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress

READY, ALIVE, REPLACE = b"R", b".", b"r"
STOP, STOP_NOW = b"s", b"n"
BEAT_SECONDS = 1.0
ORPHAN_SECONDS = 15.0
"""Time for a process to stop by itself once its supervisor has died."""


class Control:
    """The process's end."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)
        self._orders = self._socket.makefile("rb")

    def receive_settings(self) -> bytes:
        """Return the first line that the supervisor sends."""
        return self._orders.readline()

    def start(
        self,
        loop: AbstractEventLoop,
        stop: Callable[[], None],
        stop_now: Callable[[], None],
        *,
        loop_may_block: bool = False,
        orphan_seconds: float = ORPHAN_SECONDS,
    ) -> None:
        """Send a sign of life every second, and obey orders.

        The event loop sends the signs, so that the supervisor notices if it is blocked; with
        `loop_may_block` a thread does. Orders are read in a thread: if the supervisor dies, a process whose
        loop is blocked must end, too, and is given `orphan_seconds`.
        """
        orders = (loop, stop, stop_now, orphan_seconds)
        threading.Thread(target=self._obey, args=orders, daemon=True).start()
        if loop_may_block:
            threading.Thread(target=self._beat_for_ever, daemon=True).start()
        else:
            self._beat(loop)

    def report_ready(self) -> None:
        """Tell the supervisor that this process does its work now."""
        self._send(READY)

    def request_replacement(self) -> None:
        """Ask the supervisor to start another process and to stop this one once that is ready."""
        self._send(REPLACE)

    def _beat(self, loop: AbstractEventLoop) -> None:
        self._send(ALIVE)
        loop.call_later(BEAT_SECONDS, self._beat, loop)

    def _beat_for_ever(self) -> None:
        while True:
            self._send(ALIVE)
            threading.Event().wait(BEAT_SECONDS)

    def _send(self, sign: bytes) -> None:
        with suppress(OSError):  # the supervisor is gone, or so slow that the buffer is full
            self._socket.send(sign, socket.MSG_DONTWAIT)

    def _obey(
        self,
        loop: AbstractEventLoop,
        stop: Callable[[], None],
        stop_now: Callable[[], None],
        orphan_seconds: float,
    ) -> None:
        with suppress(OSError, RuntimeError):  # RuntimeError: the loop has ended meanwhile
            while order := self._orders.read(1):
                loop.call_soon_threadsafe(stop_now if order == STOP_NOW else stop)
            loop.call_soon_threadsafe(stop)
        threading.Event().wait(orphan_seconds)
        os._exit(1)
