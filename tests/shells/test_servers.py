"""The private servers that tests use: start, failure, stop; and the fault-injecting proxy."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import psycopg
import pytest
from asyncpg import Connection

from tests.examples import sample
from tests.servers.link import Faults, Link
from tests.servers.messages import COMMAND_COMPLETE, READY, Messages
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import QUICK, Postgres, installed, newest, oldest
from tests.servers.process import ServerFailed
from tests.servers.proxy import Proxy, changes_data
from tests.system.fleet import wait_until

ROOT = Path(__file__).parent.parent.parent
BROKEN = (ConnectionError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError)


def answer(url: str, question: str = "SELECT 1") -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(question).fetchone()[0]  # type: ignore[index]


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# -- Postgres ------------------------------------------------------------------------------------------------


def test_oldest_and_newest_differ() -> None:
    assert oldest() == 15
    assert newest() >= 18


@pytest.mark.parametrize("version", sample([*{oldest(), newest()}], [*{*installed()} - {oldest(), newest()}]))
def test_a_server_has_the_requested_version(tmp_path: Path, version: int) -> None:
    with Postgres.start(tmp_path, version=version, settings=QUICK) as server:
        assert server.version == version
        assert str(answer(server.url, "SHOW server_version")).startswith(f"{version}.")
        assert answer(server.url, "SHOW server_encoding") == "UTF8"
        assert answer(server.url, "SHOW fsync") == "off"
        assert answer(server.url, "SELECT current_database()") == "windlass"


def test_a_stopped_server_keeps_its_data_and_its_port(tmp_path: Path) -> None:
    with Postgres.start(tmp_path, settings=QUICK) as server:
        answer(server.url, "SELECT lo_from_bytea(7, 'kept')")
        url = server.url

        server.stop()
        with pytest.raises(psycopg.OperationalError, match="refused"):
            answer(url)
        server.start_again()
        assert answer(url, "SELECT lo_get(7)") == b"kept"

        before = server.pid
        server.restart("immediate")
        assert answer(url, "SELECT lo_get(7)") == b"kept"
        assert server.pid != before


def test_a_server_that_was_killed_starts_again(tmp_path: Path) -> None:
    with Postgres.start(tmp_path, settings=QUICK) as server:
        os.kill(server.pid, signal.SIGKILL)
        wait_until(lambda: not server.is_alive, 10, what="the server is gone")

        server.start_again()

        assert answer(server.url) == 1


def test_two_servers_do_not_share_data(tmp_path: Path) -> None:
    with (
        Postgres.start(tmp_path, settings=QUICK) as one,
        Postgres.start(tmp_path, settings=QUICK) as other,
    ):
        url = one.new_database("only here")

        assert answer(url, "SELECT current_database()") == "only here"
        assert answer(other.url, "SELECT count(*) FROM pg_database WHERE datname = 'only here'") == 0


def test_closing_removes_all_but_the_log(tmp_path: Path) -> None:
    with Postgres.start(tmp_path, settings=QUICK) as server:
        pid = server.pid

    assert not lives(pid)
    assert not server.home.exists()
    assert "ready to accept connections" in server.log.read_text()


def test_a_missing_version_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match="Postgres 9 is not installed"):
        Postgres.start(tmp_path, version=9)


def test_a_failed_start_shows_the_log(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match='unrecognized configuration parameter "sails"'):
        Postgres.start(tmp_path, settings={"sails": "on"})


PARENT = """
import sys
from pathlib import Path
from tests.servers.postgres import QUICK, Postgres
server = Postgres.start(Path(sys.argv[1]), settings=QUICK)
print(server.pid, server.home, flush=True)
sys.stdin.read()
"""


def test_a_server_dies_with_its_parent(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with parent:
        assert parent.stdout is not None
        pid, home = parent.stdout.readline().decode().split()
        assert lives(int(pid))

        parent.kill()

    wait_until(lambda: not lives(int(pid)), 20, what="the server is gone")
    wait_until(lambda: not Path(home).exists(), 20, what="its folder is gone")


# -- PgBouncer -----------------------------------------------------------------------------------------------


async def test_pgbouncer_lends_a_connection_for_one_transaction_only(pgbouncer: PgBouncer) -> None:
    ask = "SELECT pg_backend_pid()"
    one, other = [await asyncpg.connect(pgbouncer.url, statement_cache_size=0) for _ in range(2)]

    assert await one.fetchval(ask) == await other.fetchval(ask)  # idle in between: both get the same
    async with one.transaction():
        held = await one.fetchval(ask)
        assert await other.fetchval(ask) != held

    await one.close()
    await other.close()


def test_pgbouncer_has_as_many_connections_as_its_pool(tmp_path: Path, postgres_newest: Postgres) -> None:
    with PgBouncer.start(tmp_path, postgres_newest, pool_size=3) as pool:
        with psycopg.connect(pool.console, autocommit=True) as console:
            said = dict(row[:2] for row in console.execute("SHOW CONFIG").fetchall())
        pool.restart()
        assert answer(pool.url) == 1

    assert said["pool_mode"] == "transaction"
    assert said["default_pool_size"] == "3"
    assert said["max_client_conn"] == "500"


# -- the proxy -----------------------------------------------------------------------------------------------


@pytest.fixture
def proxy(postgres_newest: Postgres) -> Iterator[Proxy]:
    with Proxy.start(postgres_newest.url) as proxy:
        yield proxy


@pytest.fixture
async def direct(postgres_newest: Postgres) -> AsyncIterator[Connection]:
    """A connection that bypasses the proxy, and an empty table `load (n int)`."""
    connection = await asyncpg.connect(postgres_newest.url)
    await connection.execute("CREATE TABLE load (n int)")
    yield connection
    await connection.execute("DROP TABLE load")
    await connection.close()


async def loaded(direct: Connection) -> list[int]:
    return [row["n"] for row in await direct.fetch("SELECT n FROM load ORDER BY n")]


async def test_a_statement_cut_after_its_commit_is_done(proxy: Proxy, direct: Connection) -> None:
    connection = await asyncpg.connect(proxy.url)
    proxy.cut_after_commit()

    with pytest.raises(BROKEN):
        await connection.execute("INSERT INTO load VALUES ($1)", 1)

    assert await loaded(direct) == [1]
    assert proxy.cuts == {"after_commit": 1}
    assert proxy.connections == 0


async def test_a_transaction_cut_after_its_commit_is_done(proxy: Proxy, direct: Connection) -> None:
    connection = await asyncpg.connect(proxy.url)
    proxy.cut_after_commit()
    await connection.execute("BEGIN")
    await connection.execute("INSERT INTO load VALUES ($1)", 1)  # not committed: this reply passes

    with pytest.raises(BROKEN):
        await connection.execute("COMMIT")

    assert await loaded(direct) == [1]


async def test_statements_that_commit_nothing_are_not_cut(proxy: Proxy, direct: Connection) -> None:
    connection = await asyncpg.connect(proxy.url)
    proxy.cut_after_commit()

    await connection.execute("UPDATE load SET n = $1", 2)
    with pytest.raises(asyncpg.DivisionByZeroError):
        await connection.execute("INSERT INTO load VALUES (1); SELECT 1 / 0")
    await connection.execute("BEGIN")
    await connection.execute("INSERT INTO load VALUES (1)")
    await connection.execute("ROLLBACK")

    assert await loaded(direct) == []
    assert not proxy.cuts
    await connection.close()


async def test_only_the_requested_statement_is_cut(proxy: Proxy, direct: Connection) -> None:
    connection = await asyncpg.connect(proxy.url)
    proxy.cut_after_commit(when=lambda tag: tag.startswith("DELETE"))

    await connection.execute("INSERT INTO load VALUES (1)")
    with pytest.raises(BROKEN):
        await connection.execute("DELETE FROM load")

    assert await loaded(direct) == []


async def test_a_statement_cut_before_it_arrives_is_not_done(proxy: Proxy, direct: Connection) -> None:
    proxy.cut_before(2)

    for statement, values in (("INSERT INTO load VALUES (1)", []), ("INSERT INTO load VALUES ($1)", [1])):
        connection = await asyncpg.connect(proxy.url)
        with pytest.raises(BROKEN):
            await connection.execute(statement, *values)
    connection = await asyncpg.connect(proxy.url)
    await connection.execute("INSERT INTO load VALUES (2)")

    assert await loaded(direct) == [2]
    assert proxy.cuts == {"before": 2}
    await connection.close()


async def test_random_cuts_keep_what_was_committed(proxy: Proxy, direct: Connection) -> None:
    proxy.cut_before_statements(0.1, seed=1)
    proxy.cut_after_commits(0.1, seed=2)
    answered = 0
    for n in range(200):
        connection = await asyncpg.connect(proxy.url)
        try:
            await connection.execute("INSERT INTO load VALUES ($1)", n)
            answered += 1
        except BROKEN:
            continue
        await connection.close()
    proxy.spare()

    cuts = proxy.cuts
    assert cuts["before"] > 5
    assert cuts["after_commit"] > 5
    assert len(await loaded(direct)) == answered + cuts["after_commit"] == 200 - cuts["before"]


async def test_a_cut_ends_all_connections_but_lets_new_ones_in(proxy: Proxy) -> None:
    connections = [await asyncpg.connect(proxy.url) for _ in range(5)]

    proxy.cut()

    for connection in connections:
        with pytest.raises(BROKEN):
            await connection.fetchval("SELECT 1")
    assert proxy.cuts == {"cut": 5}
    assert answer(proxy.url) == 1


async def test_a_client_that_is_cut_while_it_is_being_accepted_is_reset() -> None:
    link = Link(Faults(), set(), ("127.0.0.1", 1))
    link.cut("cut")
    ours, theirs = socket.socketpair()
    with theirs:
        await asyncio.get_running_loop().connect_accepted_socket(lambda: link.client, ours)
        theirs.settimeout(5)
        assert await asyncio.to_thread(theirs.recv, 1) == b""


async def test_a_proxy_that_refuses_keeps_existing_connections(proxy: Proxy) -> None:
    connection = await asyncpg.connect(proxy.url)

    proxy.refuse()

    with pytest.raises(ConnectionRefusedError):
        await asyncpg.connect(proxy.url)
    assert await connection.fetchval("SELECT 1") == 1
    proxy.accept()
    assert answer(proxy.url) == 1
    await connection.close()


async def test_nothing_passes_a_frozen_proxy_until_it_thaws(proxy: Proxy) -> None:
    connection = await asyncpg.connect(proxy.url)

    proxy.freeze()
    asked = asyncio.ensure_future(connection.fetchval("SELECT 1"))
    with pytest.raises(TimeoutError):
        await asyncpg.connect(proxy.url, timeout=0.2)
    assert not asked.done()
    proxy.thaw()

    assert await asked == 1
    await connection.close()


async def test_large_responses_pass_completely(proxy: Proxy) -> None:
    connection = await asyncpg.connect(proxy.url)
    proxy.cut_after_commit(when=lambda tag: False)  # has it look at every message

    rows = await connection.fetch("SELECT n, repeat('x', 1000) AS x FROM generate_series(1, 20000) AS n")

    assert sum(len(row["x"]) for row in rows) == 20_000_000
    await connection.close()


async def test_a_server_that_is_down_looks_down_through_the_proxy(tmp_path: Path) -> None:
    with Postgres.start(tmp_path, settings=QUICK) as server, Proxy.start(server.url) as proxy:
        server.stop()
        with pytest.raises(BROKEN):
            await asyncpg.connect(proxy.url)

        server.start_again()
        assert answer(proxy.url) == 1


def test_a_message_may_arrive_in_pieces() -> None:
    stream = b"C\0\0\0\rINSERT 0\0" + b"Z\0\0\0\x05I"
    messages = Messages("server")

    found = [message for byte in stream for message in messages.feed(bytes([byte]))]

    assert [message.kind for message in found] == [COMMAND_COMPLETE, READY]
    assert found[0].tag == "INSERT 0"
    assert found[1].ends_transaction


@pytest.mark.parametrize(
    ("tag", "changes"),
    [
        ("COMMIT", True),
        ("INSERT 0 2", True),
        ("SELECT 1", True),
        ("SELECT 0", False),
        ("UPDATE 0", False),
        ("BEGIN", False),
        ("ROLLBACK", False),
        ("LISTEN", False),
    ],
)
def test_which_tags_may_have_changed_something(tag: str, changes: bool) -> None:
    assert changes_data(tag) is changes
