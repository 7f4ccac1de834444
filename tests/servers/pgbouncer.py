"""A private PgBouncer in transaction mode, in front of a private Postgres.

In transaction mode a client holds a connection to the server for one transaction only: what lives longer
there (prepared statements, LISTEN, session settings and locks) is lost or meets somebody else's.
"""

import shutil
import signal
from pathlib import Path
from typing import Self
from urllib.parse import quote

from tests.servers.home import give, new_home
from tests.servers.postgres import DATABASE, USER, Postgres
from tests.servers.process import Process, ServerFailed, free_port

DEBIAN = "/usr/sbin/pgbouncer"  # not in everybody's PATH
STARTS = 5
MAX_CLIENTS = 500


class PgBouncer:
    """A pool of `pool_size` connections for each database of `postgres`."""

    def __init__(self, folder: Path, postgres: Postgres, pool_size: int) -> None:
        """Use `PgBouncer.start`."""
        self.postgres = postgres
        self.pool_size = pool_size
        self.home = new_home(folder)
        self.log = folder / f"{self.home.name}.log"
        self.port = 0
        self._process: Process | None = None

    @classmethod
    def start(cls, folder: Path, postgres: Postgres, *, pool_size: int = 10) -> Self:
        """A new one that answers. ServerFailed when it is not installed, or does not start."""
        pool = cls(folder, postgres, pool_size)
        try:
            pool._start_on_some_port()
        except ServerFailed:
            pool.close()
            raise
        return pool

    @property
    def url(self) -> str:
        return self.url_of(DATABASE)

    @property
    def console(self) -> str:
        """Where PgBouncer itself answers: SHOW POOLS, PAUSE, RELOAD."""
        return self.url_of("pgbouncer")

    @property
    def pid(self) -> int:
        assert self._process is not None, "PgBouncer is stopped"
        return self._process.pid

    def url_of(self, database: str) -> str:
        """The way to a database of the server; those made later are found as well."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{quote(database)}"

    def stop(self) -> None:
        """Cut all its connections, and wait for its end."""
        if self._process is not None:
            self._process.stop(signal.SIGTERM)
            self._process = None

    def start_again(self) -> None:
        """Start on the same port, and wait until it answers."""
        assert self._process is None or not self._process.is_alive, "PgBouncer is running"
        self.stop()  # forget one that was killed
        settings = self.home / "pgbouncer.ini"
        settings.write_text(self._settings())
        give(settings)
        since = self.log.stat().st_size if self.log.exists() else 0
        process = Process([program(), str(settings)], self.home, self.log, end_signal=signal.SIGTERM)
        process.wait_until(lambda: self._is_listening(since))
        self._process = process

    def restart(self) -> None:
        self.stop()
        self.start_again()

    def close(self) -> None:
        """Stop it and remove its folder; the log stays."""
        self.stop()
        shutil.rmtree(self.home)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start_on_some_port(self) -> None:
        for left in reversed(range(STARTS)):
            self.port = free_port()
            try:
                self.start_again()
            except ServerFailed as failure:
                if not left or "Address already in use" not in str(failure):
                    raise
            else:
                return

    def _is_listening(self, since: int) -> bool:
        """By its own word: who answers on the port might be somebody else, to whom it was lost."""
        return f"listening on 127.0.0.1:{self.port}\n".encode() in self.log.read_bytes()[since:]

    def _settings(self) -> str:
        return f"""
            [databases]
            * = host=127.0.0.1 port={self.postgres.port} user={USER}

            [pgbouncer]
            listen_addr = 127.0.0.1
            listen_port = {self.port}
            unix_socket_dir =
            auth_type = any
            admin_users = {USER}
            pool_mode = transaction
            default_pool_size = {self.pool_size}
            max_client_conn = {MAX_CLIENTS}
            ignore_startup_parameters = extra_float_digits
        """


def program() -> str:
    """Where PgBouncer is; ServerFailed when it is nowhere."""
    found = shutil.which("pgbouncer") or shutil.which(DEBIAN)
    if found is None:
        raise ServerFailed("pgbouncer is not installed; run: make servers")
    return found
