"""A proxy between clients and Postgres that fails on request.

    with Proxy.start(server.url) as proxy:
        connection = await asyncpg.connect(proxy.url)
        proxy.cut_after_commit()
        await connection.execute("INSERT …")  # raises, and is done nevertheless

`cut_after_commit` and `cut_before` aim at the two moments between which a client cannot tell what became of
its statement.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Self, TypeVar
from urllib.parse import urlsplit

from tests.servers.link import Faults, Half, Link, Strike, never
from tests.servers.process import free_port

CALL_SECONDS = 10.0
STARTS = 5
CHANGING = {"INSERT", "UPDATE", "DELETE", "MERGE", "SELECT"}
T = TypeVar("T")


def changes_data(tag: str) -> bool:
    """Whether a command with this tag may have changed something; a SELECT may, through WITH or a function.

    One about no rows has not, and is let through, so that an idle look is not taken for a commit.
    """
    first, *numbers = tag.split()
    return first == "COMMIT" or (first in CHANGING and numbers[-1:] != ["0"])


class Proxy:
    """A way to a server. Its methods may be called from any thread, and have done it when they return."""

    def __init__(self, target: str) -> None:
        """Use `Proxy.start`."""
        self.target = target
        self.port = 0
        self._faults = Faults()
        self._links: set[Link] = set()
        self._listener: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    @classmethod
    def start(cls, target: str) -> Self:
        """A proxy to the server of that URL: Postgres or PgBouncer, without TLS."""
        proxy = cls(target)
        proxy._thread.start()
        proxy.accept()
        return proxy

    @property
    def url(self) -> str:
        """The URL of the target, by way of the proxy."""
        return self.through(self.target)

    def through(self, url: str) -> str:
        """Any URL on the target's server, by way of the proxy."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}").geturl()

    @property
    def cuts(self) -> Counter[str]:
        """Connections cut until now, by what: `cut`, `after_commit`, `before`."""
        return self._do(self._faults.cuts.copy)

    @property
    def connections(self) -> int:
        """How many there are now."""
        return self._do(lambda: len(self._links))

    def cut(self) -> None:
        """Reset all connections, on both sides."""
        self._do(self._cut_all)

    def refuse(self) -> None:
        """Let nobody in any more; who is in stays in."""
        self._do(self._stop_listening)

    def accept(self) -> None:
        """Let clients in, after `refuse` again and on the same port."""
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(CALL_SECONDS)

    def freeze(self) -> None:
        """Let no more bytes pass. Clients can connect, and wait."""
        self._do(lambda: self._set_frozen(is_frozen=True))

    def thaw(self) -> None:
        """Let pass what has waited, and all that follows."""
        self._do(lambda: self._set_frozen(is_frozen=False))

    def cut_after_commit(self, n: int = 1, *, when: Callable[[str], bool] = changes_data) -> None:
        """The next n times that something was committed: drop the reply, and cut the connection instead.

        `when` is asked about the tag of each command (`COMMIT`, `INSERT 0 1`, `SELECT 3`). From such a tag to
        the end of the transaction, replies are held back: a client that asks for them with Flush before it
        sends Sync (libpq's pipelines can) would wait for ever.
        """
        self._do(lambda: self._arm_after_commit(times(n), when))

    def cut_after_commits(
        self, rate: float, *, seed: int, when: Callable[[str], bool] = changes_data
    ) -> None:
        """The same at random: with this probability at each commit, until `spare`."""
        self._do(lambda: self._arm_after_commit(chance(rate, seed), when))

    def cut_before(self, n: int = 1) -> None:
        """The next n times that a client sends a statement: cut the connection before the server gets it."""
        self._do(lambda: self._arm_before(times(n)))

    def cut_before_statements(self, rate: float, *, seed: int) -> None:
        """The same at random: with this probability at each statement, until `spare`."""
        self._do(lambda: self._arm_before(chance(rate, seed)))

    def spare(self) -> None:
        """Take back all that was still to be cut."""
        self._do(lambda: self._arm_before(never))
        self._do(lambda: self._arm_after_commit(never, changes_data))

    def close(self) -> None:
        """Refuse, cut, and be gone."""
        self.refuse()
        self.cut()
        asyncio.run_coroutine_threadsafe(self._settle(), self._loop).result(CALL_SECONDS)
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _listen(self) -> None:
        if self._listener is not None:
            return
        for left in reversed(range(STARTS)):
            port = self.port or free_port()
            try:
                self._listener = await self._loop.create_server(self._new_link, "127.0.0.1", port)
            except OSError:
                if not left:
                    raise
            else:
                self.port = port
                return

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def _settle(self) -> None:
        """Wait for clients that are just being accepted: their sockets have no link yet that could be cut."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=1.0)

    def _new_link(self) -> Half:
        parts = urlsplit(self.target)
        return Link(self._faults, self._links, (parts.hostname or "127.0.0.1", parts.port or 5432)).client

    def _cut_all(self) -> None:
        for link in list(self._links):
            link.cut("cut")

    def _set_frozen(self, *, is_frozen: bool) -> None:
        self._faults.is_frozen = is_frozen
        for link in self._links:
            link.let_flow()

    def _arm_after_commit(self, strikes: Strike, when: Callable[[str], bool]) -> None:
        self._faults.strikes_after_commit = strikes
        self._faults.is_commit = when

    def _arm_before(self, strikes: Strike) -> None:
        self._faults.strikes_before = strikes

    def _do(self, act: Callable[[], T]) -> T:
        """Act in the proxy's own thread, and wait until sockets that it closes are closed."""

        async def acted() -> T:
            answer = act()
            for _ in range(3):  # a transport closes its socket in the next turn of the loop
                await asyncio.sleep(0)
            return answer

        return asyncio.run_coroutine_threadsafe(acted(), self._loop).result(CALL_SECONDS)


def times(n: int) -> Strike:
    """Strike n times, and then no more."""
    left = iter(range(n))
    return lambda: next(left, None) is not None


def chance(rate: float, seed: int) -> Strike:
    """Strike with this probability, the same strikes for the same seed and the same questions."""
    dice = Random(seed)
    return lambda: dice.random() < rate
