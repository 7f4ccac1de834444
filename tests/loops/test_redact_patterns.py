"""Redaction patterns of an app: masked in whatever is shown of its tasks, by whoever knows the store."""

import json

import pytest

from tests.loops.workers import drained
from windlass import App, Context, InvalidOption, State
from windlass._stores.memory import MemoryStore

CARD = r"\b\d{13,19}\b"
NUMBER = "4111111111111111"


def shop(store: MemoryStore, redact: list[str]) -> App:
    app = App(store, redact=redact)

    @app.task(name="pay", max_attempts=1)
    async def pay(text: str, *, ctx: Context) -> None:
        ctx.progress(0.5, f"charging {text}")
        ctx.note(told=text)
        raise ValueError(f"declined: {text}")

    return app


async def shown(app: App) -> str:
    """Everything that is shown of its only task."""
    (task,) = (await app.operator.find()).items
    attempts = await app.operator.attempts(task.id)
    return json.dumps([task.as_dict(), *(one.as_dict() for one in attempts)], default=str)


async def test_matches_are_masked_in_payload_error_and_notes() -> None:
    app = shop(MemoryStore(), [CARD])
    await app.client.send("pay", {"text": f"card {NUMBER}"})
    await drained(app)

    (task,) = (await app.operator.find()).items
    assert task.state is State.DEAD
    assert NUMBER in task.payload.decode()  # the handler needs it
    text = await shown(app)
    assert NUMBER not in text
    assert text.count("card [secret]") >= 4


async def test_a_program_that_does_not_declare_the_type_knows_the_published_patterns() -> None:
    store = MemoryStore()
    await shop(store, [CARD]).publish()
    other = App(store)
    await other.client.send("pay", {"text": f"card {NUMBER}"})

    assert NUMBER not in await shown(other)


async def test_patterns_can_be_added_to_an_app_that_has_declared_its_types() -> None:
    app = shop(MemoryStore(), [CARD])
    app.add_redact([r"sk_\w+"])
    await app.client.send("pay", {"text": f"card {NUMBER} key sk_live"})

    assert app.redact == (CARD, r"sk_\w+")
    assert "card [secret] key [secret]" in await shown(app)


@pytest.mark.parametrize(
    ("redact", "why"),
    [
        ([r"(a+)+$"], "unbounded time"),
        ([r"("], "not a regular expression"),
        ("abc", "a sequence of patterns"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused_where_it_is_declared(redact: list[str], why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        App(MemoryStore(), redact=redact)
