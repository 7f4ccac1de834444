"""`windlass worker` and `windlass owner` on a store on NATS: who owns it dies, and nothing is lost."""

import os
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.servers.nats import Nats
from tests.system.fleet import ROOT, wait_until
from tests.system.supervised import Supervised
from windlass import App, Filter, Page, State

STOP_SECONDS = 20.0
pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

PROGRAM = """
import asyncio
from windlass import App, Context

app = App({url!r})


@app.task(name="nap")
async def nap(seconds: float, *, ctx: Context) -> None:
    with open("runs", "a") as file:
        file.write(ctx.task_id + "\\n")
    await asyncio.sleep(seconds)
"""


async def _nap(seconds: float) -> None:
    """For its parameters: PROGRAM has the handler."""


class Command(Supervised):
    """A command on the store."""

    def __init__(self, folder: Path, name: str, started: str, *arguments: str) -> None:
        self.started = started
        path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        super().__init__(folder / f"{name}.log", folder, {"PYTHONPATH": path}, *arguments)


class Shop:
    """A program and its store."""

    def __init__(self, folder: Path, url: str, running: ExitStack) -> None:
        self._folder, self._url, self._running = folder, url, running
        (folder / "program.py").write_text(PROGRAM.format(url=url))
        (folder / "runs").touch()
        self.app = App(url)
        self._nap = self.app.task(name="nap")(_nap)

    def worker(self, name: str, *options: str) -> Command:
        given = (
            "worker",
            "program:app",
            "--lease",
            "6",
            "--heartbeat",
            "1",
            "--log-format",
            "text",
            *options,
        )
        return self._running.enter_context(Command(self._folder, name, "is ready", *given))

    def owner(self, name: str) -> Command:
        return self._running.enter_context(
            Command(
                self._folder, name, "stands by for", "owner", "--store", self._url, "--log-format", "text"
            )
        )

    def enqueue(self, number: int, seconds: float) -> None:
        self.app.sync_client.enqueue_many([self._nap.step(seconds=seconds)] * number)

    def enqueue_into(self, queues: Sequence[str]) -> None:
        batch = [self._nap.using(queue=queue).step(seconds=0) for queue in queues]
        self.app.sync_client.enqueue_many(batch)

    def completed(self) -> int:
        done = Filter(states=(State.COMPLETED,))
        return len(self.app.sync_operator.find(done, Page(limit=1000)).items)

    def runs(self) -> list[str]:
        return (self._folder / "runs").read_text().split()


@pytest.fixture
def shop(nats: Nats, tmp_path: Path) -> Iterator[Shop]:
    with ExitStack() as running:
        shop = Shop(tmp_path, nats.new_url(), running)
        yield shop
        running.callback(lambda: shop.app._loop.run(shop.app.close()))


def owning(*commands: Command) -> int | None:
    """The process that says that it owns the store, and not that it no longer does."""
    for command in commands:
        for pid in [*command.children, command.parent.pid]:
            lines = re.findall(rf"-{pid}-\w+ (owns|no longer owns) ", command.log)
            if lines and lines[-1] == "owns":
                return pid
    return None


def test_workers_own_their_store_and_replace_an_owner_that_is_killed(shop: Shop) -> None:
    first, second = shop.worker("first"), shop.worker("second")
    shop.enqueue(100, 0.2)
    wait_until(lambda: shop.completed() > 10, 30, what="some completed", every=0.05)
    victim = owning(first, second)
    assert victim in first.children or victim in second.children
    os.kill(victim or 0, signal.SIGKILL)
    shop.enqueue(100, 0.05)
    wait_until(lambda: shop.completed() == 200, 60, what="all completed", every=0.2)

    assert owning(first, second) != victim
    assert sorted(shop.runs()) == sorted(set(shop.runs()))  # none ran twice
    killed = first if victim in first._seen else second
    noticed = f"owner 1 (pid {victim}) was killed by SIGKILL; restarting it"
    wait_until(lambda: noticed in killed.log, 30, what="it is noticed")


def test_a_worker_that_is_told_to_stop_settles_before_its_owner_goes(shop: Shop) -> None:
    """SIGTERM to all processes of the group, as a service manager sends it."""
    worker = shop.worker("only")
    shop.enqueue(4, 1.5)
    wait_until(lambda: len(shop.runs()) == 4, 30, what="all run", every=0.05)
    for pid in [*worker.children, worker.parent.pid]:
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not worker.is_running, 40, what="it stops")
    assert worker.parent.returncode == 0
    assert worker.log.index("has stopped; it ran 4 tasks") < worker.log.index("it was handed over")

    shop.worker("next")
    assert shop.completed() == 4


@pytest.mark.parametrize("named", [True, False], ids=["named", "all"])
def test_a_worker_of_hundreds_of_queues_is_told_to_stop(shop: Shop, named: bool) -> None:
    """More than 512: one by one, their subscriptions would overflow the queue of nats-py."""
    queues = [f"customer-{number:03}" for number in range(600)]
    options = [word for queue in queues for word in ("--queue", queue)] if named else ["--all-queues"]
    worker = shop.worker("only", *options)
    shop.enqueue_into(queues)
    wait_until(lambda: len(shop.runs()) == len(queues), 30, what="all run", every=0.05)

    worker.parent.terminate()

    wait_until(lambda: not worker.is_running, STOP_SECONDS, what="it stops", every=0.02)
    assert worker.parent.returncode == 0
    assert "has stopped; it ran 600 tasks" in worker.log
    assert worker.everyone_has_ended()


def test_owners_hand_the_store_over(shop: Shop) -> None:
    first = shop.owner("first")
    wait_until(lambda: owning(first) is not None, 30, what="it owns the store")
    second = shop.owner("second")
    shop.worker("worker", "--no-owner")
    shop.enqueue(50, 0.1)
    first.parent.send_signal(signal.SIGTERM)
    wait_until(lambda: not first.is_running, 30, what="it stops")
    assert first.parent.returncode == 0
    wait_until(lambda: owning(second) is not None, 30, what="the other owns the store")
    wait_until(lambda: shop.completed() == 50, 60, what="all completed", every=0.2)
    assert len(shop.runs()) == 50


def test_a_worker_owns_each_shard_that_needs_it(nats: Nats, tmp_path: Path) -> None:
    shards = tmp_path / "shards.toml"
    shards.write_text(f'[shards]\na = "{nats.new_url()}"\nb = "{nats.new_url()}"\n')
    with ExitStack() as running:
        shop = Shop(tmp_path, f"shards://{shards}", running)
        worker = shop.worker("only")
        shop.enqueue(20, 0.0)
        wait_until(lambda: shop.completed() == 20, 60, what="all completed", every=0.2)
        assert len(set(re.findall(r"-\w+ owns 127\S+/(test-\d+)", worker.log))) == 2
        running.callback(lambda: shop.app._loop.run(shop.app.close()))
