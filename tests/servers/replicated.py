"""A private Postgres with standbys: the primary can be killed, frozen or cut off, and a standby promoted.

with Replicated.start(tmp_path, standbys=2) as servers:
    store = PostgresStore.from_url(servers.url)   # names all hosts
    servers.primary.kill()
    servers.promote()
    servers.rejoin()                              # the old primary comes back as a standby
"""

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any, Self

import psycopg

from tests.servers.home import copy, new_home
from tests.servers.postgres import DATABASE, QUICK, USER, Postgres, find, run, template
from tests.servers.process import ServerFailed, free_port
from tests.servers.proxy import Proxy

REPLICATED = QUICK | {
    "synchronous_commit": "on",  # with what follows: a commit is acknowledged once a standby has it
    "max_connections": "200",
    "wal_keep_size": "512MB",
    "wal_receiver_status_interval": "1s",
    "wal_retrieve_retry_interval": "100ms",
}
SYNCHRONOUS = {"synchronous_standby_names": "ANY 1 (*)"}
DEADLINE = 30.0
STARTS = 5


class Member(Postgres):
    """A primary or a standby. Clients and standbys reach it by way of a proxy, so that it can be cut off."""

    proxy: Proxy

    @classmethod
    def first(cls, folder: Path, settings: Mapping[str, str], version: int | None) -> Self:
        """A new primary without standbys."""
        binaries = find(version)
        home = new_home(folder)
        copy(template(binaries), home / "data")
        with (home / "data" / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        return cls(home, binaries, folder / f"{home.name}.log")

    @classmethod
    def standby_of(cls, primary: "Member", folder: Path) -> Self:
        """A copy of a primary that follows it."""
        home = new_home(folder)
        back_up(primary, home / "data")
        return cls(home, primary.binaries, folder / f"{home.name}.log")

    def begin(self) -> Self:
        """Start it, and the proxy to it."""
        for left in reversed(range(STARTS)):
            self.port = free_port()
            try:
                self.start_again()
            except ServerFailed as failure:
                if not left or "could not bind" not in str(failure):
                    raise
            else:
                break
        self.proxy = Proxy.start(self.url)
        return self

    def close(self) -> None:
        if self.is_alive:
            self.thaw()
        if hasattr(self, "proxy"):
            self.proxy.close()
        super().close()

    def kill(self) -> None:
        """The end of the server and of all its processes, without a warning."""
        assert self._process is not None
        children = self._children()
        self._process.stop(signal.SIGKILL)
        self._process = None
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def freeze(self) -> None:
        """All its processes stand still: connections stay, and nobody answers."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def cut_off(self) -> None:
        """Nothing passes between it and clients or standbys any more, and nobody is told."""
        self.proxy.freeze()

    def reach(self) -> None:
        """End `cut_off`; connections of before are reset."""
        self.proxy.cut()
        self.proxy.thaw()

    def _signal_all(self, one: signal.Signals) -> None:
        for pid in [self.pid, *self._children()]:
            with suppress(ProcessLookupError):
                os.kill(pid, one)

    def _children(self) -> list[int]:
        """Its processes, each of which leads a session of its own."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def ask(self, question: str) -> Any:
        """The first value of an answer; straight, whatever was done to the proxy."""
        with psycopg.connect(self.url, autocommit=True, connect_timeout=5) as connection:
            row = connection.execute(question.encode()).fetchone()
            return row and row[0]

    def promote(self) -> float:
        """Make this standby a primary; returns the moment when it takes writes, to a few milliseconds."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("SELECT pg_promote(false)")
            is_standby = "SELECT WHERE pg_is_in_recovery()"
            wait_for(lambda: connection.execute(is_standby).rowcount == 0, "promoted", every=0.002)
            return monotonic()

    def follow(self, primary: "Member") -> None:
        """Receive from this primary from now on; for a running standby."""
        self.configure(f"ALTER SYSTEM SET primary_conninfo = '{source(primary)}'")

    def configure(self, statement: str) -> None:
        """Have its configuration changed."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())
            connection.execute(b"SELECT pg_reload_conf()")

    def _is_ready(self, pid: int) -> bool:
        """A standby that can be read from is ready as well."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return lines[:1] == [str(pid)] and lines[7:8] in (["ready   "], ["standby "])


def source(primary: Member) -> str:
    """Where a standby receives from."""
    port = primary.proxy.port if hasattr(primary, "proxy") else primary.port
    return f"host=127.0.0.1 port={port} user={USER}"


def back_up(primary: Member, data: Path) -> None:
    """Copy a running primary into an empty folder, as a standby of it."""
    backup = [str(primary.binaries / "pg_basebackup"), "-D", str(data), "-d", source(primary)]
    run([*backup, "-R", "-c", "fast", "--no-sync"])


class Replicated:
    """One primary and its standbys; `primary` is the present one."""

    def __init__(self, members: list[Member]) -> None:
        """Use `Replicated.start`."""
        self.members = members
        self.primary = members[0]

    @classmethod
    @contextmanager
    def start(
        cls,
        folder: Path,
        *,
        standbys: int = 1,
        settings: Mapping[str, str] = SYNCHRONOUS,
        version: int | None = None,
    ) -> Iterator[Self]:
        with ExitStack() as stack:
            primary = stack.enter_context(Member.first(folder, REPLICATED | settings, version)).begin()
            others = [
                stack.enter_context(Member.standby_of(primary, folder)).begin() for _ in range(standbys)
            ]
            servers = cls([primary, *others])
            servers.wait_until_streaming()
            yield servers

    @property
    def standbys(self) -> list[Member]:
        """Those that follow the primary, or should."""
        return [one for one in self.members if one is not self.primary and one.is_alive]

    @property
    def url(self) -> str:
        """A URL that names all of them, the present primary last."""
        return self._naming(*(one.proxy.port for one in self._primary_last))

    @property
    def straight(self) -> str:
        """The same, past the proxies: who is cut off from its standbys still has these clients."""
        return self._naming(*(one.port for one in self._primary_last))

    @property
    def _primary_last(self) -> list[Member]:
        return sorted(self.members, key=lambda one: one is self.primary)

    def _naming(self, *ports: int) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"postgresql://{USER}@{hosts}/{DATABASE}"

    def promote(self) -> float:
        """Make the standby that has received most the primary; returns the moment when it takes writes.

        The caller has seen to it that the old one acknowledges nothing any more: this cannot. Left without a
        standby, the new one does not wait for any, as with Patroni's `synchronous_mode`.
        """
        old, found = self.primary, self.standbys
        received = "SELECT pg_last_wal_receive_lsn() - '0/0'"
        self.primary = max(found, key=lambda one: one.ask(received))
        promoted_at = self.primary.promote()
        followers = [one for one in found if one not in (self.primary, old)]
        for one in followers:
            one.follow(self.primary)
        if not followers:
            self.primary.configure("ALTER SYSTEM SET synchronous_standby_names = ''")
        return promoted_at

    def rejoin(self) -> None:
        """Bring back whoever is down, as a standby with a fresh copy of the primary."""
        down = [one for one in self.members if not one.is_alive]
        if down:
            self.primary.configure("ALTER SYSTEM RESET synchronous_standby_names")
        for one in down:
            one.stop()
            one.reach()
            shutil.rmtree(one.data, ignore_errors=True)
            back_up(self.primary, one.data)
            one.start_again()
        self.wait_until_streaming()

    def wait_until_streaming(self) -> None:
        count = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
        wait_for(lambda: self.primary.ask(count) == len(self.standbys), "every standby follows the primary")


def wait_for(
    condition: Callable[[], bool], what: str, *, every: float = 0.01, seconds: float = DEADLINE
) -> None:
    """Look until it is so; AssertionError if it is not in time."""
    deadline = monotonic() + seconds
    while not condition():
        assert monotonic() < deadline, f"not within {seconds:g} s: {what}"
        threading.Event().wait(every)
