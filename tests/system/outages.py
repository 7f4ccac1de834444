"""What is done to a Postgres server and to the way to it, by lot, beside what is done to the fleet."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Self
from uuid import uuid4

import psycopg

from tests.servers.postgres import QUICK, Mode, Postgres
from tests.servers.proxy import Proxy
from tests.system.fleet import Fleet, Schedule
from tests.system.history import now
from tests.system.storm import Storm

SETTINGS = QUICK | {
    "synchronous_commit": "on",  # so that what was acknowledged survives a crash of the server
    "max_connections": "200",
    "shared_buffers": "256MB",
}
END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE %s"
OURS, LISTENERS = "windlass%", "windlass listener"


class ServerFleet(Fleet):
    """A fleet on a server. Its processes go there by way of a proxy, the fleet itself goes straight."""

    postgres: Postgres
    proxy: Proxy

    @classmethod
    @contextmanager
    def on_server(cls, folder: Path) -> Iterator[Self]:
        """With a server of its own, until the end of the block."""
        query = f"?schema=t_{uuid4().hex[:8]}"
        with Postgres.start(folder, settings=SETTINGS) as postgres, Proxy.start(postgres.url) as proxy:
            fleet = cls(folder, server=postgres.url + query, way=proxy.url + query)
            fleet.postgres, fleet.proxy = postgres, proxy
            try:
                yield fleet
            finally:
                proxy.thaw()
                fleet.close()


class ServerStorm(Storm):
    """Faults for a fleet on a server: those of any fleet, those of the server, and those of the network."""

    def __init__(self, fleet: ServerFleet, random: Random, schedule: Schedule, **settings: Any) -> None:
        super().__init__(fleet, random, schedule, **settings)
        self.server = fleet.postgres
        self.proxy = fleet.proxy
        self.is_disturbed = False  # by something that another disturbance would get in the way of

    # -- the server ----------------------------------------------------------------------------------

    def restart(self, mode: Mode | None = None) -> None:
        """Stop the server, as one should or as a crash does, and start it at once."""
        if self._is_taken():
            return
        began = now()
        self.server.restart(mode or self.random.choice(("fast", "immediate")))
        self.fleet.note("restart", began=began)
        self.is_disturbed = False

    def stay_away(self, seconds: float | None = None) -> None:
        """Stop the server for that long."""
        if self._is_taken():
            return
        began = now()
        self.server.stop(self.random.choice(("fast", "immediate")))

        def come_back() -> None:
            self.server.start_again()
            self._heal("outage", began)

        self.schedule.after(seconds or self.random.uniform(0.3, 4.0), come_back)

    def refuse_writes(self, seconds: float | None = None) -> None:
        """No writes for that long, as on a server that is a standby by now."""
        if self._is_taken():
            return
        began = now()
        self._set_read_only("on")

        def take_them() -> None:
            self._set_read_only("off")
            self._heal("outage", began)

        self.schedule.after(seconds or self.random.uniform(0.3, 3.0), take_them)

    def _set_read_only(self, value: str) -> None:
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
            connection.execute("SELECT pg_reload_conf()")

    def end_connections(self) -> None:
        """The server ends every connection of ours."""
        self._end(OURS)

    def end_listeners(self) -> None:
        """The server ends those that listen."""
        self._end(LISTENERS)

    def _end(self, which: str) -> None:
        if self._is_taken():
            return
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute(END, [which])
        self.fleet.note("ended connections" if which == OURS else "ended listeners")
        self.is_disturbed = False

    # -- the network ---------------------------------------------------------------------------------

    def cut(self) -> None:
        """Reset every connection."""
        self.proxy.cut()
        self.fleet.note("cut")

    def cut_after_commits(self, seconds: float = 1.0) -> None:
        """For that long, some answers to a commit are lost with their connections."""
        self._cut_some(lambda seed: self.proxy.cut_after_commits(0.1, seed=seed), "cut after commit", seconds)

    def cut_before(self, seconds: float = 1.0) -> None:
        """For that long, some statements are lost with their connections."""
        self._cut_some(lambda seed: self.proxy.cut_before_statements(0.1, seed=seed), "cut before", seconds)

    def _cut_some(self, arm: Callable[[int], None], kind: str, seconds: float) -> None:
        if self._is_taken():
            return
        began = now()
        arm(self.random.randrange(10**9))

        def spare() -> None:
            self.proxy.spare()
            self._heal(kind, began)

        self.schedule.after(seconds, spare)

    def freeze_network(self, seconds: float | None = None) -> None:
        """Nothing passes for that long, and nobody is told."""
        if self._is_taken():
            return
        began = now()
        self.proxy.freeze()

        def thaw() -> None:
            self.proxy.thaw()
            self._heal("network", began)

        self.schedule.after(seconds or self.random.uniform(0.3, 5.0), thaw)

    # -- all of it -----------------------------------------------------------------------------------

    def _is_taken(self) -> bool:
        """Whether it has to be something else; otherwise the disturbance is begun."""
        if self.is_disturbed:
            self.kill()
            return True
        self.is_disturbed = True
        return False

    def _heal(self, kind: str, began: int) -> None:
        self.fleet.note(kind, began=began)
        self.is_disturbed = False

    def faults(self) -> dict[Callable[[], None], int]:
        """Every fault there is, and how often it comes among a hundred."""
        return {
            self.kill: 20,
            self.terminate: 8,
            self.freeze: 8,
            self.kill_producer: 6,
            self.kill_leader: 6,
            self.kill_child: 4,
            self.restart: 8,
            self.stay_away: 4,
            self.refuse_writes: 3,
            self.end_connections: 8,
            self.end_listeners: 4,
            self.cut: 5,
            self.cut_after_commits: 8,
            self.cut_before: 4,
            self.freeze_network: 4,
        }
