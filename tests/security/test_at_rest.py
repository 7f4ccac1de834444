"""With an encryption key no secret stands in clear in the bytes that a store leaves on disks.

Each secret is brought in by a way of its own, and looked for in each place in every form that bytes may have
it: as it is, in hexadecimal, in base64, in UTF-16, and inside of what is compressed. A text beside it, of a
field that nobody declared, is found in the same places.
"""

import asyncio
import os
import re
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest
import zstandard

from tests.examples import sample
from tests.security.secret_ways import PLAIN, WAYS, bring_in, forms, has, hits, program
from tests.servers.nats import MEMORY, Nats
from tests.servers.owners import Owners
from tests.servers.postgres import QUICK, Postgres
from tests.servers.redis import DURABLE, Program, Redis
from tests.servers.redis_cluster import command, until

WAL_PAGE, LONG_HEADER = 8_192, 0x0002
_ZSTD = b"\x28\xb5\x2f\xfd"
UNCOMPRESSED = DURABLE | {"rdbcompression": "no"}

Places = dict[str, bytes]
"""What a store has left, by where: files of servers, dumps and backups."""

Kept = tuple[str, Callable[[], Places]]
"""The URL of a store, and how to get at what it has left."""


def everything_in(*folders: Path) -> bytes:
    """The bytes of all files below these folders."""
    files = [file for folder in folders for file in sorted(folder.rglob("*")) if file.is_file()]
    return b"\n".join(file.read_bytes() for file in files if os.access(file, os.R_OK))


def unpaged(data: bytes) -> bytes:
    """Segments of the WAL of Postgres without the headers of pages, which may stand within a text."""
    pages = (data[start : start + WAL_PAGE] for start in range(0, len(data), WAL_PAGE))
    return b"".join(page[40 if page[2:3] and page[2] & LONG_HEADER else 24 :] for page in pages)


def unpacked(data: bytes) -> bytes:
    """What the frames of zstd in these bytes have; a cut one as far as it goes."""
    found: list[bytes] = []
    for start in re.finditer(re.escape(_ZSTD), data):
        reader = zstandard.ZstdDecompressor().decompressobj()
        try:
            found.append(reader.decompress(data[start.start() :]))
        except zstandard.ZstdError:
            continue
    return b"\n".join(found)


def dump_of(file: Path) -> bytes:
    """The statements that would make a SQLite file again."""
    with closing(sqlite3.connect(file)) as connection:
        return "\n".join(connection.iterdump()).encode()


@contextmanager
def on_sqlite(folder: Path) -> Iterator[Kept]:
    file = folder / "windlass.db"

    def places() -> Places:
        dump = dump_of(file)
        with closing(sqlite3.connect(file)) as connection:
            before = everything_in(folder)
            connection.execute("VACUUM INTO ?", (str(folder / "backup.db"),))
            connection.execute("VACUUM")
        backup = folder / "backup.db"
        return {
            "files": before,
            "backup": backup.read_bytes(),
            "after VACUUM": file.read_bytes(),
            "SQL dump": dump,
        }

    yield f"sqlite:///{file}", places


@contextmanager
def on_postgres(folder: Path) -> Iterator[Kept]:
    settings = QUICK | {"log_statement": "ddl", "default_toast_compression": "pglz"}
    with Postgres.start(folder, settings=settings) as server:

        def places() -> Places:
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute("CHECKPOINT")
                tables, log = everything_in(server.data / "base"), everything_in(server.data / "pg_wal")
                segments = [file for file in sorted((server.data / "pg_wal").iterdir()) if file.is_file()]
                log += unpaged(b"".join(file.read_bytes() for file in segments))
                program = [str(server.binaries / "pg_dump"), server.url]
                dump = subprocess.run(program, capture_output=True, check=True, timeout=50).stdout
                connection.execute("VACUUM FULL")
                connection.execute("CHECKPOINT")
            return {
                "tables": tables,
                "WAL": log,
                "dump": dump,
                "after VACUUM FULL": everything_in(server.data / "base"),
            }

        yield server.url, places


def on_redis(name: Program) -> Callable[[Path], AbstractContextManager[Kept]]:
    @contextmanager
    def start(folder: Path) -> Iterator[Kept]:
        with Redis.start(folder, program=name, settings=UNCOMPRESSED) as server:

            def places() -> Places:
                log = everything_in(server.home)
                command(server, "SAVE")
                snapshot = (server.home / "dump.rdb").read_bytes()
                command(server, "CONFIG SET", "aof-use-rdb-preamble", "no")
                command(server, "BGREWRITEAOF")
                until(lambda: is_written(server), "the append-only file is rewritten")
                rewritten = everything_in(server.home / "appendonlydir")
                return {"append-only file": log, "snapshot": snapshot, "rewritten file": rewritten}

            yield server.url, places

    return start


def is_written(server: Redis) -> bool:
    return b"aof_rewrite_in_progress:0" in command(server, "INFO", "persistence").replace(b"\r", b"")


@contextmanager
def on_jetstream(folder: Path) -> Iterator[Kept]:
    owned = folder / "owned"
    owned.mkdir()
    with Nats.start(folder) as server, Owners() as owners:
        url = server.new_url()
        owner = owners.start(url, owned)

        def places() -> Places:
            streams, copy = everything_in(server.home / "data"), everything_in(owned)
            owners.stop(owner)
            return {"streams": streams + unpacked(streams), "copy of an owner": copy}

        yield url, places


@contextmanager
def on_shards(folder: Path) -> Iterator[Kept]:
    file = folder / "shards.toml"
    file.write_text(f'[shards]\na = "sqlite:///{folder}/a.db"\nb = "sqlite:///{folder}/b.db"\n')

    def places() -> Places:
        dumps = b"\n".join(dump_of(folder / name) for name in ("a.db", "b.db"))
        return {"files": everything_in(folder), "SQL dumps": dumps}

    yield f"shards://{file}", places


STORES = {
    "sqlite": on_sqlite,
    "postgres": on_postgres,
    "valkey": on_redis("valkey"),
    "redis": on_redis("redis"),
    "jetstream": on_jetstream,
    "shards": on_shards,
}


async def left_by(url: str, places: Callable[[], Places]) -> Places:
    app = program(url)
    try:
        await bring_in(app)
    finally:
        await app.close()
    return await asyncio.to_thread(places)


@pytest.fixture(
    scope="module", params=sample(["sqlite", "valkey"], ["postgres", "redis", "jetstream", "shards"])
)
def left(request: pytest.FixtureRequest) -> Places:
    """What a store has left on disks after every way. They are in memory, which is quicker to write."""
    where = MEMORY if MEMORY.is_dir() else None
    with (
        TemporaryDirectory(prefix="windlass-", dir=where) as folder,
        STORES[request.param](Path(folder)) as (url, places),
    ):
        return asyncio.run(left_by(url, places))


def test_no_secret_is_in_any_place(left: Places) -> None:
    assert {place: found for place, data in left.items() if (found := hits(data))} == {}


def test_what_is_not_declared_is_in_every_place(left: Places) -> None:
    """Or silence would mean nothing: each way has left its bytes in each place."""
    for place, data in left.items():
        missing = {way for way in WAYS if not has(data, f"{PLAIN}{way}-end")}
        assert missing == set(), place


def test_there_are_enough_probes(left: Places) -> None:
    assert len(left) * len(WAYS) * len(forms("x")) >= 200
