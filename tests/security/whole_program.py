"""A program that uses all that a store can do, for tests of how little its login may be allowed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from msgspec.structs import replace

from tests.loops.workers import dead_worker, drained, eventually, tasks
from tests.servers.api import ApiServer
from windlass import App, Backoff, By, Context, Page, State, chain
from windlass._dashboard.app import ITEMS
from windlass._dashboard.view import DashboardSettings
from windlass._keeper.keeper import Keeper
from windlass._model.schedule import Tick
from windlass._store.protocol import Capability, Severity
from windlass._stores.postgres.enqueue.copy import MIN_TASKS

CHORES = ("promote", "tick", "rescue", "expire", "prune", "alert", "history")
PAGES = (
    *("/overview", "/queues", "/tasks?limit=100", "/dead", "/dead/failures", "/schedules", "/limits"),
    *(
        "/quotas",
        "/workers",
        "/types",
        "/history",
        "/audit",
        "/alerts",
        "/check",
        "/readyz",
        "/metrics",
        "/export",
    ),
    *(f"/dashboard/{item.path}" for item in ITEMS),
)
ANN = By(who="ann", why="test")


def program(store: Any, **options: Any) -> App:
    """An app with a type for each thing that handlers do."""
    app = App(store, backoff=Backoff(base=0, jitter=0), **options)

    @app.task(name="pay", secret=["card"])
    async def pay(card: str, amount: int = 0, *, ctx: Context) -> dict[str, Any]:
        ctx.progress(0.5, f"paying with {card}")
        ctx.note(amount=amount)
        assert await ctx.once("charge")
        return {"card": card}

    @app.task(name="decline", secret=["card"], max_attempts=2)
    async def decline(card: str) -> None:
        raise ValueError(f"declined {card}")

    @app.task(name="report")
    def report(paid: Any = None) -> int:
        return len(str(paid))

    @app.task(name="book", max_attempts=1)
    async def book(*, ctx: Context) -> None:
        async with ctx.transaction(result="booked"):
            pass

    @app.task(name="alone", unique=True)
    async def alone() -> None: ...

    return app


async def enqueue(app: App) -> None:
    """Enqueue in each way, several times, as much of it is prepared at the first time only."""
    types, step = app.types, app.builder.step
    pay = step("pay", b'{"card":"4111"}', {}, types["pay"].defaults)
    report = replace(step("report", b"{}", {}, types["report"].defaults), result_into="paid")
    later = step("report", b"{}", {"delay": 3600}, types["report"].defaults)
    for n in range(3):
        await app.client.send("pay", {"card": "4111"}, idempotency_key=f"k{n}", tenant="acme")
        await app.client.send("pay", {"card": "4111"}, priority="high", on_failure=pay)
        await app.client.enqueue(chain(pay, report))
        *_, last = await app.client.enqueue_group([pay, chain(pay, report)], report)
        await app.client.enqueue(report, after=[last.id])
        await app.client.send("decline", {"card": "4111"}, on_failure=pay)
        await app.client.send("report", {}, delay=0.1)
        await app.client.send("report", {}, expires=3600)
    await app.client.enqueue_many([later] * MIN_TASKS)
    await app.client.send("alone", {})
    if Capability.JOIN in app.store.capabilities:
        await app.client.send("book", {})


async def set_up(app: App) -> None:
    """Change every kind of setting."""
    operator = app.operator
    await operator.limits.set("acme", type="pay", running=2, rate="1000/s", create=True)
    await operator.quotas.set("acme", tasks=1000)
    await operator.alerts.add("dead", count=1)
    await operator.schedules.add("often", "report", "1s", {"paid": 1})
    await operator.schedules.add("nightly", "pay", "0 3 * * *", {"card": "4111"})
    await operator.schedules.pause("nightly")
    await operator.schedules.trigger("nightly")
    await operator.set_queue("default", fairness="round_robin", weights={"acme": 2})
    await operator.pause("other", create=True)
    await operator.stripe("other", 2)
    key = await operator.keys.create("x", scopes=["read"])
    await operator.keys.rotate(key.key.name)
    await operator.keys.revoke(key.key.name)


async def operate(app: App) -> None:
    """Do what people do, and read what they read."""
    operator = app.operator
    dead = await tasks(app, State.DEAD)
    assert len(dead) == 3
    await operator.replay_one(dead[0].id, by=ANN, payload={"card": "4112"})
    await operator.discard_one(dead[1].id, by=ANN)
    await operator.reveal([dead[2].id])
    later = await app.client.send("report", {}, delay=3600)
    await later.cancel()
    assert await operator.failures()
    assert (await operator.audit()).items
    assert await operator.attempts(dead[2].id)
    async for _ in operator.export():
        continue
    await operator.history("1h")
    await operator.prune()
    wrong = [one for one in await operator.check() if one.severity is Severity.ERROR]
    assert wrong == []


async def clean_up(app: App) -> None:
    await app.operator.limits.remove("acme")
    await app.operator.quotas.remove("acme")
    await app.operator.alerts.remove("dead")
    await app.operator.schedules.remove("often")
    await app.operator.resume("other")
    await app.operator.remove_queue("other")


@asynccontextmanager
async def keeping(app: App) -> AsyncIterator[Keeper]:
    """A keeper at work."""
    keeper = app.keeper(name="test")
    run = asyncio.create_task(keeper.run())
    try:
        yield keeper
    finally:
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run


async def keep(app: App) -> None:
    """Let a keeper do each chore once: it rescues the task of a dead worker, promotes and fires."""
    await app.client.send("report", {}, queue="lost")
    await dead_worker(app, queue="lost")
    async with keeping(app) as keeper:
        keeper._chores.hurry("history")
        await eventually(lambda: all(keeper._chores.turns(name) for name in CHORES), within=30)

        async def is_rescued() -> bool:
            return not await tasks(app, State.RUNNING)

        await eventually(is_rescued, within=30)

        async def has_fired() -> bool:
            return bool((await app.store.records(Tick, Page())).items)

        await eventually(has_fired, within=30)


async def look(app: App) -> None:
    """Read every page of the API and of the dashboard."""
    key = await app.operator.keys.create("reader", scopes=["admin"])
    with ApiServer() as server:
        url = server.serve_app(app, dashboard=DashboardSettings())

        def read(path: str) -> int:
            request = Request(f"{url}{path}", headers={"authorization": f"Bearer {key.text}"})
            with suppress(HTTPError), urlopen(request, timeout=30) as response:
                response.read()
                return int(response.status)
            return 0

        statuses = {path: await asyncio.to_thread(read, path) for path in PAGES}
        await asyncio.to_thread(server.close, app.store)
    assert set(statuses.values()) == {200}, statuses


async def use_everything(make: Any) -> None:
    """Use a store whole, by apps that `make` makes: enqueue, work, keep, operate, look."""
    app = program(make())
    await app.publish()
    await set_up(app)
    await enqueue(app)
    await drained(app, keeper=True)
    await keep(app)
    await drained(app)
    await operate(app)
    await drained(app)
    await clean_up(app)
    await app.close()
    await look(program(make()))
    blocking = program(make())
    await asyncio.to_thread(_block, blocking)
    await blocking.close()


def _block(app: App) -> None:
    """Call from a thread without an event loop."""
    assert app.sync_client.send("report", {}).id
    app.sync_operator.check()
