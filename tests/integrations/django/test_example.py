"""The example project: its own tests, its worker, and the worker through a restart of the database."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import django
import psycopg
import pytest

from tests.docs.blocks import ROOT
from tests.loops.workers import eventually
from tests.servers.postgres import QUICK, Postgres
from windlass import App, Filter, State

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(django.VERSION < (5, 1), reason="it sets transaction_mode, new in 5.1"),
]

_NEW_IN_6_1 = "ignore:The EMAIL_BACKEND setting is deprecated"  # its successor is not in older versions

PROJECT = ROOT / "examples" / "django_shop"
PLACE = """
from django.test import Client
for n in range({count}):
    Client().post("/orders/", {{"item": f"rope {{n}}", "email": "ada@example.org"}})
"""
LABEL = "from shop.tasks import draw_label; print(draw_label.enqueue(order_id=1).result(timeout=40))"


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **more}


def on(server: Postgres) -> dict[str, str]:
    parts = urlsplit(server.url)
    return environment(
        PGDATABASE=parts.path.lstrip("/"),
        PGHOST=parts.hostname or "",
        PGPORT=str(parts.port),
        PGUSER=unquote(parts.username or ""),
        PGPASSWORD=unquote(parts.password or ""),
    )


def manage(env: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", _NEW_IN_6_1, "manage.py", *arguments],
        cwd=PROJECT, env=env, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@contextmanager
def worker(env: dict[str, str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "manage.py", "windlass", "worker", "--slots", "4", "--log-format", "json"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=PROJECT, env=env, stdout=output, stderr=output)
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.timeout(120)
def test_its_tests_pass_on_sqlite(tmp_path: Path) -> None:
    said = manage(environment(SHOP_FILE=str(tmp_path / "shop.db")), "test", "--noinput")

    assert "Ran 7 tests" in said


@pytest.mark.full
@pytest.mark.timeout(180)
def test_its_worker_survives_a_restart_of_the_database(tmp_path: Path) -> None:
    """Connections of its threads are persistent, and are broken by the restart."""
    with Postgres.start(tmp_path, settings=QUICK | {"max_connections": "100"}) as server:
        env = on(server)
        assert "Ran 7 tests" in manage(env, "test", "--noinput")
        assert "Migrated windlass" in manage(env, "migrate")
        with worker(env, tmp_path / "worker.log"):
            manage(env, "shell", "-c", PLACE.format(count=20))
            asyncio.run(eventually(lambda: shipped(server) == 20, within=40))

            label = manage(env, "shell", "-c", LABEL)
            assert "To ada@example.org" in label

            server.restart()
            manage(env, "shell", "-c", PLACE.format(count=20))
            asyncio.run(eventually(lambda: shipped(server) == 40, within=40))

        assert attempts(server) == [(State.COMPLETED, 1)] * 40  # the worker has stopped, and settled all


def attempts(server: Postgres) -> list[tuple[State, int]]:
    app = App(server.url)
    try:
        tasks = [*app.sync_operator.every(Filter(types=("shop.tasks.ship",)))]
    finally:
        asyncio.run(app.close())
    return [(task.state, task.attempt) for task in tasks]


def shipped(server: Postgres) -> int:
    with psycopg.connect(server.url) as connection:
        query = "SELECT count(*) FROM shop_order WHERE shipped_at IS NOT NULL"
        (found,) = connection.execute(query).fetchone() or (0,)
    return int(found)
