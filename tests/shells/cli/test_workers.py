"""`windlass workers`: the sessions of workers and keepers."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import to_builtins

from windlass import App
from windlass._model.lease import Heartbeat
from windlass._model.record import StuckHandler, Worker

from .conftest import Run


def test_stuck_handlers_are_counted(run: Run, folder: Path) -> None:
    stuck = StuckHandler(task_id="t", type="shop.stay", attempt=1, overrun=2.5, place="shop.py:3 in stay")

    async def beat() -> None:
        app = App("sqlite:///windlass.db")
        worker = Worker(name="ada", slots=3, stuck=(stuck,))
        beat = Heartbeat(session="s", worker=worker, lease_for=timedelta(minutes=1), opening=True)
        async with app:
            await app.store.heartbeat(beat)

    asyncio.run(beat())
    head, line = run("workers").out.splitlines()
    (row,) = run("workers", "--json").rows

    assert head.split()[:4] == ["name", "state", "busy", "stuck"]
    assert line.split()[:4] == ["ada", "alive", "0/3", "1"]
    assert row["stuck"] == [to_builtins(stuck)]
    assert "1 stuck" in run("top", "--once").out


@pytest.mark.parametrize("replaced", [False, True])
def test_a_task_is_shown_with_its_stuck_handler(run: Run, folder: Path, replaced: bool) -> None:
    async def beat() -> str:
        app = App("sqlite:///windlass.db")

        @app.task(name="shop.stay", timeout=1)
        def stay() -> None: ...

        async with app:
            handle = await stay.aenqueue()
            found = [
                StuckHandler(
                    task_id=task_id, type="shop.stay", attempt=1, overrun=4.2, place=place, replaced=replaced
                )
                for task_id, place in ((handle.id, "shop.py:3 in stay"), ("other", "shop.py:9 in other"))
            ]
            worker = Worker(name="ada", slots=3, stuck=tuple(found))
            beat = Heartbeat(session="s", worker=worker, lease_for=timedelta(minutes=1), opening=True)
            await app.store.heartbeat(beat)
            return handle.id

    shown = " ".join(run("tasks", "show", asyncio.run(beat())).out.split())

    assert "attempt 1 still runs 4 s after its timeout, on ada at shop.py:3 in stay; " in shown
    assert ("its slot is used again" in shown) is replaced
    assert ("it keeps its slot until it ends" in shown) is not replaced


@pytest.mark.system
def test_workers_are_listed_while_they_live(run: Run, start: Callable[..., subprocess.Popen[str]]) -> None:
    run("migrate")
    assert "starts one" in run("workers").err
    assert "starts one" in run("workers", "list").err
    worker = start("worker", "shop:app", "--name", "ada", "--slots", "3", "--log-format", "json")
    assert worker.stderr is not None
    while "is ready" not in json.loads(worker.stderr.readline())["message"]:
        pass

    head, *lines = run("workers").out.splitlines()
    (line,) = (line for line in lines if line.startswith("ada"))
    (row,) = (row for row in run("workers", "--json").rows if row["name"] == "ada")

    assert head.split()[:6] == ["name", "state", "busy", "heartbeat", "started", "queues"]
    assert line.split()[:3] == ["ada", "alive", "0/3"]
    assert (row["name"], row["pid"], row["slots"], row["alive"]) == ("ada", worker.pid, 3, True)
    assert row["queues"] == ["default", "mail"]
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0
    assert run("workers", "--json").rows == []
