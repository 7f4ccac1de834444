"""A private Sentinel: it watches a private Redis or Valkey, and makes a replica the next primary."""

import shutil
import signal
import socket
from pathlib import Path
from typing import Self

from tests.servers.home import give, new_home
from tests.servers.process import Process, free_port
from tests.servers.redis import Redis

SERVICE = "shop"
DOWN_MS = 500


class Sentinel:
    """One that decides alone."""

    def __init__(self, folder: Path, primary: Redis) -> None:
        """Use `Sentinel.start`."""
        self.primary = primary
        self.home = new_home(folder)
        self.log = folder / f"{self.home.name}.log"
        self.port = free_port()
        self._process: Process | None = None

    @classmethod
    def start(cls, folder: Path, primary: Redis, *, password: str = "") -> Self:
        """A new one that answers."""
        sentinel = cls(folder, primary)
        settings = sentinel.home / "sentinel.conf"
        settings.write_text(
            f"port {sentinel.port}\nbind 127.0.0.1\ndir {sentinel.home}\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary.port} 1\n"
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_MS}\n"
            f"sentinel failover-timeout {SERVICE} 5000\n" + (f"requirepass {password}\n" if password else "")
        )
        give(settings)
        command = [str(primary.binary), str(settings), "--sentinel"]
        process = Process(command, sentinel.home, sentinel.log, end_signal=signal.SIGKILL)
        process.wait_until(sentinel._is_ready)
        sentinel._process = process
        return sentinel

    @property
    def url(self) -> str:
        """The URL of a store on the server that it watches."""
        return f"redis+sentinel://127.0.0.1:{self.port}/{SERVICE}"

    def close(self) -> None:
        if self._process is not None:
            self._process.stop(signal.SIGKILL)
        shutil.rmtree(self.home, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False
