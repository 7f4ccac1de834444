"""FastAPI endpoints return tasks, handles and progress as they are, with or without an annotation."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from windlass import App, Handle, SyncHandle, Task
from windlass._model.task import Progress

SECRET = "hunter2"


@pytest.fixture
def api() -> FastAPI:
    app, api = App("memory://"), FastAPI()

    @app.task(name="ship")
    async def ship(order_id: int, password: str = "") -> str:
        return f"shipped {order_id}"

    async def found(task_id: str) -> Task:
        return await (await app.client.get(task_id)).task()

    @api.post("/declared")
    async def enqueue() -> Handle[str]:
        return await ship.aenqueue(1, password=SECRET)

    @api.post("/blocking")
    def enqueue_blocking() -> SyncHandle[str]:
        return ship.enqueue(1)

    @api.post("/undeclared")
    async def enqueue_undeclared():
        return await ship.aenqueue(1)

    @api.get("/declared/{task_id}")
    async def show(task_id: str) -> Task:
        return await found(task_id)

    @api.get("/listed/{task_id}")
    async def show_list(task_id: str) -> dict[str, list[Task]]:
        return {"tasks": [await found(task_id)]}

    @api.get("/undeclared/{task_id}")
    async def show_undeclared(task_id: str):
        return {"tasks": [await found(task_id)]}

    @api.get("/progress")
    async def progress() -> Progress | None:
        return Progress(fraction=0.5, message="half")

    return api


@pytest.fixture
def http(api: FastAPI) -> Iterator[TestClient]:
    with TestClient(api) as http:
        yield http


@pytest.mark.parametrize("path", ["/declared", "/blocking", "/undeclared"])
def test_a_handle_is_shown(http: TestClient, path: str) -> None:
    shown = http.post(path).json()

    assert shown == {"id": shown["id"], "created": True, "following": []}
    assert http.get(f"/declared/{shown['id']}").json()["id"] == shown["id"]


def test_a_task_is_shown_as_the_api_shows_it_without_secrets(http: TestClient) -> None:
    made = http.post("/declared").json()["id"]

    shown = http.get(f"/declared/{made}")

    document: dict[str, Any] = shown.json()
    assert (document["type"], document["state"]) == ("ship", "ready")
    assert document["payload"] == {"order_id": 1, "password": "[secret]"}
    assert SECRET not in shown.text
    assert http.get(f"/listed/{made}").json() == {"tasks": [document]}
    assert http.get(f"/undeclared/{made}").json() == {"tasks": [document]}


def test_progress_is_shown(http: TestClient) -> None:
    assert http.get("/progress").json() == {"fraction": 0.5, "message": "half"}


def test_the_openapi_document_has_their_schemas(http: TestClient) -> None:
    paths = http.get("/openapi.json").json()["paths"]

    def schema(verb: str, path: str) -> Any:
        return paths[path][verb]["responses"]["200"]["content"]["application/json"]["schema"]

    assert schema("post", "/declared")["required"] == ["id", "created", "following"]
    assert schema("get", "/declared/{task_id}")["properties"]["state"]["enum"][0] == "cancelled"
    assert schema("get", "/progress")["anyOf"][0]["properties"]["fraction"] == {"type": "number"}
