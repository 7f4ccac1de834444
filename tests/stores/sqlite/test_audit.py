"""The audit log in a file: one transaction with what it tells of, and no line lost on the way down. (I3)"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from windlass._model.limit import Limit
from windlass._model.queue import QueueSettings
from windlass._model.record import Audit
from windlass._stores.sqlite import SQLiteStore
from windlass.testing.conformance.steps import OPERATOR, all_records, cancel, enqueue_one

Peek = Callable[..., list[tuple[object, ...]]]
BEFORE_SUBJECTS = 3

NO_LINES = """
CREATE TRIGGER no_lines BEFORE INSERT ON windlass_audit BEGIN SELECT RAISE(ABORT, 'no line today'); END
"""
AS_OLD_CODE_DOES = """
INSERT INTO windlass_audit (id, at, who, why, action, task_id, detail)
VALUES ('zz', 0, 'ann', '', 'cancel', 't', '')
"""


def execute(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(sql)


@pytest.mark.parametrize("record", [QueueSettings(name="a", paused=True), Limit(name="a", running=1)])
async def test_what_cannot_be_logged_is_not_done(
    store: SQLiteStore, path: Path, record: QueueSettings | Limit
) -> None:
    kind, standing = type(record), replace(record, name="b")
    await store.put(standing)
    execute(path, NO_LINES)

    with pytest.raises(Exception, match="no line today"):
        await store.put(record, OPERATOR)
    with pytest.raises(Exception, match="no line today"):
        await store.remove(kind, "b", OPERATOR)

    assert await all_records(store, kind) == (standing,)


async def test_going_down_and_up_keeps_every_line(store: SQLiteStore, peek: Peek) -> None:
    task_id = await enqueue_one(store)
    await cancel(store, task_id)
    await store.put(QueueSettings(name="mail", stripes=2), OPERATOR)
    await store.remove(QueueSettings, "mail", OPERATOR)
    cancelled, put, removed = await all_records(store, Audit)

    await store.migrate(BEFORE_SUBJECTS)
    below = peek("SELECT task_id, detail FROM windlass_audit ORDER BY id")
    await store.migrate()

    assert below == [
        (task_id, cancelled.detail),
        ("", f"queue mail {put.detail}"),
        ("", "queue mail"),
    ]
    lines = await all_records(store, Audit)
    assert lines[0] == cancelled
    assert [line.id for line in lines] == [cancelled.id, put.id, removed.id]
    assert [line.subject for line in lines] == ["", "", ""]


async def test_code_of_before_goes_on_to_write_lines(store: SQLiteStore, path: Path) -> None:
    execute(path, AS_OLD_CODE_DOES)

    (line,) = await all_records(store, Audit)
    assert (line.task_id, line.subject) == ("t", "")
