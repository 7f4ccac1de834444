"""The pool of connections that stores on servers share."""

import asyncio

from tests.loops.workers import eventually
from windlass._stores.pool import Pool


class Connection:
    """A connection to nowhere."""

    def __init__(self) -> None:
        self.open = True

    def is_closed(self) -> bool:
        return not self.open

    async def close(self, timeout: float) -> None:
        assert timeout > 0
        self.open = False

    def terminate(self) -> None:
        self.open = False


async def test_a_retired_pool_closes_what_is_lent_or_waited_for_once_it_is_returned() -> None:
    opened: list[Connection] = []

    async def connect() -> Connection:
        opened.append(Connection())
        return opened[-1]

    pool = Pool(connect, 1)
    lent = await pool.acquire()
    waiting = asyncio.create_task(pool.acquire())
    await asyncio.sleep(0)

    pool.retire()
    pool.release(lent)
    pool.release(await waiting)

    assert len(opened) == 2
    await eventually(lambda: not any(connection.open for connection in opened))
