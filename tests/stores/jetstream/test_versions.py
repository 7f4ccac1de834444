"""Owners of several versions of windlass: a newer one migrates the store, an older one leaves it alone."""

from pathlib import Path

import pytest

from tests.loops.workers import eventually
from tests.servers.owners import Owners
from tests.system.jetstream.old_store import write_old_store
from windlass._model.filter import Filter, Page
from windlass._stores.jetstream import JetStreamStore
from windlass._stores.jetstream.address import parse
from windlass._stores.sqlite import schema
from windlass.testing.conformance.steps import a_task

OLD = 4


async def ids_in(store: JetStreamStore) -> set[str]:
    return {task.id for task in (await store.find(Filter(), Page(limit=1000))).items}


async def test_an_owner_migrates_what_an_older_version_has_left(
    store: JetStreamStore, url: str, owners: Owners, tmp_path: Path
) -> None:
    ids = await write_old_store(parse(url), tmp_path, schema=OLD, tasks=100, queues=["default"])

    owners.start(url, tmp_path)

    assert await ids_in(store) == set(ids)
    await store.enqueue([a_task()])


async def test_an_owner_that_does_not_know_the_schema_does_not_take_over(
    store: JetStreamStore,
    url: str,
    owners: Owners,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    newer = owners.start(url, tmp_path)
    enqueued = await store.enqueue([a_task()])
    known = schema.steps()[:-1]
    monkeypatch.setattr(schema, "steps", lambda: known)
    older = owners.stand_by(url, tmp_path)

    owners.stop(newer)
    await eventually(lambda: "cannot own" in caplog.text, within=30)

    assert not older.owns.is_set()
    monkeypatch.undo()
    assert await ids_in(store) == {one.id for one in enqueued}
    assert older.owns.is_set()
