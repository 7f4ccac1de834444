"""What is done to a replicated Postgres under a fleet, and how long claims stood still each time."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Self
from uuid import uuid4

from tests.servers.replicated import Member, Replicated
from tests.system.fleet import Fleet
from tests.system.history import History, now

SECOND = 1_000_000_000


class ReplicatedFleet(Fleet):
    """A fleet on a primary with standbys. The URL names every server."""

    servers: Replicated

    @classmethod
    @contextmanager
    def on_servers(cls, folder: Path, *, straight: bool = False, **options: Any) -> Iterator[Self]:
        """With servers of its own, until the end of the block; by way of the proxies unless `straight`."""
        with Replicated.start(folder, **options) as servers:
            url = servers.straight if straight else servers.url
            fleet = cls(folder, server=f"{url}?schema=t_{uuid4().hex[:8]}")
            fleet.servers = servers
            try:
                yield fleet
            finally:
                fleet.close()


class Failover(NamedTuple):
    """One of them; moments are by `history.now`."""

    kind: str
    struck: int
    promoted: int


class Failovers:
    """Fails over in several ways; the old primary comes back as a standby each time."""

    def __init__(self, fleet: ReplicatedFleet) -> None:
        self.fleet = fleet
        self.servers = fleet.servers
        self.done: list[Failover] = []

    def crash(self, seconds: float) -> None:
        """Kill the primary, and promote a standby after so long."""
        self._fail_over("crash", Member.kill, seconds)

    def switch_over(self, seconds: float) -> None:
        """Stop the primary as one should."""
        self._fail_over("switchover", lambda primary: primary.stop("fast"), seconds)

    def cut_off(self, seconds: float) -> None:
        """Cut the primary off from everybody; it is killed before it can come back."""
        self._fail_over("network cut", Member.cut_off, seconds)

    def freeze(self, seconds: float) -> None:
        """Let the machine of the primary stand still, as it seems; it is killed before it can come back."""
        self._fail_over("freeze", Member.freeze, seconds)

    def lose_standbys(self, seconds: float) -> None:
        """No standby answers for so long: commits wait."""
        began, standbys = now(), self.servers.standbys
        for standby in standbys:
            standby.freeze()
        _sleep(seconds)
        for standby in standbys:
            standby.thaw()
        self.fleet.note("outage", began=began)

    def _fail_over(self, kind: str, fault: Callable[[Member], None], seconds: float) -> None:
        began, old = now(), self.servers.primary
        fault(old)
        struck = now()
        _sleep(seconds)
        promoted = self.servers.promote()
        self.done.append(Failover(kind, struck, int(promoted * SECOND)))
        self.fleet.note("outage", began=began)
        if old.is_alive:
            old.kill()

    def recover(self) -> None:
        """Let the old primary follow the new one."""
        self.servers.rejoin()


def figures(done: Iterable[Failover], history: History) -> dict[str, Any]:
    """For each kind, the seconds from promotion and fault to the first claim: median and most."""
    claims = sorted(
        int(line.claimed_at.timestamp() * SECOND) - history.wall
        for lines in history.attempts.values()
        for line in lines
    )
    found: dict[str, dict[str, list[float]]] = {}
    for one in done:
        first = next(claim for claim in claims if claim > one.struck)
        numbers = found.setdefault(one.kind, {"after promotion": [], "after fault": []})
        numbers["after promotion"].append((first - one.promoted) / SECOND)
        numbers["after fault"].append((first - one.struck) / SECOND)
    return {
        kind: {
            "number": len(numbers["after fault"]),
            **{name: [round(median(all_), 3), round(max(all_), 3)] for name, all_ in numbers.items()},
        }
        for kind, numbers in found.items()
    }


def _sleep(seconds: float) -> None:
    threading.Event().wait(seconds)
