"""`--json` and the HTTP API show the same document of each noun."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from windlass import Filter
from windlass._model.task import Progress
from windlass.app import App
from windlass.http import api

from .conftest import Run

QUESTIONS = {
    "tasks": (["tasks", "list"], "/tasks", "items"),
    "dead letters": (["dead", "list"], "/dead", "items"),
    "queues": (["queues", "list"], "/queues", "items"),
    "limits": (["limits", "list"], "/limits", "items"),
    "schedules": (["schedules", "list"], "/schedules", "items"),
    "audit": (["audit"], "/audit", "items"),
    "keys": (["keys", "list"], "/keys", "items"),
}


@pytest.fixture
def shop(run: Run, work: Callable[[], None]) -> None:
    """A store with something of every noun in it."""
    run("enqueue", "--app", "shop:app", "shop.welcome", '{"user_id": 1, "card": "4111"}')
    run("enqueue", "--app", "shop:app", "shop.explode")
    work()
    run("limits", "set", "mail", "--create", "--queue", "mail", "--running", "3", "--rate", "10/s")
    run("schedules", "add", "nightly", "shop.stay", "0 3 * * *")
    run("queues", "pause", "mail", "--why", "maintenance")
    run("keys", "create", "reader", "--scope", "read")


def stable(document: Any) -> Any:
    """The document without what passes with time."""
    if isinstance(document, dict):
        return {name: stable(value) for name, value in document.items() if name != "oldest_ready"}
    return [stable(one) for one in document] if isinstance(document, list) else document


@pytest.mark.parametrize("noun", QUESTIONS)
def test_the_command_line_prints_the_documents_of_the_api(shop: None, run: Run, noun: str) -> None:
    command, path, items = QUESTIONS[noun]
    printed = run("--store", "sqlite:///windlass.db", *command, "--json").rows

    answered = asyncio.run(_get(path))[items]

    assert answered
    assert sorted(stable(printed), key=str) == sorted(stable(answered), key=str)


async def _get(path: str) -> Any:
    app = App("sqlite:///windlass.db")
    transport = httpx2.ASGITransport(api(app, open_to_all=True))
    async with httpx2.AsyncClient(transport=transport, base_url="http://api") as http:
        response = await http.get(path)
    await app.close()
    return response.json()


def test_as_dict_returns_the_documents_of_the_api(shop: None, run: Run) -> None:
    async def both() -> tuple[list[Any], list[Any], Any, Any]:
        app = App("sqlite:///windlass.db")
        tasks = [task async for task in app.operator.every(Filter())]
        attempts = await app.operator.attempts(tasks[1].id)
        await app.close()
        listed = await _get("/tasks")
        recorded = await _get(f"/tasks/{tasks[1].id}/attempts")
        return (
            [task.as_dict() for task in tasks],
            listed["items"],
            attempts[0].as_dict(),
            recorded["items"][0],
        )

    tasks, listed, attempt, recorded = asyncio.run(both())

    assert sorted(tasks, key=str) == sorted(listed, key=str)
    assert attempt == recorded
    assert json.loads(json.dumps(tasks)) == tasks  # plain values, as FastAPI and Django want them
    shown = next(task for task in tasks if task["type"] == "shop.welcome")
    assert shown["payload"] == {"user_id": 1, "card": "[secret]"}
    assert Progress(fraction=0.5, message="half").as_dict() == {"fraction": 0.5, "message": "half"}
