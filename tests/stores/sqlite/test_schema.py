"""The schema: its steps up and down, its constraints, and who may take a step."""

import asyncio
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from windlass._model.state import State
from windlass._model.task import Task
from windlass._store.protocol import Phase, Severity
from windlass._stores.migrations import Step, load_steps, next_move, overview
from windlass._stores.sqlite import SQLiteStore, rows
from windlass._stores.statements import load, slots_of
from windlass.errors import InvalidOption, SchemaMismatch
from windlass.testing.conformance.steps import a_task, enqueue_one

from .conftest import line_of

Peek = Callable[..., list[tuple[object, ...]]]
NEWEST = len(load_steps("windlass._stores.sqlite"))
SQL = sorted(Path(rows.__file__).parent.joinpath("sql").glob("*.sql"))

MIGRATE = """
import asyncio, sys
from windlass._stores.sqlite import SQLiteStore
async def main():
    sys.stdin.readline()
    taken = await SQLiteStore(sys.argv[1]).migrate()
    print(len(taken), flush=True)
print("here", flush=True)
asyncio.run(main())
"""


def schema(peek: Peek) -> list[tuple[object, ...]]:
    return peek("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name")


async def test_up_down_up_gives_the_same_schema(path: Path, peek: Peek) -> None:
    store = SQLiteStore(path)
    await store.migrate()
    first = schema(peek)

    down = await store.migrate(0)
    nothing = schema(peek)
    up = await store.migrate()

    assert [(m.number, m.applied) for m in down] == [(n, False) for n in range(NEWEST, 0, -1)]
    assert [(m.number, m.applied) for m in up] == [(n, True) for n in range(1, NEWEST + 1)]
    assert [name for _, name, _, _ in nothing] == ["windlass_schema"]
    assert schema(peek) == first


async def test_migrators_at_once_take_each_step_once(path: Path, python, peek: Peek) -> None:
    processes = [python(MIGRATE, path) for _ in range(4)]
    for process in processes:
        assert await line_of(process) == "here"

    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    taken = [int(await line_of(process)) for process in processes]

    assert sum(taken) == NEWEST
    assert peek("SELECT number FROM windlass_schema") == [(NEWEST,)]


async def test_the_steps_are_listed_with_what_is_applied(store: SQLiteStore) -> None:
    listed = [(m.number, m.name, m.applied) for m in await store.migrations()]

    names = (
        "tasks",
        "once",
        "lanes",
        "subjects",
        "unhandled",
        "ended_types",
        "cancellation",
        "notes",
        "failures",
        "chains",
    )
    assert listed == [(number, name, True) for number, name in enumerate(names, 1)]


async def test_there_is_no_step_beyond_the_last(store: SQLiteStore) -> None:
    with pytest.raises(InvalidOption, match="from 0"):
        await store.migrate(99)


async def test_a_newer_schema_is_refused_and_left_alone(store: SQLiteStore, path: Path, peek: Peek) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE windlass_schema SET number = ?", (NEWEST + 1,))
    other = SQLiteStore(path)

    with pytest.raises(SchemaMismatch, match="upgrade windlass"):
        await other.open()
    with pytest.raises(SchemaMismatch, match="upgrade windlass"):
        await other.migrate()

    assert [m.number for m in await other.migrations()] == list(range(1, NEWEST + 2))
    assert peek("SELECT number FROM windlass_schema") == [(NEWEST + 1,)]


async def test_an_older_schema_waits_for_a_person(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = load_steps("windlass._stores.sqlite")
    await SQLiteStore(path).migrate()
    further = Step(number=NEWEST + 1, name="more", up="CREATE TABLE more (a);", down="DROP TABLE more;")
    monkeypatch.setattr("windlass._stores.sqlite.schema.steps", lambda: (*known, further))
    store = SQLiteStore(path)

    with pytest.raises(SchemaMismatch, match="windlass migrate"):
        await store.open()
    await store.migrate()

    await store.open()
    await store.close()


async def test_outstanding_after_steps_are_tolerated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = load_steps("windlass._stores.sqlite")
    await SQLiteStore(path).migrate()
    late = Step(
        number=NEWEST + 1, name="late", up="-- phase: after\nDROP TABLE odd;", down="CREATE TABLE odd (a);"
    )
    monkeypatch.setattr("windlass._stores.sqlite.schema.steps", lambda: (*known, late))
    store = SQLiteStore(path)

    await enqueue_one(store)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("BEGIN")
        assert store.join(connection).enqueue([a_task()])
    findings = await store.check()

    assert [(m.number, m.phase) for m in await store.migrations() if not m.applied] == [
        (NEWEST + 1, Phase.AFTER)
    ]
    assert [f.severity for f in findings if f.subject == "schema"] == [Severity.WARNING]
    assert "no expired sessions or orphaned tasks" in [f.message for f in findings]
    await store.close()


async def test_a_file_with_tables_of_the_applications_own_gets_ours_beside_them(
    path: Path, peek: Peek
) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 42")
        connection.execute("CREATE TABLE task (id INTEGER)")
    store = SQLiteStore(path)

    await enqueue_one(store)

    assert peek("PRAGMA user_version") == [(42,)]
    assert peek("SELECT count(*) FROM windlass_task") == [(1,)]
    await store.close()


async def test_without_its_tables_the_store_says_to_migrate(store: SQLiteStore) -> None:
    await store.migrate(0)

    with pytest.raises(SchemaMismatch, match="windlass migrate"):
        await store.enqueue([a_task()])


def test_the_states_of_the_constraint_are_those_of_the_model(tmp_path: Path) -> None:
    step, *_ = load_steps("windlass._stores.sqlite")
    table = step.up[step.up.index("state TEXT") : step.up.index("attempt INTEGER")]

    assert set(re.findall(r"state = '(\w+)'", table)) == {state.value for state in State}


async def test_a_state_that_is_none_cannot_be_written(store: SQLiteStore, path: Path) -> None:
    task_id = await enqueue_one(store)

    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.IntegrityError):
        connection.execute("UPDATE windlass_task SET state = 'odd' WHERE id = ?", (task_id,))


def test_the_columns_of_a_task_are_its_fields_in_order() -> None:
    fields = [
        column.partition("_")[0] if column.startswith(("progress", "error")) else column
        for column in rows.TASK_COLUMNS
    ]

    assert tuple(dict.fromkeys(fields)) == Task.__struct_fields__


@pytest.mark.parametrize("name", ["tasks", "get", "find"])
def test_every_statement_that_reads_tasks_takes_their_columns_from_the_list(name: str) -> None:
    assert "SELECT /* :task_columns */" in load(rows.__package__ or "", name)


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the tables, for tests that do not write."""
    path = tmp_path_factory.mktemp("migrated") / "windlass.db"
    asyncio.run(SQLiteStore(path).migrate())
    return path


@pytest.mark.parametrize("file", SQL, ids=lambda file: file.stem)
def test_every_statement_says_what_it_is_for_and_can_be_prepared(file: Path, migrated: Path) -> None:
    text = file.read_text()
    varying = slots_of(text) - {"task_columns", "new_columns", "new_values"}
    sql = rows.filled(file.stem, {slot: "TRUE" if slot == "conditions" else "" for slot in varying})
    names = dict.fromkeys(re.findall(r":(\w+)", sql))

    assert text.startswith("-- ")
    with closing(sqlite3.connect(migrated)) as connection:
        connection.execute(f"EXPLAIN {sql}", names or (None,) * sql.count("?"))


def test_steps_lead_from_anywhere_to_anywhere() -> None:
    steps = [Step(number=n, name=f"s{n}", up=f"up{n}", down=f"down{n}") for n in (1, 2, 3)]

    for start in range(4):
        for target in range(4):
            at, scripts = start, []
            while (move := next_move(steps, at, target)) is not None:
                scripts.append(move.script)
                at = move.arrives_at
            assert at == target
            assert len(scripts) == abs(target - start)
    assert [m.applied for m in overview(steps, 2)] == [True, True, False]
