"""Failover: a standby takes over, whatever became of the primary, and nothing acknowledged is lost."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.examples import sample
from tests.loops.workers import eventually
from tests.servers.api import ApiServer
from tests.servers.postgres import USER, Postgres
from tests.servers.proxy import Proxy
from tests.servers.replicated import Member, Replicated
from tests.stores.postgres.faulty import (
    all_ended,
    asked,
    assert_ended_once,
    despite_trouble,
    fresh,
    listening,
    opened,
    program,
    tell,
)
from windlass import App, StoreError, StoreUnavailable
from windlass._model.task import NewTask
from windlass._store.protocol import Durability, Severity
from windlass._stores.postgres import PostgresStore
from windlass._stores.postgres.connection import hosts
from windlass._stores.postgres.connection.hosts import Hosts, each_host
from windlass._stores.postgres.connection.server import Server
from windlass.testing.conformance.steps import a_task, all_tasks, enqueue_one

Fault = Callable[[Member], None]
WAITS = "SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
SETTINGS = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}


@pytest.fixture(scope="module")
def started(server_folder: Path) -> Iterator[Replicated]:
    """A primary with a synchronous standby; tests may exchange their parts."""
    with Replicated.start(server_folder) as servers:
        yield servers


@pytest.fixture
def servers(started: Replicated) -> Iterator[Replicated]:
    yield started
    started.rejoin()


def crash(primary: Member) -> None:
    primary.kill()


def switch_over(primary: Member) -> None:
    primary.stop("fast")


def freeze(primary: Member) -> None:
    primary.freeze()


def cut_off(primary: Member) -> None:
    primary.cut_off()


@pytest.mark.parametrize("fault", sample([crash, freeze], [switch_over, cut_off]))
async def test_work_moves_to_the_standby_that_was_promoted(servers: Replicated, fault: Fault) -> None:
    """Also away from a primary that closes no connection: statements to it would wait for a minute."""
    old = servers.primary
    async with program(fresh(servers.url), slots=8, lease=20) as (app, work, started):
        await work.aenqueue_many([{"key": str(n), "seconds": 0.02} for n in range(200)])
        for _ in range(20):
            await asyncio.wait_for(started.get(), 10)
        await asyncio.to_thread(fault, old)
        await asyncio.to_thread(servers.promote)
        await eventually(lambda: all_ended(app, 200), within=30)
        await assert_ended_once(app, 200)
        await eventually(lambda: listening(servers.primary), within=30)  # wakes come from there, too
    if old.is_alive:
        old.kill()


async def test_all_other_ways_to_the_store_lead_to_the_new_primary(servers: Replicated) -> None:
    """The HTTP API, a caller's own transaction, and one of the store's for a handler in a thread."""
    app = App(fresh(servers.url))

    @app.task(name="work")
    async def work() -> None: ...

    with ApiServer() as api:
        url = api.serve_app(app, open_to_all=True)

        def post() -> int:
            return httpx.post(f"{url}/tasks", json={"type": "work"}, timeout=20).status_code

        def join() -> bool:
            with psycopg.connect(servers.primary.url) as connection:
                work.using(within=connection).enqueue()
            return True

        def run_in_thread() -> bool:
            with app.store.transaction() as connection:
                return bool(connection.execute("SELECT 1").fetchone())

        for _ in range(2):
            await eventually(lambda: asyncio.to_thread(lambda: post() == 201), within=30)
            for act in (join, run_in_thread):
                assert await eventually(
                    lambda act=act: despite_trouble(lambda: asyncio.to_thread(act)), within=30
                )
            if servers.standbys:
                await asyncio.to_thread(servers.primary.kill)
                await asyncio.to_thread(servers.promote)
        await app.close()


# -- what is acknowledged is not lost ------------------------------------------------------------------


async def test_a_repeat_is_not_acknowledged_before_a_standby_has_the_task(servers: Replicated) -> None:
    """A commit that was given up while it waited for the standby is there, and a failover would lose it."""
    async with opened(fresh(servers.straight)) as store:
        await enqueue_one(store)
        servers.primary.cut_off()  # from its standby
        for new in (a_task(), a_task(idempotency_key="a key"), a_task(fingerprint="alike")):
            assert not await is_acknowledged(store, servers.primary, new)
            await eventually(lambda: not asked(servers.primary, WAITS))
            assert new.id in {task.id for task in await all_tasks(store)}

            again = a_task(fingerprint="alike") if new.fingerprint else new
            assert not await is_acknowledged(store, servers.primary, again)

        await asyncio.to_thread(servers.primary.kill)
        await asyncio.to_thread(servers.promote)
        (kept,) = await eventually(lambda: despite_trouble(lambda: all_tasks(store)))
        assert kept.id != new.id


async def is_acknowledged(store: PostgresStore, primary: Member, new: NewTask) -> bool:
    """Whether an enqueue is answered without waiting for a standby; if not, it is given up."""
    enqueueing = asyncio.create_task(store.enqueue([new]))
    await eventually(lambda: enqueueing.done() or asked(primary, WAITS))
    if not enqueueing.done():
        enqueueing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await enqueueing
        return False
    return True


async def test_commits_wait_for_a_standby_that_is_lost_and_work_goes_on_when_it_is_back(
    servers: Replicated,
) -> None:
    (standby,) = servers.standbys
    async with program(fresh(servers.url), slots=8, lease=20) as (app, work, started):
        await work.aenqueue(key="first")
        await asyncio.wait_for(started.get(), 10)
        await asyncio.to_thread(standby.freeze)
        enqueueing = asyncio.create_task(work.aenqueue_many([{"key": str(n)} for n in range(50)]))
        await eventually(lambda: asked(servers.primary, WAITS))
        assert not enqueueing.done()
        await asyncio.to_thread(standby.thaw)
        await asyncio.wait_for(enqueueing, 20)
        await eventually(lambda: all_ended(app, 51), within=30)
        await assert_ended_once(app, 51)


@pytest.mark.full
async def test_an_asynchronous_standby_loses_what_was_acknowledged_and_the_promise_says_so(
    server_folder: Path,
) -> None:
    with Replicated.start(server_folder, settings={"fsync": "on", "full_page_writes": "on"}) as servers:
        async with opened(fresh(servers.straight)) as store:
            assert store.promise.durability is Durability.RELAXED
            assert "a failover can lose the last acknowledged" in store.promise.why
            kept = await enqueue_one(store)
            caught_up = "SELECT bool_and(replay_lsn = pg_current_wal_lsn()) FROM pg_stat_replication"
            await eventually(lambda: servers.primary.ask(caught_up))
            (found,) = [one for one in await store.check() if one.subject == "replication"]
            assert found.severity is Severity.WARNING
            assert "none of them synchronous" in found.message

            servers.primary.cut_off()  # from its standby, whose clients do not notice
            lost = await enqueue_one(store)
            await asyncio.to_thread(servers.primary.kill)
            await asyncio.to_thread(servers.promote)

            tasks = await eventually(lambda: despite_trouble(lambda: all_tasks(store)))
            assert kept in {task.id for task in tasks}
            assert lost not in {task.id for task in tasks}


# -- find the primary ----------------------------------------------------------------------------------


async def test_a_standby_alone_is_unavailable(servers: Replicated) -> None:
    with pytest.raises(StoreUnavailable, match="is read-only"):
        async with opened(fresh(servers.standbys[0].url)):
            pass


async def test_an_old_primary_that_comes_back_is_not_taken_for_a_new_one(servers: Replicated) -> None:
    """The last primary may only be slow: what is acknowledged from then on would be on two servers."""
    old = servers.primary
    await asyncio.to_thread(old.kill)
    await asyncio.to_thread(servers.promote)
    found = Hosts(servers.url)
    connection = await found.connect()
    await found.note_timeline(connection)
    await asyncio.to_thread(old.start_again)

    with pytest.raises(ConnectionError, match="it was the primary before the last one"):
        await found.connect_elsewhere()

    connection.terminate()
    await asyncio.to_thread(old.kill)


async def test_a_host_that_does_not_answer_does_not_keep_us_from_the_next(servers: Replicated) -> None:
    with Proxy.start(servers.primary.url) as dead:
        dead.freeze()
        silent, straight = f"127.0.0.1:{dead.port}", f"127.0.0.1:{servers.primary.port}"
        found = Hosts(f"postgresql://{USER}@{silent},{straight}/windlass")
        connection = await asyncio.wait_for(found.connect(), 5)
        assert connection._addr[1] == servers.primary.port
        connection.terminate()


@pytest.mark.full
async def test_a_standby_that_is_promoted_is_found_while_the_old_primary_is_silent(
    servers: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "CONNECT_SECONDS", 60.0)
    old = servers.primary
    await asyncio.to_thread(old.freeze)
    searching = asyncio.create_task(Hosts(servers.url).connect())
    standby = servers.standbys[0]
    await eventually(lambda: standby.proxy.connections > 0 or searching.done())
    await asyncio.to_thread(servers.promote)
    connection = await asyncio.wait_for(searching, 30)
    assert connection._addr[1] == standby.proxy.port
    connection.terminate()
    await asyncio.to_thread(old.kill)


async def test_without_a_primary_the_error_names_what_each_host_answered(servers: Replicated) -> None:
    with Proxy.start(servers.primary.url) as gone:
        port = gone.port
    url = f"postgresql://{USER}@127.0.0.1:{port},127.0.0.1:{servers.standbys[0].port}/windlass"
    with pytest.raises(StoreUnavailable, match="it is a standby") as caught:
        async with opened(fresh(url)):
            pass
    assert f"127.0.0.1:{port}: " in str(caught.value)
    assert "Connect call failed" in str(caught.value)


async def test_a_host_that_denies_access_is_reported_if_no_other_takes_writes(servers: Replicated) -> None:
    url = f"postgresql://{USER}@127.0.0.1:{servers.standbys[0].port}"
    with pytest.raises(StoreError, match="denied access"):
        async with opened(fresh(f"{url},127.0.0.1:{servers.primary.port}/not_there")):
            pass


async def test_options_that_only_libpq_knows_do_not_keep_us_from_connecting(servers: Replicated) -> None:
    options = "connect_timeout=3&keepalives_idle=5&load_balance_hosts=random&target_session_attrs=any"
    connection = await Hosts(f"{servers.url}?{options}&application_name=shop").connect()
    assert connection._addr[1] == servers.primary.proxy.port
    assert await connection.fetchval("SHOW application_name") == "shop"
    await connection.close()


def test_a_url_names_each_of_its_hosts() -> None:
    one = "postgresql://me:secret@a:1/db?sslmode=disable"
    assert each_host(one) == [one]
    assert each_host("postgresql:///db?host=/tmp") == ["postgresql:///db?host=/tmp"]
    assert each_host("postgresql://me:s%40@a:1,b/db") == [
        "postgresql://me:s%40@a:1/db",
        "postgresql://me:s%40@b/db",
    ]
    assert each_host("postgresql:///db?host=a,b&port=1,2&user=me") == [
        "postgresql:///db?host=a&port=1&user=me",
        "postgresql:///db?host=b&port=2&user=me",
    ]
    assert each_host("postgresql://me@/db?host=a,b&port=7") == [
        "postgresql://me@/db?host=a&port=7",
        "postgresql://me@/db?host=b&port=7",
    ]
    assert each_host("postgresql:///db?host=a,b") == ["postgresql:///db?host=a", "postgresql:///db?host=b"]


async def test_hosts_may_be_named_as_options(servers: Replicated) -> None:
    ports = f"{servers.standbys[0].port},{servers.primary.port}"
    url = f"postgresql:///windlass?user={USER}&host=127.0.0.1,127.0.0.1&port={ports}"
    connection = await Hosts(url).connect()
    assert connection._addr[1] == servers.primary.port
    await connection.close()


# -- promise and check ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "several_hosts", "durability", "words"),
    [
        ({}, False, Durability.DURABLE, "to disk before"),
        ({}, True, Durability.RELAXED, "set synchronous_standby_names"),
        ({"synchronous_standby_names": "*"}, True, Durability.DURABLE, "and on a synchronous standby"),
        ({"synchronous_standby_names": "*"}, False, Durability.DURABLE, "and on a synchronous standby"),
        (
            {"synchronous_standby_names": "*", "synchronous_commit": "remote_write"},
            True,
            Durability.DURABLE,
            "a synchronous standby has received it",
        ),
        (
            {"synchronous_standby_names": "*", "synchronous_commit": "local"},
            True,
            Durability.RELAXED,
            "synchronous_commit is local",
        ),
        (
            {"synchronous_standby_names": "*", "synchronous_commit": "off"},
            True,
            Durability.RELAXED,
            "synchronous_commit is off",
        ),
    ],
)
def test_the_promise_is_about_a_failover_too(
    settings: dict[str, str], several_hosts: bool, durability: Durability, words: str
) -> None:
    server = Server(pooled=False, settings=SETTINGS | settings, several_hosts=several_hosts)

    assert server.promise.durability is durability
    assert words in server.promise.why


async def replication(url: str) -> list[tuple[Severity, str]]:
    async with opened(url) as store:
        return [(one.severity, one.message) for one in await store.check() if one.subject == "replication"]


@pytest.mark.full
async def test_the_check_looks_at_the_standbys(servers: Replicated) -> None:
    url = fresh(servers.url)
    assert await replication(url) == [(Severity.OK, "1 standby is connected, 1 of them synchronous")]

    tell(servers.primary, "DROP ROLE IF EXISTS plain", "CREATE ROLE plain LOGIN SUPERUSER")
    await PostgresStore.from_url(url.replace(USER, "plain", 1)).close()
    tell(servers.primary, "ALTER ROLE plain SET synchronous_commit = remote_write")
    ((severity, message),) = await replication(url.replace(USER, "plain", 1))
    assert severity is Severity.WARNING
    assert "remote_write" in message

    await asyncio.to_thread(servers.standbys[0].stop, "fast")
    ((severity, message),) = await replication(url)
    assert severity is Severity.ERROR
    assert "commits wait" in message


async def test_without_the_privilege_the_check_says_that_it_cannot_see_the_standbys(
    servers: Replicated,
) -> None:
    url = fresh(servers.url)
    async with opened(url) as store:
        schema = store.address.schema
    tell(
        servers.primary,
        "DROP ROLE IF EXISTS humble",
        "CREATE ROLE humble LOGIN",
        f"GRANT USAGE ON SCHEMA {schema} TO humble",
        f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO humble",
    )
    ((severity, message),) = await replication(url.replace(USER, "humble", 1))
    assert severity is Severity.OK
    assert "GRANT pg_monitor" in message
    tell(servers.primary, "DROP OWNED BY humble", "DROP ROLE humble")


@pytest.mark.full
async def test_a_single_server_has_no_replication_to_report(server_folder: Path) -> None:
    with Postgres.start(server_folder) as alone:
        assert await replication(fresh(alone.url)) == []
