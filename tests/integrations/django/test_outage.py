"""The worker of a Django project while its database crashes and restarts under load."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.integrations.django.test_example import PLACE, manage, on, shipped, worker
from tests.loops.workers import eventually
from tests.servers.postgres import QUICK, Postgres
from windlass import App, Filter, State
from windlass._model.attempt import Attempt

pytestmark = [pytest.mark.system, pytest.mark.full]

ORDERS, SLOTS = 400, 4
DURABLE = QUICK | {"synchronous_commit": "on", "max_connections": "100"}


@pytest.mark.timeout(300)
def test_a_crash_of_the_database_fails_only_what_was_running(tmp_path: Path) -> None:
    """Its threads keep their connections (CONN_MAX_AGE is None), and are in use when the server crashes."""
    with Postgres.start(tmp_path, settings=DURABLE) as server:
        env = on(server)
        manage(env, "migrate")
        manage(env, "shell", "-c", PLACE.format(count=ORDERS))
        crashes: list[datetime] = []
        with worker(env, tmp_path / "worker.log"):
            for enough in (ORDERS // 8, ORDERS // 3):
                asyncio.run(eventually(lambda enough=enough: shipped(server) >= enough, within=60))
                server.stop("immediate")
                crashes.append(datetime.now(UTC))
                server.start_again()
            asyncio.run(eventually(lambda: shipped(server) == ORDERS, within=120))
            asyncio.run(eventually(lambda: broken_connections(server) == 0, within=60))

        states, attempts = history(server)
        failed = [one for one in attempts if one.error is not None]
        assert states == [State.COMPLETED] * ORDERS
        assert not [one for one in failed if one.claimed_at > crashes[-1]]
        assert failed, "nothing was running when the server crashed"
        assert len(failed) <= len(crashes) * 2 * SLOTS  # a worker claims as many ahead while tasks are quick


def history(server: Postgres) -> tuple[list[State], list[Attempt]]:
    """Return how the tasks ended, and all their attempts."""
    app = App(server.url)
    try:
        tasks = [*app.sync_operator.every(Filter(types=("shop.tasks.ship",)))]
        attempts = [one for task in tasks for one in app.sync_operator.attempts(task.id)]
    finally:
        asyncio.run(app.close())
    return [task.state for task in tasks], attempts


def broken_connections(server: Postgres) -> int:
    """Return the number of connections that the server has closed and the worker has not."""
    sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    close_wait = "08"
    return sum(
        int(there.partition(":")[2], 16) == server.port and state == close_wait
        for _, _, there, state, *_ in sockets
    )
