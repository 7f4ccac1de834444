"""The sides measured on Redis, which of them can run here, and the servers they run on."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import redis

from benchmarks import node
from benchmarks.processes import Program as Command
from benchmarks.processes import RunFailed
from scripts.tools import installed
from tests.servers.redis import DURABLE, EVERY_SECOND, Program, Redis

SYNCS: Mapping[str, Mapping[str, str]] = {"everysec": EVERY_SECOND, "always": DURABLE}
SLOTS = 250  # of a windlass worker: as many as one script settles and claims
POLLED = 0.001  # seconds: the poll interval of an idle Huey, which blocks on Redis anyway
ENVIRONMENT = "redis-peers"  # of the peers in Python that need another redis-py than we


@dataclass(frozen=True, kw_only=True)
class Side:
    """A queue to measure. Slow ones get a fraction of the tasks, since rates are compared."""

    who: str
    program: Command
    share: float = 1.0
    is_async: bool = False  # enqueues from an event loop
    has_bulk: bool = False
    idle: dict[str, Any] = field(default_factory=dict)  # options of a worker that waits for tasks
    busy: dict[str, Any] = field(default_factory=dict)  # options of a worker that drains

    def at(self, url: str) -> dict[str, str]:
        """Return the options that name its server."""
        return {"url": url} if self is WINDLASS else {"path": url}


WINDLASS = Side(who="windlass", program="on_windlass", is_async=True, has_bulk=True, busy={"slots": SLOTS})
HUEY = Side(who="huey", program="on_huey", share=0.25, idle={"delay": POLLED})
BULLMQ = Side(who="bullmq", program=(), share=0.5, is_async=True, has_bulk=True)
IN_ENVIRONMENT = (
    Side(who="dramatiq", program="on_dramatiq", share=0.2),
    Side(who="taskiq", program="on_taskiq", share=0.2, is_async=True),
    Side(who="saq", program="on_saq", share=0.1, is_async=True),
)
PEERS = tuple(side.who for side in (HUEY, BULLMQ, *IN_ENVIRONMENT))


def able(left_out: Collection[str]) -> list[Side]:
    """Return the sides that can run here and are not excluded, installed. Raises RunFailed if that fails."""
    found = [WINDLASS, HUEY]
    if node.is_able() and BULLMQ.who not in left_out:
        found.append(replace(BULLMQ, program=node.BULLMQ.program()))
    wanted = [side for side in IN_ENVIRONMENT if side.who not in left_out]
    if wanted:
        python = _python()
        found += [replace(side, program=(python, "-m", f"benchmarks.runs.{side.program}")) for side in wanted]
    return [side for side in found if side.who not in left_out]


def _python() -> str:
    try:
        return str(installed(ENVIRONMENT) / "python")
    except CalledProcessError as failure:
        raise RunFailed(f"cannot install {ENVIRONMENT}.lock; exclude its peers by --without") from failure


@contextmanager
def started(
    folder: Path, settings: Mapping[str, str] = EVERY_SECOND, program: Program = "redis"
) -> Iterator[tuple[str, Any]]:
    """Run a server for the duration of the block; yield its URL and a client."""
    with Redis.start(folder, program=program, settings=settings) as server:
        client: Any = redis.Redis(port=server.port)
        yield server.url, client
        client.close()


def empty(client: Any) -> int:
    """Delete everything on the server; return how much memory it then uses."""
    client.flushall()
    client.script_flush()
    used: int = client.info("memory")["used_memory"]
    return used


def described(client: Any) -> dict[str, str]:
    """Return the server's version, for the head of the report."""
    return {"redis": client.info("server")["redis_version"]}
