"""`windlass check`: findings about settings, store and queues."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from windlass._model.lease import Heartbeat
from windlass._model.record import StuckHandler, Worker
from windlass._observe.health import check_durability
from windlass._store.protocol import Durability, Finding, Promise, Severity
from windlass._stores.sqlite import SQLiteStore

from .conftest import Run


def test_check_reports_each_finding(run: Run) -> None:
    run("migrate")

    table = run("check")
    rows = run("check", "--json").rows

    assert table.code == 0
    assert table.out.splitlines()[0].split() == ["severity", "subject", "finding"]
    store = f"sqlite:///{Path.cwd()}/windlass.db"
    assert rows[0] == {"severity": "ok", "subject": "store", "message": store}
    assert rows[1] == {"severity": "ok", "subject": "durability", "message": rows[1]["message"]}
    assert {row["severity"] for row in rows} == {"ok"}


def test_check_tells_the_durability_once() -> None:
    promise = Promise(durability=Durability.RELAXED, why="appendfsync is everysec")
    own = Finding(severity=Severity.WARNING, subject="durability", message=promise.why)
    other = Finding(severity=Severity.OK, subject="clock", message="in step")

    first, *rest = check_durability(promise, [own, other])

    assert (first.severity, first.subject) == (Severity.WARNING, "durability")
    assert first.message == "relaxed: appendfsync is everysec"
    assert rest == [other]


def test_check_warns_of_queues_that_no_worker_serves(run: Run) -> None:
    run("enqueue", "t", "-q", "mail")

    ran = run("check", "--json")

    assert ran.code == 0
    warnings = [row["message"] for row in ran.rows if row["severity"] == "warning"]
    assert any("no live worker serves queue mail (1 task due, of type t)" in message for message in warnings)


def test_check_warns_of_types_that_no_worker_handles(run: Run, folder: Path) -> None:
    run("migrate")
    asyncio.run(_open_session(folder, queues=("mail",), types=("shop.welcome",)))
    for name in ("shop.welcome", "shop.farewell", "shop.farewell"):
        run("enqueue", name, "-q", "mail", "--undeclared")
    run("enqueue", "shop.farewell", "-q", "post", "--undeclared")

    found = [row["message"] for row in run("check", "--json").rows if row["subject"] == "types"]

    (only,) = found
    assert only.startswith(
        "no live worker of queue mail handles task type shop.farewell (2 pending tasks); deploy its handler"
    )
    assert "aliases=" in only


def test_check_warns_of_handlers_that_run_on_after_their_timeout(run: Run, folder: Path) -> None:
    run("migrate")
    stuck = tuple(
        StuckHandler(
            task_id=f"t{number}", type="shop.stay", attempt=1, overrun=number, place="shop.py:3 in stay"
        )
        for number in range(2, 9)
    )
    asyncio.run(_open_session(folder, queues=("mail",), types=None, stuck=stuck))

    rows = [row for row in run("check", "--json").rows if row["subject"] == "stuck"]

    first, *_, last = [row["message"] for row in rows]
    assert {row["severity"] for row in rows} == {"warning"}
    assert first.startswith("the handler of shop.stay (task t8) still runs 8 s after its timeout on ")
    assert first.endswith(", at shop.py:3 in stay; it keeps its slot until it ends")
    assert len(rows) == 6
    assert last == "2 other handlers still run after their timeout: see `windlass workers --json`"


async def _open_session(folder: Path, **fields: Any) -> None:
    """Leave the session of a live worker."""
    store = SQLiteStore(folder / "windlass.db")
    worker = Worker(name="w", **fields)
    beat = Heartbeat(session="s", worker=worker, lease_for=timedelta(hours=1), opening=True)
    await store.heartbeat(beat)
    await store.close()


def test_check_reports_invalid_settings(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("windlass.toml").write_text("slot = 3")
    monkeypatch.setenv("WINDLASS_SHINY", "yes")

    ran = run("check", "--json")

    assert ran.code == 1
    assert [(row["severity"], row["subject"]) for row in ran.rows] == [
        ("warning", "settings"),
        ("error", "settings"),
    ]
    assert run("tasks", "list").code == 2


def test_check_reports_wrong_settings_of_handlers(run: Run, folder: Path) -> None:
    run("migrate")
    tables = '[handlers.webhooks]\ntimeout = 5\n[handlers.email]\nsender = "nobody"\n[handlers.fax]\n'
    (folder / "windlass.toml").write_text(tables)

    ran = run("check", "--json")

    assert ran.code == 1
    errors = [row["message"] for row in ran.rows if row["subject"] == "handlers"]
    assert errors == [
        "handlers.email: 'nobody' is not an e-mail address",
        "there is no handler 'fax'; there are email, images, reports, webhooks, pages, requests",
    ]
