"""`windlass worker --reload`: which files are watched, and what a change does."""

import asyncio
import importlib
import itertools
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.loops.workers import eventually
from windlass._cli.worker.supervise import source_folders, watch_sources

from .conftest import Run
from .processes import until

Start = Callable[..., subprocess.Popen[str]]


@asynccontextmanager
async def watched(folder: Path) -> AsyncIterator[list[str]]:
    """Watch a folder; the list grows by the names of files that changed."""
    names: list[str] = []

    def note(paths: Sequence[str]) -> None:
        names.extend(str(Path(path).relative_to(folder)) for path in paths)

    def touch() -> None:
        (folder / "probe.py").write_text(f"# {len(names)}")
        os.utime(folder / "probe.py", ns=(0, next(instants)))

    instants = itertools.count(1)
    task = asyncio.ensure_future(watch_sources([folder], note))
    try:
        await eventually(lambda: touch() or names, within=30)  # until then it may not watch yet
        yield names
    finally:
        task.cancel()


async def test_sources_that_are_written_added_or_removed_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "tasks.py").write_text("old")
    async with watched(tmp_path) as names:
        os.utime(tmp_path / "shop" / "tasks.py", (1, 1))
        await eventually(lambda: "shop/tasks.py" in names, within=30)
        (tmp_path / "shop" / "more.py").touch()
        (tmp_path / "windlass.toml").touch()
        await eventually(lambda: {"shop/more.py", "windlass.toml"} <= {*names}, within=30)
        names.clear()
        (tmp_path / "shop" / "more.py").unlink()
        await eventually(lambda: "shop/more.py" in names, within=30)


async def test_other_files_are_not(tmp_path: Path) -> None:
    others = (".venv/a.py", "env/a.py", "__pycache__/a.py", "node_modules/a.py", "notes.txt", ".a.py")
    for other in others:
        (tmp_path / other).parent.mkdir(exist_ok=True)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    async with watched(tmp_path) as names:
        for other in others:
            (tmp_path / other).touch()
        (tmp_path / "last.py").touch()
        await eventually(lambda: "last.py" in names, within=30)
    assert {*names} <= {"probe.py", "last.py"}


def test_a_package_elsewhere_is_watched_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert source_folders(None) == (tmp_path,)
    elsewhere = Path(str(importlib.import_module("windlass").__file__)).parent
    assert source_folders("windlass.app:App") == (tmp_path, elsewhere)


@pytest.mark.full
@pytest.mark.system
def test_a_change_replaces_the_worker_unless_it_is_broken(
    run: Run, start: Start, enqueue: Callable[..., str], folder: Path
) -> None:
    worker = start("worker", "shop:app", "--reload")
    until(worker, "1 worker started")
    shop = folder / "shop.py"
    shop.write_text(f"{shop.read_text()}\n1 / 0\n")
    lines = until(worker, "keeps running")
    assert any("shop.py changed" in line for line in lines)
    assert any("ZeroDivisionError" in line for line in lines)

    shop.write_text(shop.read_text().replace("\n1 / 0\n", "").replace("t0ps3cret", "changed"))
    until(worker, "has taken over from")
    task_id = enqueue("shop.welcome", '{"user_id": 1}')
    until(worker, "completed")
    worker.terminate()
    _, err = worker.communicate(timeout=50)
    assert worker.returncode == 0, err
    assert run("tasks", "show", task_id, "--json", "--reveal").row["result"]["token"] == "changed"
