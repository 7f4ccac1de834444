"""`windlass workers`: the sessions of workers and keepers."""

import json
import signal
import subprocess
from collections.abc import Callable

import pytest

from .conftest import Run


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
