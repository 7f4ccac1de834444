"""Outages of the store: one line in the log when one begins and one when it has ended, pauses that grow."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.loops.workers import eventually, watched, working
from tests.servers.postgres import Postgres
from tests.stores.postgres.faulty import fresh
from windlass import App, Backoff, StoreError, StoreUnavailable
from windlass._store import outage as outage_module
from windlass._store.outage import LAST_PAUSE, Outage, Pauses
from windlass._stores.sqlite.connection import threads

DOWN = StoreUnavailable("nobody answers")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The log of windlass from warnings on, without the events of tasks."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("windlass.")
        and record.levelno >= logging.WARNING
        and record.name != "windlass.events"
    ]


def test_an_outage_begins_with_the_first_that_fails_and_ends_with_the_last_that_recovers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outage = Outage()
    claims, beats, keeper = Pauses(outage), Pauses(outage), Pauses(outage)
    for _ in range(5):
        claims.failed(DOWN)
        beats.failed(DOWN)
    keeper.succeeded()
    claims.succeeded()
    assert outage.is_open
    claims.failed(DOWN)
    beats.succeeded()
    claims.succeeded()
    claims.succeeded()

    assert not outage.is_open
    assert lines(caplog) == [
        "the store is not available, retrying: nobody answers",
        "the store is back after 0.0 s",
    ]


def test_pauses_grow_up_to_a_bound_with_jitter_and_start_over() -> None:
    pauses = Pauses(Outage(), 0.1)
    taken = [pauses.failed(DOWN) for _ in range(20)]
    pauses.succeeded()

    for n, pause in enumerate(taken):
        middle = min(0.1 * 2**n, LAST_PAUSE)
        assert middle * 0.5 <= pause <= middle * 1.5
    assert len(set(taken)) == 20
    assert pauses.failed(DOWN) <= 0.15


async def test_the_first_loop_that_succeeds_ends_the_pauses_of_the_others() -> None:
    outage = Outage()
    claims, beats, idle = Pauses(outage, 3600.0, 3600.0), Pauses(outage), Pauses(outage)
    waiting = asyncio.create_task(claims.wait(claims.failed(DOWN)))
    beats.failed(DOWN)
    await asyncio.sleep(0)
    idle.succeeded()  # it had not failed, so it says nothing about those that had
    assert not waiting.done()
    await asyncio.to_thread(beats.succeeded)  # from the thread of the heartbeat

    await asyncio.wait_for(waiting, 10)
    assert outage.is_open  # until the claims succeed, too
    claims.succeeded()
    assert not outage.is_open


async def test_a_pause_that_was_ended_by_another_loop_is_followed_by_a_short_one() -> None:
    outage = Outage()
    claims, beats = Pauses(outage, 0.1), Pauses(outage)
    for _ in range(10):
        claims.failed(DOWN)
    beats.failed(DOWN)
    waiting = asyncio.create_task(claims.wait(3600.0))
    await asyncio.sleep(0)
    beats.succeeded()
    await asyncio.wait_for(waiting, 10)

    assert claims.failed(DOWN) <= 0.15


def test_an_outage_that_lasts_is_logged_again_and_one_that_turns_into_a_refusal_at_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = Pauses(Outage())
    pauses.failed(DOWN)
    pauses.failed(DOWN)
    assert len(lines(caplog)) == 1
    monkeypatch.setattr(outage_module, "REMIND_AFTER", 0.0)
    pauses.failed(DOWN)
    pauses.failed(StoreError("the key was revoked"))

    assert lines(caplog)[1:] == [
        "the store is not available (for 0 s), retrying: nobody answers",
        "the store failed (for 0 s), retrying: the key was revoked",
    ]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "ERROR"]


async def test_all_loops_of_a_worker_together_log_one_outage(caplog: pytest.LogCaptureFixture) -> None:
    app, watch = watched()

    @app.task
    async def quick() -> None: ...

    async with working(app, keeper=True, heartbeat=0.05, poll=0.05):
        await (await quick.aenqueue()).wait(timeout=5)
        watch.down |= {"settle", "heartbeat", "lead", "now", "promote"}
        failed = watch.calls.copy()
        await eventually(lambda: all(watch.calls[v] > failed[v] + 2 for v in ("settle", "heartbeat")))
        watch.down.clear()
        await (await quick.aenqueue()).wait(timeout=10)
        await eventually(lambda: "is back after" in caplog.text)

    began, ended = [line for line in lines(caplog) if "silen" not in line]
    assert began.startswith("the store is not available, retrying: ")
    assert ended.startswith("the store is back after ")


async def test_a_worker_that_starts_before_its_store_waits_with_growing_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, watch = watched()
    watch.down.add("heartbeat")
    worker = app.worker()
    run = asyncio.create_task(worker.run())
    await eventually(lambda: watch.calls["heartbeat"] > 3)
    watch.down.clear()
    await eventually(lambda: "is ready" in caplog.text or "is back after" in caplog.text)
    worker.stop()
    await run

    began, ended = lines(caplog)
    assert (began[:26], ended[:23]) == ("the store is not available", "the store is back after")


# -- real stores -------------------------------------------------------------------------------------


async def survive(
    app: App, caplog: pytest.LogCaptureFixture, down: Callable[[], Any], up: Callable[[], Any]
) -> None:
    """Take a store away from a worker with a keeper and give it back; assert that two lines tell."""

    @app.task
    async def quick() -> None: ...

    async with working(app, keeper=True, heartbeat=0.3, poll=0.2, lease=60):
        await (await quick.aenqueue()).wait(timeout=10)
        caplog.clear()
        await asyncio.to_thread(down)
        await eventually(lambda: "the store is not available" in caplog.text, within=15)
        await asyncio.to_thread(up)
        await eventually(lambda: "the store is back after" in caplog.text, within=20)
        await (await quick.aenqueue()).wait(timeout=10)
    await app.close()

    began, ended = lines(caplog)
    assert began.startswith("the store is not available, retrying: ")
    assert ended.startswith("the store is back after ")


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Postgres.start(tmp_path_factory.mktemp("outage")) as server:
        yield server


async def test_a_restart_of_postgres_is_two_lines(server: Postgres, caplog: pytest.LogCaptureFixture) -> None:
    app = App(fresh(server.url), backoff=Backoff(base=0.05))

    await survive(app, caplog, lambda: server.stop("fast"), server.start_again)


async def test_a_file_that_another_process_locks_is_two_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "DEADLINE_SECONDS", 0.3)
    file = tmp_path / "windlass.db"
    other = sqlite3.connect(file, isolation_level=None, check_same_thread=False)

    await survive(
        App(f"sqlite:///{file}"),
        caplog,
        lambda: other.execute("BEGIN EXCLUSIVE"),
        lambda: other.execute("ROLLBACK"),
    )
    other.close()
