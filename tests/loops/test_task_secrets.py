"""Secrets of tasks in the worker: what its handlers report has none, whoever knew the type."""

from typing import Any

import msgspec
import pytest

from tests.contents import contents
from tests.loops import child_tasks
from tests.loops.workers import drained
from windlass import RESULT, App, Backoff, Context, Fatal, chain
from windlass._model.options import DeclaredType, Defaults
from windlass._stores.memory import MemoryStore

SECRET = "4242-s3cr3t"


@pytest.fixture
def app() -> App:
    return App("memory://", backoff=Backoff(base=0, jitter=0, max_attempts=1))


async def stored(app: App) -> str:
    """All that the store keeps of tasks, apart from payloads and results, which handlers need."""
    tasks = [task async for task in app.operator.every()]
    attempts = [await app.store.attempts(task.id) for task in tasks]
    return contents([(task.error, task.progress, some) for task, some in zip(tasks, attempts, strict=True)])


async def shown(app: App) -> str:
    tasks = [task async for task in app.operator.every()]
    attempts = [one for task in tasks for one in await app.operator.attempts(task.id)]
    return msgspec.json.encode([one.as_dict() for one in (*tasks, *attempts)]).decode()


async def test_progress_is_stored_without_the_secrets_of_its_task(app: App) -> None:
    @app.task(secret=["card"])
    async def pay(card: str, *, ctx: Context) -> None:
        ctx.progress(0.5, f"charging {card}")

    handle = await pay.aenqueue(card=SECRET)
    await drained(app)

    progress = await handle.progress()
    assert progress is not None
    assert progress.message == "charging [secret]"


async def test_progress_of_a_child_process_too() -> None:
    handle = await child_tasks.reporting.aenqueue(password=SECRET)
    await drained(child_tasks.app)

    progress = await handle.progress()
    assert progress is not None
    assert progress.message == "trying [secret]"


async def test_a_worker_masks_what_its_type_declares_though_the_sender_does_not_know_the_type(
    app: App,
) -> None:
    @app.task(name="pay", secret=["card"])
    async def pay(card: str, *, ctx: Context) -> None:
        ctx.progress(0.5, card)
        ctx.note(used=card)
        raise Fatal(f"{card} was declined")

    await App(app.store).client.send("pay", {"card": SECRET})
    await drained(app)

    assert SECRET not in await stored(app)
    assert SECRET not in await shown(app)


@pytest.mark.parametrize("published", ["before", "after"])
async def test_what_a_type_declares_later_is_masked_in_what_is_shown(app: App, published: str) -> None:
    @app.task(name="pay")  # by the time of its tasks it is not known that the card is secret
    async def pay(card: str, *, ctx: Context) -> Any:
        ctx.progress(0.5, f"trying {card}")
        ctx.note(used=card)
        if card.endswith("!"):
            raise Fatal(f"{card} was declined")
        return {"paid_with": card}

    other = App(app.store)
    declared = DeclaredType(name="pay", defaults=Defaults(secret=("card",)))
    if published == "before":
        await app.store.put(declared)
    await other.client.send("pay", {"card": SECRET})
    await other.client.send("pay", {"card": f"{SECRET}!"})
    await drained(app)
    await app.store.put(declared)  # the worker has published its own

    for reader in (App(app.store), app):
        reader.client.types.forget()
        assert SECRET not in await shown(reader)


async def test_a_secret_returned_under_another_name_is_masked_and_the_successor_gets_it(app: App) -> None:
    got: list[Any] = []

    @app.task(name="first", secret=["card"])
    async def first(card: str) -> dict[str, Any]:
        return {"used": [card]}

    @app.task(name="second")
    async def second(before: dict[str, Any], *, ctx: Context) -> str:
        got.append(before)
        ctx.progress(0.5, f"with {before['used']}")
        return f"again {before['used'][0]}"

    @app.task(name="third")
    async def third(told: str, *, ctx: Context) -> None:
        got.append(told)
        ctx.progress(0.1, told)
        raise Fatal(told)

    await app.client.enqueue(
        chain(first.step(card=SECRET), second.step(before=RESULT), third.step(told=RESULT))
    )
    await drained(app)

    assert got == [{"used": [SECRET]}, f"again {SECRET}"]
    assert SECRET not in await stored(app)
    assert SECRET not in await shown(app)


async def test_the_last_task_of_a_group_masks_the_secrets_of_the_others(app: App) -> None:
    got: list[Any] = []

    @app.task(name="first", secret=["card"])
    async def first(card: str) -> dict[str, Any]:
        return {"used": card}

    @app.task(name="last")
    async def last(results: list[Any], *, ctx: Context) -> None:
        got.append(results)
        ctx.progress(0.5, f"with {results}")
        ctx.note(results=results)
        raise Fatal(f"with {results}")

    await app.client.enqueue_group([first.step(card=SECRET)], last.step(results=RESULT))
    await drained(app)

    assert got == [[{"used": SECRET}]]
    assert SECRET not in await stored(app)
    assert SECRET not in await shown(app)


async def test_a_task_shows_nothing_of_a_schedule_of_a_type_that_is_known_elsewhere(app: App) -> None:
    await app.store.put(DeclaredType(name="pay", defaults=Defaults(secret=("card",))))
    await app.operator.schedules.add("nightly", "pay", "1h", {"card": SECRET})

    status = await App(app.store).operator.schedules.get("nightly")
    assert status.schedule.secret == ("card",)
    await app.operator.schedules.trigger("nightly")
    assert SECRET not in await shown(App(app.store))


async def test_what_the_last_task_of_a_group_returns_and_passes_on_is_masked_too(app: App) -> None:
    got: list[Any] = []

    @app.task(name="first", secret=["card"])
    async def first(card: str) -> dict[str, Any]:
        return {"used": card}

    @app.task(name="last")
    async def last(results: list[Any]) -> dict[str, Any]:
        return {"all": [f"paid with {one['used']}" for one in results], "n": 1}

    @app.task(name="after")
    async def after(told: dict[str, Any], *, ctx: Context) -> None:
        got.append(told)
        ctx.progress(0.1, str(told))
        raise Fatal(str(told))

    then = last.step(results=RESULT).then(after.step(told=RESULT))
    handles = await app.client.enqueue_group([first.step(card=SECRET)], then)
    await drained(app)

    assert got == [{"all": [f"paid with {SECRET}"], "n": 1}]
    assert SECRET not in await stored(app)
    assert SECRET not in await shown(app)
    assert (await handles[-1].task()).as_dict()["result"] == {"all": "[secret]", "n": 1}


@pytest.mark.parametrize("secret", [(), ("card",)])
async def test_of_results_that_are_gone_nothing_secret_is_shown(secret: tuple[str, ...]) -> None:
    store = MemoryStore()
    app = App(store)

    @app.task(name="first", secret=secret)
    async def first(card: str) -> str:
        return card

    @app.task(name="last")
    async def last(results: list[Any]) -> list[Any]:
        return results

    handles = await app.client.enqueue_group([first.step(card=SECRET)], last.step(results=RESULT))
    await drained(app)
    store._tables.tasks.pop(handles[0].id)  # as prune does

    assert (await handles[-1].task()).as_dict()["result"] == ("[secret]" if secret else [SECRET])
