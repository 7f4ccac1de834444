"""The keeper's chore of archiving: before it prunes, whoever leads."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from tests.loops.workers import eventually, tasks
from windlass import App, By, Filter
from windlass._model.record import Archive
from windlass._stores.memory import MemoryStore
from windlass.errors import NotFound
from windlass.testing.clock import ManualClock

LONG_AGO = timedelta(days=30)


@asynccontextmanager
async def keeping(app: App) -> AsyncIterator[None]:
    run = asyncio.create_task(app.keeper().run())
    try:
        yield
    finally:
        run.cancel()
        await asyncio.wait([run])


@pytest.fixture
async def history() -> MemoryStore:
    """A store with a task that ended long ago."""
    clock = ManualClock()
    app = App(MemoryStore(clock=clock))
    await app.client.send("t")
    await app.operator.cancel(Filter(), by=By(who="ann"))
    clock.advance(LONG_AGO)
    store = app.store.inner
    assert isinstance(store, MemoryStore)
    return store


async def test_a_keeper_with_an_archive_writes_history_and_then_prunes_it(
    history: MemoryStore, tmp_path: Path
) -> None:
    app = App(history, archive=str(tmp_path / "history"))

    async with keeping(app):
        await eventually(lambda: _is_empty(app))

    (file,) = (tmp_path / "history").glob("*.ndjson")
    assert await app.operator.archive() is not None
    assert file.read_text().count("\n") == 1


async def _is_empty(app: App) -> bool:
    return not await tasks(app)


async def test_a_keeper_without_one_prunes_nothing_and_says_so(
    history: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="windlass")
    app = App(history)
    await history.put(Archive())

    async with keeping(app):
        await eventually(lambda: "archiving is on" in caplog.text)
        await asyncio.wait_for(app.store.now(), 5)

    assert len(await tasks(app)) == 1


async def test_archiving_is_turned_off_by_a_person(history: MemoryStore) -> None:
    app = App(history)
    await history.put(Archive(directory="/archive"))

    found = await app.operator.archive()
    await app.operator.acting_as(By(who="ann", why="moved")).stop_archiving()

    assert found is not None
    assert found.directory == "/archive"
    assert await app.operator.archive() is None
    with pytest.raises(NotFound):
        await app.operator.stop_archiving()
    line = (await app.operator.audit()).items[0]
    assert (line.action, line.subject, line.who) == ("remove", "archive history", "ann")
