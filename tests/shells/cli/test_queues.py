"""`windlass queues` and `windlass workers`: are we backed up, and who is at work?"""

import json
import signal
import subprocess
from collections.abc import Callable

import pytest

from .conftest import Run


def test_each_queue_is_listed_with_what_is_in_it(run: Run, dead: Callable[..., list[str]]) -> None:
    dead("a")
    run("enqueue", "t", "-q", "mail")
    run("enqueue", "t", "-q", "mail", "--delay", "1h")

    head, default, mail = run("queues", "list").out.splitlines()
    rows = run("queues", "list", "--json").rows

    assert head.split() == ["queue", "waiting", "scheduled", "ready", "running", "dead", "oldest"]
    assert default.split() == ["default", "0", "0", "0", "0", "1"]
    assert mail.split()[:6] == ["mail", "0", "1", "1", "0", "0"]
    assert [(row["queue"], row["ready"], row["dead"]) for row in rows] == [("default", 0, 1), ("mail", 1, 0)]
    assert rows[0]["oldest_ready"] is None
    assert rows[1]["oldest_ready"] >= 0


def test_a_queue_is_paused_and_resumed(
    run: Run, work: Callable[[], None], enqueue: Callable[..., str]
) -> None:
    task_id = enqueue("shop.welcome", '{"user_id": 1}')

    paused = run("queues", "pause", "mail", "--json")
    work()
    held = run("tasks", "show", task_id, "--json").row["state"]
    listed = run("queues", "list").out
    resumed = run("queues", "resume", "mail")
    work()

    assert paused.row == {"queue": "mail", "paused": True}
    assert held == "ready"
    assert "paused" in listed
    assert resumed.out == "resumed mail\n"
    assert run("tasks", "show", task_id, "--json").row["state"] == "completed"


def test_pausing_an_unknown_queue_is_done_and_doubted(run: Run) -> None:
    run("enqueue", "t", "-q", "mail")

    ran = run("queues", "pause", "mial")

    assert ran.code == 0
    assert "did you mean 'mail'?" in ran.err


def test_a_queue_must_be_a_name(run: Run) -> None:
    run("migrate")
    ran = run("queues", "pause", "\x1b[2J")

    assert ran.code == 2
    assert "\x1b" not in ran.err
    assert run("queues", "list", "--json").rows == []


@pytest.mark.system
def test_workers_are_listed_while_they_live(run: Run, start: Callable[..., subprocess.Popen[str]]) -> None:
    run("migrate")
    assert "start one" in run("workers").err
    worker = start("worker", "shop:app", "--name", "ada", "--slots", "3", "--log-format", "json")
    assert worker.stderr is not None
    while "serves" not in json.loads(worker.stderr.readline())["message"]:
        pass

    head, *lines = run("workers").out.splitlines()
    (line,) = (line for line in lines if line.startswith("ada"))
    (row,) = (row for row in run("workers", "--json").rows if row["name"] == "ada")

    assert head.split()[:6] == ["name", "state", "busy", "beat", "started", "queues"]
    assert line.split()[:3] == ["ada", "alive", "0/3"]
    assert (row["name"], row["pid"], row["slots"], row["alive"]) == ("ada", worker.pid, 3, True)
    assert row["queues"] == ["default", "mail"]
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0
    assert run("workers", "--json").rows == []
