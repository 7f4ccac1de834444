"""The handle: what shards promise together, their file, and the checks."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.loops.workers import eventually, settings
from tests.stores.shards.conftest import MAP, Shards
from tests.stores.shards.prepared import PreparedShards
from windlass import App
from windlass._model.record import QueueRoute, Routes, ShardMap
from windlass._store.protocol import Capability, Durability, Severity, Store
from windlass._stores import open_store, shards_of, store_name
from windlass._stores.memory import MemoryStore
from windlass._stores.shards import ShardedStore
from windlass._stores.shards.routes import place, routed
from windlass._stores.sqlite import SQLiteStore
from windlass.errors import InvalidOption, NotSupported, SchemaMismatch, StoreError, StoreUnavailable
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import all_records, all_tasks, enqueue_one, worker_on


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shards.toml"
    path.write_text(f'[shards]\na = "sqlite:///{tmp_path}/a.db"\nb = "sqlite:///{tmp_path}/b.db"\n')
    return path


def read(path: Path) -> str:
    return path.read_text()


def write(path: Path, text: str) -> None:
    path.write_text(text)


async def test_a_program_runs_on_the_shards_of_a_file(file: Path) -> None:
    app = App(f"shards://{file}")

    @app.task(name="double", queue="numbers")
    def double(number: int) -> int:
        return 2 * number

    async with app:
        handles = [await double.using(queue=f"q{number}").aenqueue(number=number) for number in range(8)]
        await app.worker(settings(all_queues=True, drain=True)).run()
        results = [await handle.result(timeout=30) for handle in handles]

    assert results == [2 * number for number in range(8)]
    assert store_name(f"shards://{file}") == f"shards://{file}"


async def test_all_processes_make_one_map(file: Path) -> None:
    stores = [open_store(f"shards://{file}") for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))

    maps = {(await all_records(store, ShardMap))[0].id for store in stores}
    for store in stores:
        await store.close()

    assert len(maps) == 1


async def test_a_store_becomes_the_first_shard_with_its_tasks(file: Path, tmp_path: Path) -> None:
    single = SQLiteStore(tmp_path / "a.db")
    await single.open()
    queues = [f"queue-{number}" for number in range(6)]
    ids = {await enqueue_one(single, queue=queue) for queue in queues}
    await single.close()

    store = open_store(f"shards://{file}")
    await store.open()
    worker = await worker_on(store)
    claimed = await worker.claim(10, *queues)
    found = await all_tasks(store)
    new = [await enqueue_one(store, queue=queue) for queue in queues]
    await store.close()

    assert {one.task.id for one in claimed} == {task.id for task in found} == ids
    assert {place(Routes(open=("a", "b")), queue, "") for queue in queues} == {"a", "b"}
    assert len(new) == 6


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "one table"),
        ("[shards]\n", "one table"),
        ("[other]\n", "one table"),
        ('[shards]\n"A b" = "memory://"\n', "name of a shard"),
        ("[shards]\na = 1\n", "URL of a single store"),
        ('[shards]\na = "shards:///x"\n', "URL of a single store"),
        ('[shards]\na = "nosuch://x"\n', "no store for the URL"),
        ('[shards]\na = "sqlite:///x.db"\nb = "sqlite:///x.db"\n', "'a' and 'b' have the same URL"),
        ("[shards\n", "not valid TOML"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "shards.toml"
    path.write_text(text)

    with pytest.raises(InvalidOption, match=problem):
        open_store(f"shards://{path}")


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="No such file"):
        open_store(f"shards://{tmp_path}/shards.toml")


async def test_the_promise_is_that_of_the_weakest_shard(tmp_path: Path) -> None:
    store = ShardedStore({"a": SQLiteStore(tmp_path / "a.db"), "b": MemoryStore()})
    await store.open()

    assert store.promise.durability is Durability.VOLATILE
    assert "b promises the least: kept in this process's memory" in store.promise.why
    assert store.capabilities == Capability(0)
    assert list(await store.migrations()) == []
    await store.close()


async def test_shards_of_one_kind_are_migrated_together(file: Path) -> None:
    store = open_store(f"shards://{file}")
    await store.open()

    assert store.promise.durability is Durability.DURABLE
    assert Capability.MIGRATE in store.capabilities
    assert Capability.JOIN not in store.capabilities
    assert [step.applied for step in await store.migrations()] == [True] * len(await store.migrations())
    with pytest.raises(NotSupported, match="several shards"):
        store.transaction()
    await store.close()


async def test_a_shard_of_another_store_is_refused(shards: Shards) -> None:
    await shards.stores["b"].put(replace(MAP, id="other"))

    with pytest.raises(StoreError, match="belongs to another store"):
        await PreparedShards(shards.faulty(), MAP).open()


async def test_the_first_map_needs_all_shards(shards: Shards) -> None:
    shards.down = {"b"}
    store = ShardedStore(shards.faulty())

    with pytest.raises(StoreUnavailable, match="shard b"):
        await store.open()


async def test_urls_that_are_swapped_are_refused(file: Path, tmp_path: Path) -> None:
    store = open_store(f"shards://{file}")
    await store.open()
    await shards_of(store).route("mail", ["b"])
    await store.close()
    write(file, f'[shards]\na = "sqlite:///{tmp_path}/b.db"\nb = "sqlite:///{tmp_path}/a.db"\n')

    swapped = open_store(f"shards://{file}")
    with pytest.raises(StoreError, match=r"the URL of shard (a leads to shard b|b leads to shard a)"):
        await swapped.open()
    await swapped.close()


async def test_a_map_that_names_an_unknown_shard_says_so_where_it_is_needed(shards: Shards) -> None:
    stores = {name: store for name, store in shards.faulty().items() if name != "c"}
    store = PreparedShards(stores, MAP)
    await store.open()

    await enqueue_one(store, queue="on-a")
    with pytest.raises(StoreUnavailable, match="names c"):
        await enqueue_one(store, queue="on-c")


async def test_a_file_that_is_being_written_is_read_again_later(file: Path, tmp_path: Path) -> None:
    store = open_store(f"shards://{file}")
    await store.open()
    complete = read(file) + f'c = "sqlite:///{tmp_path}/c.db"\n'
    (one,) = await all_records(store, ShardMap)
    routes = routed(replace(one, shards=("a", "b", "c"), on=""), "to-c", QueueRoute(over=("c",)))
    routes = routed(routes, "to-a", QueueRoute(over=("a",)))
    assert isinstance(store, ShardedStore)
    for name in "ab":
        await store.shards[name].store.put(routes)
    await store.shards.refresh()

    write(file, "[sha")
    await store.shards.refresh()
    await enqueue_one(store, queue="to-a")
    with pytest.raises(StoreUnavailable, match=r"whose URL is not known yet: .*not valid TOML"):
        await enqueue_one(store, queue="to-c")
    write(file, complete)
    await enqueue_one(store, queue="to-c")

    assert len(await all_tasks(store)) == 2
    await store.close()


async def test_a_shard_with_an_older_schema_is_migrated_and_holds_up_no_other(file: Path) -> None:
    before = open_store(f"shards://{file}")
    await before.open()
    assert isinstance(before, ShardedStore)
    home = before.shards.map.home
    (other,) = {"a", "b"} - {home}
    newest = len(await before.migrations())
    await before.shards[other].store.migrate(newest - 1)
    await before.close()

    store = open_store(f"shards://{file}")
    await store.open()
    assert isinstance(store, ShardedStore)
    queues = {place(store.shards.routes, f"queue-{number}", ""): f"queue-{number}" for number in range(20)}
    await enqueue_one(store, queue=queues[home])
    with pytest.raises(SchemaMismatch, match=f"shard {other}"):
        await enqueue_one(store, queue=queues[other])
    taken = await store.migrate()

    async def is_back() -> bool:
        with suppress(SchemaMismatch):
            await enqueue_one(store, queue=queues[other])
            return True
        return False

    assert [step.number for step in taken] == [newest]
    assert await eventually(is_back)
    await store.close()


async def test_all_shards_with_an_older_schema_are_migrated(file: Path) -> None:
    before = open_store(f"shards://{file}")
    await before.open()
    await before.migrate(len(await before.migrations()) - 1)
    await before.close()
    store = open_store(f"shards://{file}")

    with pytest.raises(SchemaMismatch):
        await store.open()
    taken = await store.migrate()
    await eventually(lambda: _opens(store))
    await store.close()

    assert len(taken) == 1


async def _opens(store: Store) -> bool:
    try:
        await store.open()
    except SchemaMismatch:
        return False
    return True


async def test_a_check_compares_the_clocks_of_the_shards() -> None:
    clocks = {name: ManualClock() for name in "abc"}
    store = ShardedStore({name: MemoryStore(clock=clock) for name, clock in clocks.items()})
    await store.open()
    clocks["b"].advance(60)
    clocks["c"].advance(1)

    found = [finding for finding in await store.check() if finding.subject.startswith("clock")]

    assert [(one.subject, one.severity) for one in found] == [("clock of b", Severity.WARNING)]
    assert "60 s ahead of that of the home shard a" in found[0].message
    await store.close()


async def test_a_check_shows_each_shard(store: PreparedShards, shards: Shards) -> None:
    await enqueue_one(shards.stores["a"], queue="on-b")
    shards.down = {"c"}

    found = {finding.subject: finding for finding in await store.check()}

    assert found["shard a"].severity is Severity.WARNING
    assert "queues that are on other shards" in found["shard a"].message
    assert found["shard b"].message == "open; tasks: 0, not ended: 0"
    assert found["shard c"].severity is Severity.ERROR
    assert found["a: durability"].severity is Severity.WARNING
