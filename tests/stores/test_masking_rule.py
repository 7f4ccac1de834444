"""The rule of what is masked, and the narrower one that was considered: decision 0054 has both in a table.

A program tells a secret in every way in which a value can travel. What tells it afterwards is looked for in
all that is shown without `reveal`, and in all that the store has, under a keyring: once under the rule, and
once with declared fields alone, which is the same code without its search for values.
"""

import logging
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from tests.contents import contents
from tests.examples import sample
from tests.loops.workers import drained
from tests.stores.conftest import Factory
from windlass import RESULT, App, By, Context, Filter, Page, State, chain
from windlass._client.tasks.export import EndedTask
from windlass._documents.tasks import ended_document
from windlass._encryption.keys import Keyring
from windlass._model.record import Audit
from windlass._model.task import Task
from windlass._policy.secrets import values
from windlass._policy.secrets.shown import masked_attempt, task_mask
from windlass._store.clock import SystemClock
from windlass._store.protocol import Store, all_records
from windlass.logs import JsonFormatter
from windlass.tasktype import TaskType

RING = Keyring([("k1", b"1" * 32)])
EVERYTHING = Page(limit=1000)
TAKERS = ("second", "third", "then", "last", "after", "undo")

# Where the secret is told with declared fields alone: to readers without `reveal`, and in the store.
FIELDS_ALONE = {
    *("progress of pay", "notes of pay", "result of pay"),
    *("error of decline", "traceback of decline", "payload of undo", "result of undo"),
    *("payload of second", "result of second", "payload of third", "result of third"),  # a chain
    *("result of then", "payload of last", "result of last", "result of after"),  # fan-ins
    "audit",  # of a discarded task: its error
}
CARDS = {True: "canary-4111-1111", False: "canary-5500-0000"}  # two, as masks of payloads are remembered


def program(store: Store) -> tuple[App, dict[str, TaskType[Any, Any, Any]]]:
    """A program of careless handlers; only `pay` and `decline` know that the card is secret."""
    app = App(store, encryption=RING)

    @app.task(name="pay", secret=["card"])
    async def pay(card: str, *, ctx: Context) -> Any:
        logging.getLogger("shop").warning("charging %s", card)
        ctx.progress(0.5, f"charging {card}")
        ctx.note(charged=card)
        return {"receipt": card, "text": f"paid with {card}"}

    @app.task(name="decline", secret=["card"], max_attempts=1)
    async def decline(card: str) -> None:
        raise ValueError(f"declined {card}")

    async def take(taken: Any) -> Any:
        return {"taken": taken}

    takers = {name: app.task(name=name)(take) for name in TAKERS}
    return app, {"pay": pay, "decline": decline, **takers}


async def run(app: App, types: dict[str, TaskType[Any, Any, Any]], card: str) -> None:
    """Let the card travel in every way."""
    pay, decline = (types[name].step(card=card) for name in ("pay", "decline"))
    second, third, then, last, after, undo = (types[name].step(taken=RESULT) for name in TAKERS)
    await app.client.enqueue(chain(pay, second, third))
    await app.client.enqueue_group([pay, pay], chain(then, last))
    first = await app.client.enqueue(pay)
    await app.client.enqueue(after, after=[first.id])
    await app.client.enqueue(chain(decline, on_failure=undo))
    await app.client.enqueue(decline)
    await drained(app)
    dead = (await app.store.find(Filter(states=(State.DEAD,)), EVERYTHING)).items
    await app.operator.discard(Filter(ids=(dead[-1].id,)), by=By(who="ann", why="to see the audit log"))


async def shown(app: App, store: Store) -> dict[str, Any]:
    """What a reader without `reveal` sees of each part of each task, and of the audit log."""
    found: dict[str, Any] = {"audit": [one.detail for one in await all_records(store, Audit)]}
    for task in await everything(app.store):
        (full,) = await app.client.types.with_result_secrets([task])
        attempts = [masked_attempt(one, task_mask(full)) for one in await app.store.attempts(task.id)]
        add(found, ended_document(EndedTask(task=full, attempts=attempts)))
    return found


async def stored(store: Store) -> dict[str, Any]:
    """What a store has of the same, below the encryption."""
    found: dict[str, Any] = {"audit": [one.detail for one in await all_records(store, Audit)]}
    for task in await everything(store):
        add(found, EndedTask(task=task).task, await store.attempts(task.id))
    return found


async def everything(store: Store) -> Sequence[Task]:
    return (await store.find(Filter(), EVERYTHING)).items


def add(found: dict[str, Any], task: Any, attempts: Sequence[Any] = ()) -> None:
    """Add the parts of a task, or of its document, in which something can be told."""
    attempts = attempts or task.attempts
    errors = [one.error for one in (task, *attempts) if one.error is not None]
    for part, texts in {
        "payload": [task.payload],
        "result": [task.result],
        "progress": [task.progress],
        "notes": [one.notes for one in attempts],
        "error": [error.message for error in errors],
        "traceback": [error.traceback for error in errors],
    }.items():
        found.setdefault(f"{part} of {task.type}", []).extend(texts)


def told(found: dict[str, Any], card: str) -> set[str]:
    return {place for place, one in found.items() if card in contents(one)}


@pytest.fixture
def log() -> Iterator[StringIO]:
    """What the program logs, as a worker of `windlass worker` writes it."""
    handler = logging.StreamHandler(StringIO())
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("shop")
    logger.addHandler(handler)
    yield handler.stream
    logger.removeHandler(handler)


STORES = sample(["memory", "sqlite"], ["postgres", "valkey", "jetstream", "shards"])


@pytest.fixture(params=[True, False], ids=["the rule", "fields alone"])
def by_value(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether values are searched for. The rule has one room: to take one function out of it is enough."""
    if not request.param:
        monkeypatch.setattr(values, "_collect", lambda *_, **__: None)
    return bool(request.param)


@pytest.mark.parametrize("factory", STORES, indirect=True)
async def test_where_a_secret_is_told(
    factory: Factory, by_value: bool, tmp_path: Path, log: StringIO
) -> None:
    store, card = factory(tmp_path, SystemClock()), CARDS[by_value]
    app, types = program(store)
    await app.open()
    try:
        await run(app, types, card)
        seen = await shown(app, store) | {"log of pay": log.getvalue()}
        kept = await stored(store)
    finally:
        await app.close()

    assert "charging" in log.getvalue()
    if by_value:
        assert (told(seen, card), told(kept, card)) == (set(), set())
    else:
        assert (told(seen, card), told(kept, card)) == (FIELDS_ALONE | {"log of pay"}, FIELDS_ALONE)
