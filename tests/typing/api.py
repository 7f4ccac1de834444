"""The public API as a type checker sees it. Never run."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Annotated, Any, TypedDict, assert_type

from windlass import (
    INJECTED,
    App,
    Backoff,
    CallNext,
    Context,
    Depends,
    Handle,
    Progress,
    Task,
    TaskType,
    WorkerSettings,
    handlers,
)
from windlass.types import Attempt, Slice

app = App("memory://")


@app.task(queue="mail", backoff=Backoff(base=1, factor=2, cap=3600, max_attempts=8), timeout=30)
async def welcome(user_id: int, *, ctx: Context = INJECTED) -> str:
    return f"{user_id}"


@app.task(timeout=30, on_stuck="replace")
def resize(path: str, width: int = 800) -> None: ...


async def a_task_completes_with_its_writes(ctx: Context) -> None:
    assert_type(await ctx.once("charge"), bool)
    async with ctx.transaction(result={"id": 1}) as connection:
        assert_type(connection, Any)


def a_task_in_a_thread_completes_with_its_writes(ctx: Context) -> None:
    if ctx.once("charge"):
        pass
    with ctx.transaction() as connection:
        assert_type(connection, Any)
    ctx.transaction({"id": 1})  # type: ignore[call-arg]
    bool(ctx.once(7))  # type: ignore[arg-type]


def enqueueing_checks_the_arguments() -> None:
    welcome.enqueue(user_id=1)
    resize.enqueue(path="a.png")
    welcome.enqueue(user_id="one")  # type: ignore[arg-type]
    resize.enqueue(pth="a.png")  # type: ignore[call-arg]


async def enqueueing_from_a_coroutine() -> None:
    await welcome.aenqueue(user_id=1)
    await welcome.using(delay="5m", tenant="acme", priority="high", idempotency_key="u1").aenqueue(user_id=1)


async def queues_are_spread_over_stripes() -> None:
    app.queue("mail", ageing="10m", stripes=8)
    assert_type(await app.operator.stripe("mail", 8), None)
    app.sync_operator.stripe("mail", 1)
    app.queue("mail", stripes="8")  # type: ignore[arg-type]
    app.sync_operator.stripe("mail")  # type: ignore[call-arg]


async def queues_are_fair() -> None:
    app.queue("mail", fairness="round_robin", weights={"acme": 3}, shares={"low": 10})
    app.queue("mail", fairness="fair")  # type: ignore[arg-type]
    app.queue("mail", shares={"lowest": 10})  # type: ignore[dict-item]
    await app.operator.set_queue("mail", fairness="random", weights={"acme": None}, ageing=None)
    await app.operator.set_queue("mail", fairnes="random")  # type: ignore[call-arg]
    WorkerSettings(reserve={"low": 2})
    WorkerSettings(reserve={"lowest": 2})  # type: ignore[dict-item]


async def limits_are_declared_and_set() -> None:
    app.limit("one", type=welcome, by="user_id", running=1)
    app.limit("two", type="mail.welcome", rate="10/s", burst=20)
    app.limit("three", running="1")  # type: ignore[arg-type]
    await app.operator.limits.set("four", create=True, all=True, running=2, rate=0.5)
    await app.operator.limits.change("four", rate=None)
    app.sync_operator.limits.set("four", runing=2)  # type: ignore[call-arg]


def schedules_are_checked_like_calls() -> None:
    app.schedule("small", resize.step(path="a.png"), "1h", missed="once", at_most=3, jitter="5s")
    app.schedule("small", resize.step(pth="a.png"), "1h")  # type: ignore[call-arg]
    app.schedule("small", resize, "1h", mised="once")  # type: ignore[call-arg]
    app.schedule("small", resize, None)  # type: ignore[arg-type]
    assert_type(app.sync_operator.schedules.trigger("small"), str)


def a_decorated_function_stays_a_function() -> None:
    assert_type(resize("a.png", 100), None)


async def what_is_returned_can_be_annotated(handle: Handle[str]) -> None:
    assert_type(await handle.progress(), Progress | None)
    assert_type(await app.operator.attempts(handle.id), Sequence[Attempt])
    assert_type(await app.operator.find(), Slice[Task])
    wrong: Progress = await handle.progress()  # type: ignore[assignment]


async def ready_made_handlers_are_task_types() -> None:
    deliver = app.include(handlers.Webhooks(timeout=5))
    assert_type(deliver, TaskType[..., Any, handlers.Delivery])
    handle = await deliver.aenqueue(endpoint="https://example.org", body={})
    assert_type(await handle.result(), handlers.Delivery)
    assert_type(app.include(lambda app: app.store_name), str)
    handlers.Webhooks(timeot=5)  # type: ignore[call-arg]


# -- around handlers ---------------------------------------------------------------------------------


class Db:
    def execute(self, query: str) -> int:
        return len(query)


class Pools(TypedDict):
    db: Db


@app.lifespan
async def pools(given: App) -> AsyncIterator[Pools]:
    yield {"db": Db()}


async def open_db(ctx: Context[Pools]) -> AsyncIterator[Db]:
    assert_type(ctx.state, Pools)
    yield ctx.state["db"]


@app.around
async def timed(ctx: Context, call_next: CallNext) -> None:
    assert_type(ctx.state, Any)
    assert_type(await call_next(), Any)


@app.around
def in_its_thread(ctx: Context[Pools]) -> Iterator[None]:
    assert_type(ctx.state["db"].execute("SELECT 1"), int)
    yield


@app.task
async def charge(order: int, *, db: Annotated[Db, Depends(open_db)] = INJECTED) -> int:
    assert_type(db, Db)
    return db.execute("SELECT 1")


async def what_the_worker_passes_is_not_asked_of_callers() -> None:
    assert_type(await (await charge.aenqueue(7)).result(), int)
    charge.enqueue("seven")  # type: ignore[arg-type]


def a_wrong_state_is_noticed(ctx: Context[Pools]) -> None:
    ctx.state["dbb"]  # type: ignore[typeddict-item]
    ctx.state["db"].execute(1)  # type: ignore[arg-type]


@app.lifespan  # type: ignore[type-var]
async def without_yield(given: App) -> None: ...


@app.around  # type: ignore[type-var]
async def without_call_next(ctx: Context) -> None: ...


@app.around  # type: ignore[type-var]
def not_a_generator(ctx: Context) -> int:
    return 1
