"""Objects of the public API that hold a secret, shown in every way in which people show them.

Whoever asks for `task.payload` gets it. Whoever logs the task does not, though no field is declared secret.
"""

import asyncio
import json
import logging
import pickle
import pprint
import reprlib
import traceback
import unittest
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

import pytest
from _pytest._io.saferepr import saferepr
from msgspec import Raw
from msgspec.structs import replace
from rich.console import Console
from rich.pretty import pretty_repr
from rich.traceback import Traceback
from sentry_sdk.serializer import serialize

from tests.contents import contents
from tests.examples import sample
from tests.loops.workers import drained
from windlass import INJECTED, App, Backoff, Context, Filter, chain, handlers
from windlass._encryption.keys import Keyring
from windlass._encryption.keys import new_key as new_encryption_key
from windlass._model.alert import Alert
from windlass._model.filter import By, Page, Replay
from windlass._model.key import Login
from windlass._model.lease import Lease
from windlass._model.outcome import Crashed, Failed, Returned
from windlass._model.schedule import Schedule
from windlass._model.task import Error
from windlass._model.verdict import Bury, Complete, Settlement
from windlass._observe.events import Event, EventName
from windlass._policy.secrets.mask import mask_of
from windlass._store.messages import EnqueueRequest, SettleRequest
from windlass._stores import open_store
from windlass.config import Settings
from windlass.logs import JsonFormatter

CANARY = "7f3asings-4111"
JSON = f'{{"card":"{CANARY}"}}'.encode()
URLS = (
    "postgresql://shop:{}@127.0.0.1:9/shop",
    "redis://shop:{}@127.0.0.1:9/0",
    "nats://shop:{}@127.0.0.1:9/shop",
)


@dataclass
class Plain:
    """What shows all that it has; short, as `reprlib` cuts."""

    x: str


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    """Objects by what they are; each has the canary, or leads to one that has."""
    return asyncio.run(_objects())


async def _objects() -> dict[str, Any]:
    app = App("memory://", backoff=Backoff(base=0, jitter=0))
    contexts: list[Context[Any]] = []

    @app.task(max_attempts=1)
    async def give(card: str, *, ctx: Context[Any] = INJECTED) -> dict[str, str]:
        contexts.append(ctx)
        ctx.progress(0.5, card)
        ctx.note(card=card)
        return {card: card}

    @app.task(max_attempts=1)
    async def fail(card: str) -> None:
        raise ValueError(card)

    step = chain(give.step(card=CANARY), fail.step(card=CANARY))
    handles = [await app.client.enqueue(one) for one in (step, fail.step(card=CANARY))]
    await drained(app)
    first, dead = [await handle.task() for handle in handles]
    schedule = Schedule(name="nightly", type="give", payload=JSON, next=JSON, fingerprint=CANARY)
    await app.store.put(schedule, None)
    key = await app.operator.keys.create("shop", scopes=["read"])
    key_text = replace(key, text=CANARY)
    error = Error(type="ValueError", message=CANARY, traceback=CANARY)
    new = app.builder.plain(give.spec, JSON)
    attempt = (await app.store.attempts(first.id))[0]
    lease, now = Lease(first.id, first.fence), first.created_at
    settlement = Settlement(lease=lease, verdict=Bury(error=error), outcome="failed", notes=JSON)
    made: dict[str, Any] = {
        "completed task": first,
        "dead task": dead,
        "progress": first.progress,
        "error": dead.error,
        "attempt": attempt,
        "handle": handles[0],
        "blocking handle": await asyncio.to_thread(give.enqueue, card=CANARY),
        "new task": new,
        "step": step,
        "chain of steps": chain(step, step, on_failure=step),
        "task type": give,
        "task type with options": give.using(idempotency_key=CANARY, next=step),
        "bound call": give.using(secret=[CANARY]).enqueue,
        "context": contexts[0],
        "schedule": schedule,
        "schedule status": (await app.operator.schedules.list())[0],
        "dead letters": [one async for one in app.operator.every(Filter())],
        "page of tasks": await app.store.find(Filter(), Page(limit=10)),
        "failures": await app.operator.failures(),
        "filter": Filter(idempotency_key=CANARY, error=CANARY),
        "replay": Replay(by=By(who="ann", why=CANARY), payload=JSON, fingerprint=CANARY),
        "returned": Returned(JSON),
        "failed": Failed(error=error),
        "crashed": Crashed(error=error),
        "complete": Complete(result=JSON, successors=(new,)),
        "settlement": settlement,
        "enqueue request": EnqueueRequest((new,)),
        "settle request": SettleRequest((settlement,)),
        "event": Event(name=EventName.BURIED, error=error, idempotency_key=CANARY),
        "mask": mask_of(JSON, ("card",)),
        "key": key_text,
        "login": Login(name="n", key="k", secret=CANARY, created_at=now, expires_at=now),
        "alert": Alert(name="dead", webhook=f"https://hooks.example/{CANARY}"),
        "keyring": Keyring.parse(new_encryption_key("k1")),
        "settings": Settings.load(env={"WINDLASS_STORE": URLS[0].format(CANARY), "WINDLASS_NAME": "a"}),
        "endpoint": handlers.Endpoint(url=f"https://a.example/{CANARY}", headers={"x-key": CANARY}),
        "webhooks": handlers.Webhooks(secret=CANARY * 2),
        "e-mail": handlers.Email(sender="a@a.example", smtp=f"smtp://u:{CANARY}@a.example"),
        "raw": Raw(JSON),
        "app": app,
        "client": app.client,
        "operator": app.operator,
    }  # fmt: skip
    for url in URLS:
        store = open_store(url.format(CANARY))
        made[f"{url[:5]} store"] = store
        made[f"app of {url[:5]}"] = App(store)
        made[f"address of {url[:5]}"] = getattr(store, "address", None) or vars(store)
    return made


def logged(one: object, form: logging.Formatter) -> str:
    text, extra = StringIO(), {"task": one, "tasks": [one, {"one": one}]}
    handler, logger = logging.StreamHandler(text), logging.getLogger("shop-by-accident")
    handler.setFormatter(form)
    logger.handlers, logger.propagate = [handler], False
    logger.warning("got %s", one, extra=extra)
    logger.warning("got %r and %s", one, [one], extra=extra)
    logger.warning(f"got {one} {one!r}", extra=extra)  # noqa: G004 - as programs do
    try:
        raise ValueError(one)
    except ValueError:
        logger.exception(one, extra=extra)
    return text.getvalue()


def raised(one: object) -> BaseException:
    """An error that a function raises which has the object as a local variable."""

    def work(given: object) -> None:
        several = [given, {"given": given}]
        raise LookupError(given, len(several))

    try:
        work(one)
    except LookupError as error:
        return error
    raise AssertionError


def by_rich_traceback(one: object) -> str:
    error, text = raised(one), StringIO()
    shown = Traceback.from_exception(type(error), error, error.__traceback__, show_locals=True)
    Console(file=text, width=500).print(shown)
    return text.getvalue()


def by_print(one: object) -> str:
    with redirect_stdout(StringIO()) as text:
        print(one, [one], {"one": one})  # noqa: T201
    return text.getvalue()


def by_asyncio(one: object) -> str:
    async def give() -> object:
        return one

    async def ask() -> str:
        task = asyncio.create_task(give(), name=f"work on {one}")
        await task
        return repr(task) + str(asyncio.gather(give()))

    return asyncio.run(ask())


def by_warning(one: object) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn(f"strange: {one}", stacklevel=1)
    return "".join(warnings.formatwarning(each.message, each.category, "x", 1) for each in caught)


def by_assertion(one: object) -> str:
    try:
        unittest.TestCase().assertEqual(one, 7)  # noqa: PT009
    except AssertionError as error:
        return str(error)
    raise AssertionError


def by_failed_pickle(one: object) -> str:
    try:
        return str(len(pickle.dumps([lambda: one, one])))
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


WAYS: dict[str, Callable[[Any], str]] = {
    "repr": repr,
    "str": str,
    "f-string": lambda one: f"{one} {one!s} {one!r} {one!a}",
    "format": "{0} {0!r}".format,
    "percent": lambda one: "%s %r %a" % (one, one, one),  # noqa: UP031 - a way of its own
    "print": by_print,
    "list": lambda one: repr([one, (one,), {"one": one}]),
    "log as text": lambda one: logged(one, logging.Formatter("%(message)s %(task)s %(tasks)s")),
    "log as JSON": lambda one: logged(one, JsonFormatter()),
    "json, default=str": lambda one: json.dumps({"one": one, "all": [one]}, default=str),
    "json, default=repr": lambda one: json.dumps({"one": one, "all": [one]}, default=repr),
    "exception": lambda one: repr(ValueError(one)) + str(KeyError(one)),
    "traceback": lambda one: "".join(traceback.format_exception(raised(one))),
    "traceback with locals": lambda one: "".join(
        traceback.TracebackException.from_exception(raised(one), capture_locals=True).format()
    ),
    "rich": lambda one: pretty_repr([one, {"one": one}]),
    "rich traceback with locals": by_rich_traceback,
    "pprint": lambda one: pprint.pformat([one, {"one": one}]),
    "reprlib": lambda one: reprlib.Repr().repr(one) + reprlib.repr([one]),
    "pytest": lambda one: saferepr(one, maxsize=100_000) + saferepr([one]),
    "assertion": by_assertion,
    "asyncio": by_asyncio,
    "warning": by_warning,
    "failed pickle": by_failed_pickle,
    "Sentry": lambda one: json.dumps(serialize({"vars": {"one": one, "all": [one]}}, is_vars=True)),
    "Sentry extra": lambda one: json.dumps(serialize({"extra": {"one": one, "all": [one]}})),
}


SLOW = "rich traceback with locals"


@pytest.mark.parametrize("way", sample([way for way in WAYS if way != SLOW], [SLOW]))
def test_no_object_shows_its_secret(objects: dict[str, Any], way: str) -> None:
    assert [name for name, one in objects.items() if CANARY in WAYS[way](one)] == []


@pytest.mark.parametrize("way", WAYS)
def test_each_way_shows_a_secret_that_is_not_hidden(way: str) -> None:
    assert CANARY in WAYS[way](Plain(CANARY))


def test_many_objects_hold_the_secret(objects: dict[str, Any]) -> None:
    holding = [name for name, one in objects.items() if CANARY in contents(one)]

    assert len(holding) >= 25
    assert len(objects) * len(WAYS) >= 900


def test_a_task_says_what_it_is_and_its_fields_have_the_rest(objects: dict[str, Any]) -> None:
    task = objects["completed task"]

    assert repr(task) == (
        f"Task(id='{task.id}', type='{task.type}', queue='default', state=COMPLETED, attempt=1, "
        f"payload=<{len(task.payload)} bytes>, result=<{len(task.result)} bytes>, "
        f"progress=Progress(fraction=0.5, message=…))"
    )
    assert CANARY.encode() in task.payload
    assert CANARY in task.as_dict()["payload"]["card"]  # declared by nobody, so shown to who asks


def test_a_document_of_a_task_is_masked() -> None:
    """`dict(task)`, `as_dict` and `to_json` are asked for, and show all but secrets."""
    task = replace(asyncio.run(_objects())["completed task"], secret=("card",))

    for text in (task.to_json(), str(task.as_dict()), str(dict(task)), str([*task])):
        assert "payload" in text
        assert CANARY not in text
