"""API keys: the text is returned once, only its hash is stored, revoked by id."""

import asyncio
import hashlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.contents import contents
from windlass import App, InvalidOption, NotFound
from windlass._model.key import Scope
from windlass._policy import api_key


@pytest.fixture
def app() -> App:
    return App("memory://")


async def test_a_key_is_shown_once_and_kept_as_a_hash(app: App) -> None:
    made = await app.operator.keys.create(
        "the shop",
        scopes=["enqueue", Scope.READ, "read"],
        tenant="acme",
        queues=["mail"],
        expires_in="1h",
        rate=5,
        task_rate=0.5,
        byte_rate=1e6,
    )
    (kept,) = await app.operator.keys.list()

    sent = api_key.parse_key(made.text)
    assert sent is not None
    assert kept == made.key
    assert (kept.name, kept.label, kept.tenant, kept.queues) == (sent.id, "the shop", "acme", ("mail",))
    assert kept.scopes == (Scope.ENQUEUE, Scope.READ)
    assert (kept.rate, kept.task_rate, kept.byte_rate) == (5, 0.5, 1e6)
    assert kept.hash == hashlib.sha256(sent.secret.encode()).hexdigest()
    assert kept.expires_at == kept.created_at + timedelta(hours=1)
    assert sent.secret not in contents(kept) + repr(made) + repr(sent)


async def test_no_two_keys_are_alike(app: App) -> None:
    made = [await app.operator.keys.create("same", scopes=("work",)) for _ in range(20)]

    assert len({one.text for one in made}) == len({one.key.name for one in made}) == 20
    assert [key.name for key in await app.operator.keys.list()] == sorted(one.key.name for one in made)


async def test_a_revoked_key_is_gone_and_the_others_stay(app: App) -> None:
    gone, stays = [await app.operator.keys.create(label, scopes=("read",)) for label in ("a", "b")]

    await app.operator.keys.revoke(gone.key.name)

    assert await app.operator.keys.list() == [stays.key]
    with pytest.raises(NotFound, match=gone.key.name):
        await app.operator.keys.revoke(gone.key.name)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": ""}, "label"),
        ({"label": "  "}, "label"),
        ({"label": "x" * 101}, "1 to 100"),
        ({"label": "\x1b[2J"}, "label"),
        ({"label": "two\nlines"}, "label"),
        ({"label": 7}, "label"),
        ({"scopes": ()}, "at least one scope"),
        ({"scopes": "read"}, "for a single one pass"),
        (
            {"scopes": ("read", "root")},
            "no scope 'root'; the scopes are: enqueue, read, observe, work",
        ),
        ({"scopes": ([],)}, "no scope a list"),
        ({"tenant": ""}, "tenant"),
        ({"tenant": "a b"}, "tenant 'a b' is not a valid name"),
        ({"queues": ("mail", "\x00")}, "queue"),
        ({"queues": "mail"}, "a sequence of names"),
        ({"queues": ()}, "at least one queue"),
        ({"expires_in": "soon"}, "key's lifetime"),
        ({"expires_in": 0}, "must be more than 0"),
        ({"expires_in": -1}, "key's lifetime"),
        ({"rate": 0}, "rate must be from 0.001 to 1,000,000 requests a second, got 0"),
        ({"task_rate": -1}, "task_rate must be from 0.001 to 1,000,000 tasks a second, got -1"),
        ({"byte_rate": 10}, "byte_rate must be from 1,000 to 10,000,000,000 bytes a second, got 10"),
    ],
)
async def test_what_makes_no_sense_is_refused_and_nothing_kept(
    app: App, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message):
        await app.operator.keys.create(**{"label": "x", "scopes": ("read",), **options})

    assert await app.operator.keys.list() == []


def test_the_blocking_twin_does_the_same(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/windlass.db")
    made = app.sync_operator.keys.create("shop", scopes=("enqueue",), rate=2)

    assert app.sync_operator.keys.list() == [made.key]
    assert made.key.rate == 2
    app.sync_operator.keys.revoke(made.key.name)
    assert app.sync_operator.keys.list() == []
    asyncio.run(app.close())
