"""Rows of a SQLite file that a person or another program has damaged."""

import sqlite3
from pathlib import Path

import pytest

from windlass import App
from windlass._model.filter import By, Discard, Filter, Page
from windlass._model.limit import Limit
from windlass._model.queue import QueueSettings, Retention
from windlass._model.record import Archive, Declaration
from windlass._model.state import State
from windlass._model.task import DAMAGED
from windlass._observe.damage import damaged_tasks
from windlass._store.protocol import Severity, all_records
from windlass._stores.sqlite import SQLiteStore
from windlass.testing.conformance.steps import a_task, bury, complete, worker_on

PAYLOAD = b'{"card":"4111","user":1}'


def edit(path: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(path) as file:
        file.execute(statement, values)
    file.close()


@pytest.mark.parametrize(
    ("column", "value", "named"),
    [
        ("secret", "boo", "secret"),
        ("secret", "[1]", "secret"),
        ("after", "{}", "after"),
        ("run_at", "soon", "run_at"),
        ("created_at", 1 << 62, "created_at"),
        ("timeout", "long", "timeout"),
        ("payload", '{"card":"4111","user":1}', None),
    ],
)
async def test_a_damaged_row(column: str, value: object, named: str | None, tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "windlass.db")
    await store.open()
    tasks = [a_task(secret=("card",), payload=PAYLOAD) for _ in range(3)]
    await store.enqueue(tasks)
    bad = tasks[1].id
    edit(store.path, f"UPDATE windlass_task SET {column} = ? WHERE id = ?", value, bad)

    found = (await store.find(Filter(), Page())).items
    shown = {task.id: task.as_dict() for task in found}
    claimed = await (await worker_on(store)).claim(10)
    settled = await store.settle([bury(one) if one.task.id == bad else complete(one) for one in claimed])
    discarded = await store.apply(Discard(by=By(who="ann", why="x")), Filter(), 10)

    assert [task.id for task in found] == [new.id for new in tasks]
    assert all("4111" not in str(one) for one in shown.values())
    if named is None:
        assert shown[bad]["error"] is None
    else:
        assert (shown[bad]["error"]["type"], named in shown[bad]["error"]["message"]) == (DAMAGED, True)
    assert (len(claimed), len(settled.receipts), discarded.ids) == (3, 3, (bad,))
    await store.close()


async def test_the_last_error_of_a_damaged_row_is_kept(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "windlass.db")
    await store.open()
    await store.enqueue([new := a_task()])
    await store.settle([bury(await (await worker_on(store)).claim_one())])
    edit(store.path, "UPDATE windlass_task SET secret = 'boo', payload = 'boo' WHERE id = ?", new.id)

    (task,) = (await store.find(Filter(states=(State.DEAD,)), Page())).items
    assert task.error is not None
    assert task.error.message == "stored damaged: secret; before: ValueError: boom"
    await store.close()


async def test_damaged_records_are_ignored_and_reported(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'windlass.db'}")
    store = app.store
    await store.open()
    await store.put(Limit(name="calls", running=1))
    for name in ("a", "b", "c"):
        await store.put(Declaration(name=f"queue/{name}", body="{}"))
    await store.put(QueueSettings(name="q", stripes=2))
    await store.put(Archive())
    for statement in (
        "UPDATE windlass_record SET body = 'boo' WHERE kind = 'limit' OR kind = 'archive'",
        "UPDATE windlass_record SET body = '{}' WHERE name = 'queue/b'",
        'UPDATE windlass_queue SET settings = \'{"name":"q","stripes":999}\'',
    ):
        edit(tmp_path / "windlass.db", statement)

    page = await store.records(Declaration, Page(limit=2))
    rest = await store.records(Declaration, Page(limit=2, cursor=page.cursor))
    names = [one.name for one in (*page.items, *rest.items)]
    await store.enqueue([ended := a_task()])
    await store.settle([complete(await (await worker_on(store)).claim_one())])

    assert names == ["queue/a", "queue/c"]
    assert (await all_records(store, Limit), await all_records(store, QueueSettings)) == ([], [])
    assert (await store.prune(Retention(completed=None), 10)).number == 0
    (found,) = [one for one in await app.operator.check() if one.subject == "records"]
    assert found.severity is Severity.ERROR
    assert "limit calls" in found.message
    assert "queue q" in found.message
    await store.put(Limit(name="calls", running=2), By(who="ann"))
    assert await store.remove(Archive, "history", By(who="ann"))
    assert [one.running for one in await all_records(store, Limit)] == [2]
    assert (await app.operator.task(ended.id)).state is State.COMPLETED
    await app.close()


async def test_the_check_names_damaged_tasks(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'windlass.db'}")
    await app.store.open()
    await app.store.enqueue([a_task(), bad := a_task(next=b"boo")])
    (warned,) = await damaged_tasks(app.store)
    assert warned.message.startswith(f"1 damaged task among the newest 2: {bad.id}")
    await app.close()
