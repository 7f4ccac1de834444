"""Accept connections from a listening socket that several processes share, each its part of them.

asyncio and uvloop accept whatever waits at once: a client that opens ten connections would have all of them
in one process. A pause after each leaves the next one to the others.
"""

import asyncio
import logging
import socket
from collections.abc import Callable

logger = logging.getLogger("windlass.http")

PAUSE_SECONDS = 0.002
_TROUBLE_SECONDS = 1.0  # when no descriptor is left


class Acceptor:
    """Accepts connections, one at a time."""

    def __init__(self, listener: socket.socket, protocol: Callable[[], asyncio.Protocol]) -> None:
        self._listener = listener
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._connecting: set[asyncio.Task[object]] = set()
        listener.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Accept no more; connections that were accepted remain."""
        self._loop.remove_reader(self._listener)
        if self._pause is not None:
            self._pause.cancel()

    def _resume(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        pause = PAUSE_SECONDS
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another process was quicker, or the client has gone
        except OSError as error:
            logger.warning("cannot accept connections: %s", error)
            pause = _TROUBLE_SECONDS
        else:
            connection.setblocking(False)
            connecting = self._loop.create_task(
                self._loop.connect_accepted_socket(self._protocol, connection)
            )
            self._connecting.add(connecting)
            connecting.add_done_callback(self._connecting.discard)
        self._loop.remove_reader(self._listener)
        self._pause = self._loop.call_later(pause, self._resume)
