"""A cold replay of a store's log into a new file, to compare all its tables with those of a live owner."""

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

from windlass._stores.jetstream.address import Address
from windlass._stores.jetstream.client import connect
from windlass._stores.jetstream.follower import Follower
from windlass._stores.jetstream.snapshots import Snapshots
from windlass._stores.jetstream.stream import StreamLog

Tables = dict[str, Counter[tuple[object, ...]]]
PLAY_SECONDS = 1.0  # after which it is asked how far it has come


async def replayed(address: Address, folder: Path) -> tuple[Tables, int]:
    """Replay the log while its owner is idle; returns all tables, and the number of void entries."""
    client = await connect(address)
    try:
        log = StreamLog(client, address)
        end = await log.extent()
        assert end is not None
        follower = Follower(log, Snapshots(client, address), folder)
        try:
            while follower.chain.place < end.last:
                await follower.follow(silence=PLAY_SECONDS, usurp_after=PLAY_SECONDS)
            return tables(follower.path), follower.void
        finally:
            follower.close()
    finally:
        await client.close()


def tables(path: Path) -> Tables:
    """All rows of all tables of a file, however they are ordered; the file must be sound."""
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {name: Counter(db.execute(f'SELECT * FROM "{name}"')) for name in names}


def difference(one: Tables, other: Tables) -> list[str]:
    """How two stores differ, in words."""
    found = [f"only one has the table {name}" for name in one.keys() ^ other.keys()]
    for name in one.keys() & other.keys():
        missing, extra = one[name] - other[name], other[name] - one[name]
        if missing or extra:
            found.append(f"{name}: {missing.total()} rows are missing, {extra.total()} are additional")
    return found
