"""What is done to a Redis server and to the way to it, by lot, beside what is done to the fleet."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Self

import redis

from tests.servers.lossy import Lossy
from tests.servers.redis import DURABLE, Program, Redis
from tests.system.fleet import Fleet, Schedule
from tests.system.history import now
from tests.system.storm import Storm


class RedisFleet(Fleet):
    """A fleet on a Redis server. Its processes go there by way of a proxy, the fleet itself goes straight."""

    redis: Redis
    proxy: Lossy

    @classmethod
    @contextmanager
    def on_server(cls, folder: Path, program: Program = "valkey") -> Iterator[Self]:
        """With a server of its own that is durable, until the end of the block."""
        with (
            Redis.start(folder, program=program, settings=DURABLE) as server,
            Lossy.start(server.port) as proxy,
        ):
            fleet = cls(folder, server=server.url, way=f"redis://127.0.0.1:{proxy.port}/0")
            fleet.redis, fleet.proxy = server, proxy
            try:
                yield fleet
            finally:
                proxy.spare()
                fleet.close()


class RedisStorm(Storm):
    """Faults for a fleet on Redis: those of any fleet, those of the server, and those of the network."""

    def __init__(self, fleet: RedisFleet, random: Random, schedule: Schedule, **settings: Any) -> None:
        super().__init__(fleet, random, schedule, **settings)
        self.server = fleet.redis
        self.proxy = fleet.proxy
        self.is_disturbed = False  # by something that another disturbance would get in the way of

    # -- the server ----------------------------------------------------------------------------------

    def restart(self) -> None:
        """Stop the server, as one should or as a crash does, and start it at once."""
        if self._is_taken():
            return
        began = now()
        self.server.restart(self.random.choice((signal.SIGTERM, signal.SIGKILL)))
        self._heal("restart", began)

    def crash(self) -> None:
        """Kill the server, and start it at once."""
        if self._is_taken():
            return
        began = now()
        self.server.restart(signal.SIGKILL)
        self._heal("restart", began)

    def stay_away(self, seconds: float | None = None) -> None:
        """Kill the server for that long."""
        if self._is_taken():
            return
        began = now()
        self.server.stop(signal.SIGKILL)

        def come_back() -> None:
            self.server.start_again()
            self._heal("outage", began)

        self.schedule.after(seconds or self.random.uniform(0.3, 4.0), come_back)

    def forget_scripts(self) -> None:
        """The server forgets all scripts."""
        self._command("scripts forgotten", "SCRIPT FLUSH")

    def end_connections(self) -> None:
        """The server ends every connection of ours."""
        self._command("ended connections", "CLIENT KILL", "TYPE", "normal")

    def end_listeners(self) -> None:
        """The server ends those that listen."""
        self._command("ended listeners", "CLIENT KILL", "TYPE", "pubsub")

    def _command(self, kind: str, *command: str) -> None:
        if self._is_taken():
            return
        client: Any = redis.Redis(port=self.server.port)
        client.execute_command(*command)
        client.close()
        self._heal(kind, now())

    # -- the network ---------------------------------------------------------------------------------

    def cut(self) -> None:
        """Reset every connection."""
        self.proxy.cut()
        self.fleet.note("cut")

    def lose_replies(self, seconds: float = 1.0) -> None:
        """For that long, some replies are lost with their connections; what was asked is done."""
        self._lose(self.proxy.lose_replies, "lost replies", seconds)

    def lose_requests(self, seconds: float = 1.0) -> None:
        """For that long, some requests are lost with their connections."""
        self._lose(self.proxy.lose_requests, "lost requests", seconds)

    def _lose(self, arm: Callable[[float], None], kind: str, seconds: float) -> None:
        if self._is_taken():
            return
        began = now()
        arm(0.1)

        def spare() -> None:
            self.proxy.spare()
            self._heal(kind, began)

        self.schedule.after(seconds, spare)

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
            self.restart: 6,
            self.crash: 6,
            self.stay_away: 4,
            self.forget_scripts: 5,
            self.end_connections: 7,
            self.end_listeners: 4,
            self.cut: 5,
            self.lose_replies: 8,
            self.lose_requests: 4,
        }
