"""Shorten the delays of workers and keepers, so that the tests are quick; an app with a manual clock."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.loops import hooked_tasks
from windlass import App
from windlass._keeper import chores
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass._stores.sqlite import SQLiteStore
from windlass._worker import run, slots, worker
from windlass.testing.clock import ManualClock

STORES: dict[str, Callable[[Path, ManualClock], Store]] = {
    "memory": lambda _, clock: MemoryStore(clock=clock),
    "sqlite": lambda folder, clock: SQLiteStore(folder / "windlass.db", clock=clock),
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=STORES)
async def clocked_app(
    request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[App]:
    """An open app on a store that has this clock."""
    app = App(STORES[request.param](tmp_path, clock))
    await app.open()
    yield app
    await app.close()


@pytest.fixture(params=["memory", "sqlite"])
async def bare_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """An open store, without encryption around it."""
    made: Store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "windlass.db")
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The app of hooked_tasks on a store of its own; the file that tells what happened in which process."""
    file = tmp_path / "log"
    file.touch()
    monkeypatch.setenv("HOOKED_LOG", str(file))
    monkeypatch.setenv("HOOKED_WORKER", str(os.getpid()))
    monkeypatch.setenv("HOOKED_MODE", "")
    before = hooked_tasks.app.use_store(MemoryStore())
    yield file
    hooked_tasks.app.use_store(before)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chores, "_RETRY_AFTER", 0.05)
    monkeypatch.setattr(worker, "_REOPEN_AFTER", 0.05)
    monkeypatch.setattr(worker, "_CLEANUP_TIMEOUT", 0.5)
    monkeypatch.setattr(slots, "_CLOSE_TIMEOUT", 0.3)
    monkeypatch.setattr(run, "_INTERRUPT_AGAIN_AFTER", 0.5)
