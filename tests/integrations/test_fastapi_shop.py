"""The example shop: its own tests, its server with a worker inside, and a worker killed between two steps."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import httpx2
import psycopg
import pytest

from tests.docs.blocks import ROOT
from tests.handlers.smtp_server import MailServer, mail_server
from tests.loops.workers import eventually
from tests.servers.postgres import Postgres
from windlass import App, Filter, State, Task

pytestmark = [pytest.mark.system, pytest.mark.timeout(150)]

PROJECT = ROOT / "examples" / "fastapi_shop"
QUICK = ("--lease", "3s", "--heartbeat", "500ms", "--poll", "200ms")
LATE = 60.0  # seconds: a deadline that a loaded machine keeps, too


class Shop:
    """The programs of the shop, on a database of their own."""

    def __init__(self, url: str, mail: MailServer, folder: Path) -> None:
        self.url = url
        self.mail = mail
        self._folder = folder
        self._env = {
            **os.environ,
            "DATABASE_URL": url,
            "SMTP_URL": mail.url,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")]),
        }

    def run(self, *command: str) -> str:
        """Run a program of the environment to its end; return what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=PROJECT, env=self._env, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    @contextmanager
    def start(self, name: str, *command: str, **env: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Run a program for a block; at the end it stops on SIGTERM, in order, unless it was killed."""
        log = self._folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=PROJECT, env=self._env | env, stdout=output, stderr=output,
            )  # fmt: skip
        try:
            yield process
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                assert process.wait(LATE) in (0, -signal.SIGTERM), log.read_text()  # uvicorn ends by it
                assert b"Traceback" not in log.read_bytes(), log.read_text()
        finally:
            process.kill()
            process.wait()

    @contextmanager
    def serve(self, **env: str) -> Iterator[httpx2.AsyncClient]:
        """Run its web server for a block; return a client of it."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with self.start("server", "uvicorn", "shop.api:api", "--port", str(port), **env):
            yield httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30)

    def worker(self, name: str) -> AbstractContextManager["subprocess.Popen[bytes]"]:
        """Run a worker for a block."""
        return self.start(name, "windlass._cli.main", "worker", "shop.tasks", "--name", name, *QUICK)

    def select(self, query: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.url) as connection:
            return connection.execute(query.encode()).fetchall()

    async def tasks(self, *types: str) -> list[Task]:
        async with App(self.url) as app:
            return [task async for task in app.operator.every(Filter(types=types))]


@pytest.fixture
def shop(postgres_newest: Postgres, tmp_path: Path) -> Iterator[Shop]:
    name = f"shop_{uuid4().hex}"  # of a role, too: tables of a user go into a schema of its name
    url = postgres_newest.new_database(name)
    with psycopg.connect(url) as owner:
        owner.execute(f"CREATE ROLE {name} LOGIN SUPERUSER".encode())
    with mail_server() as mail:
        yield Shop(url.replace("//windlass@", f"//{name}@"), mail, tmp_path)


@pytest.fixture
def migrated(shop: Shop) -> Shop:
    shop.run("alembic", "upgrade", "head")
    return shop


async def placed(http: httpx2.AsyncClient, number: int) -> list[int]:
    """Order rope of three merchants; return the ids of the orders."""
    ids: list[int] = []
    for n in range(number):
        order = {"merchant": f"merchant-{n % 3}", "product": "rope", "email": f"customer-{n}@example.org"}
        response = await http.post("/orders", json=order)
        assert response.status_code == 201, response.text
        ids.append(response.json()["id"])
    return ids


async def answers(http: httpx2.AsyncClient) -> bool:
    try:
        return (await http.get("/orders/0")).status_code == 404
    except httpx2.TransportError:
        return False


@pytest.mark.full
def test_its_own_tests_pass(shop: Shop) -> None:
    assert "9 passed" in shop.run("pytest", "-q", "-p", "no:cacheprovider", "-p", "no:faker")


async def test_a_server_with_a_worker_inside_takes_pays_and_confirms_orders(migrated: Shop) -> None:
    with migrated.serve(SHOP_WORKER="1") as http:
        async with http:
            await eventually(lambda: answers(http), within=LATE)
            ids = await placed(http, 12)
            sold_out = {"merchant": "acme", "product": "hook", "email": "a@example.org", "quantity": 100}
            assert (await http.post("/orders", json=sold_out)).status_code == 409

            async def all_are_paid() -> bool:
                return all([(await http.get(f"/orders/{one}")).json()["paid_at"] for one in ids])

            await eventually(all_are_paid, within=LATE)
            await eventually(lambda: len(migrated.mail.accepted) == 12, within=LATE)

    assert migrated.select("SELECT count(*), sum(amount) FROM charges") == [(12, 12 * 950 / 100)]
    assert migrated.select("SELECT count(*) FROM orders") == [(12,)]
    tasks = await migrated.tasks("shop.tasks.charge", "send_email")
    assert [task.state for task in tasks] == [State.COMPLETED] * 24
    assert migrated.select("SELECT count(*) FROM windlass.session") == [(0,)]  # it has stopped in order
    assert "No new upgrade operations" in migrated.run("alembic", "check")


async def test_a_worker_that_is_killed_after_the_bank_has_charged_charges_nobody_twice(
    migrated: Shop,
) -> None:
    with ExitStack() as stack:
        http = stack.enter_context(migrated.serve())
        async with http:
            await eventually(lambda: answers(http), within=LATE)
            ids = await placed(http, 12)
            with psycopg.connect(migrated.url) as guard:
                guard.execute("LOCK TABLE orders IN SHARE MODE")  # orders can be read, and not marked paid
                with migrated.worker("first") as first:
                    charged = "SELECT count(*) FROM charges"
                    await eventually(lambda: migrated.select(charged) != [(0,)], within=LATE)
                    first.kill()
                    first.wait()
            stack.enter_context(migrated.worker("second"))
            paid = "SELECT count(*) FROM orders WHERE paid_at IS NOT NULL"
            await eventually(lambda: migrated.select(paid) == [(len(ids),)], within=LATE)
            receipts = {f"customer-{n}@example.org" for n in range(len(ids))}
            await eventually(
                lambda: {one.recipients[0] for one in migrated.mail.accepted} == receipts, within=LATE
            )

    tasks = await migrated.tasks("shop.tasks.charge")
    assert {task.state for task in tasks} == {State.COMPLETED}
    assert max(task.attempt for task in tasks) > 1  # the kill was in time
    assert migrated.select("SELECT count(*), count(DISTINCT order_id) FROM charges") == [(12, 12)]
