"""Notes: what a handler notes is kept with its attempt, without secrets, wherever the handler runs."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.loops import child_tasks
from tests.loops.workers import drained
from windlass import App, Backoff, Context, Fatal, InvalidOption, InvalidPayload, Retry
from windlass._policy.input.notes import MAX_NOTES_BYTES


@pytest.fixture
def app() -> App:
    return App("memory://", backoff=Backoff(base=0, jitter=0))


async def notes(app: App, task_id: str) -> list[Any]:
    return [attempt.as_dict()["notes"] for attempt in await app.operator.attempts(task_id)]


async def test_every_attempt_keeps_its_own_whatever_its_outcome(app: App) -> None:
    @app.task
    async def call(*, ctx: Context) -> None:
        ctx.note(response_code=503 if ctx.attempt == 1 else 200, host="api")
        ctx.note(host="api2", at=datetime(2026, 1, 1, tzinfo=UTC))
        if ctx.attempt == 1:
            raise Retry("busy", after=0)

    handle = await call.aenqueue()
    await drained(app)

    same = {"host": "api2", "at": "2026-01-01T00:00:00Z"}
    assert await notes(app, handle.id) == [{"response_code": 503, **same}, {"response_code": 200, **same}]


async def test_a_handler_in_a_thread_notes_too_and_one_without_notes_has_none(app: App) -> None:
    @app.task
    def call(code: int | None, *, ctx: Context) -> None:
        if code is not None:
            ctx.note(response_code=code)
        if code == 500:
            raise Fatal("no")

    handles = [await call.aenqueue(code) for code in (None, 200, 500)]
    await drained(app)

    found = [await notes(app, handle.id) for handle in handles]
    assert found == [[None], [{"response_code": 200}], [{"response_code": 500}]]


async def test_a_child_process_notes_too() -> None:
    app = child_tasks.app
    handle = await child_tasks.noting.aenqueue(password="sesame-open")
    await drained(app)

    assert await notes(app, handle.id) == [{"response_code": 401, "url": "/login?p=[secret]"}]


async def test_secrets_are_masked_before_they_are_stored(app: App) -> None:
    @app.task(secret=["card"])
    async def pay(card: str, *, ctx: Context) -> None:
        ctx.note(card=card, token="t-1", nested={"text": f"declined {card}", "list": [card, 7]}, n=4111)

    handle = await pay.aenqueue(card="4111-2222")
    await drained(app)

    (attempt,) = await app.operator.attempts(handle.id)
    assert b"4111-2222" not in (attempt.notes or b"")
    assert attempt.as_dict()["notes"] == {
        "card": "[secret]",
        "token": "[secret]",
        "nested": {"text": "declined [secret]", "list": ["[secret]", 7]},
        "n": 4111,
    }


async def test_too_much_or_what_json_cannot_hold_is_refused_in_the_handler(app: App) -> None:
    refused: list[Exception] = []

    @app.task
    async def call(*, ctx: Context) -> None:
        ctx.note(kept=1)
        for facts in ({"text": "x" * MAX_NOTES_BYTES}, {"n": float("nan")}, {"o": object()}):
            with pytest.raises((InvalidOption, InvalidPayload)) as refusal:
                ctx.note(**facts)
            refused.append(refusal.value)

    handle = await call.aenqueue()
    await drained(app)

    assert [type(error) for error in refused] == [InvalidOption, InvalidPayload, InvalidPayload]
    assert await notes(app, handle.id) == [{"kept": 1}]
