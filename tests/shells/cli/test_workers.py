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
