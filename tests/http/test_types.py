"""Declared types over HTTP: payloads are validated by them, and the OpenAPI document shows their schemas."""

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import httpx2
import pytest
from pydantic import BaseModel, Field, SecretStr

from tests.servers.api import ApiServer
from windlass import App, By, State
from windlass._stores.memory import MemoryStore


class Item(BaseModel):
    sku: Annotated[str, Field(pattern="^[a-z]+$")]
    number: int = Field(gt=0)


class Order(BaseModel):
    items: list[Item]
    word: SecretStr | None = None


@dataclass
class Box:
    weight: Decimal


@pytest.fixture
def app(store: MemoryStore) -> App:
    app = App(store)

    @app.task(name="ship", example={"order": Order(items=[Item(sku="a", number=1)]), "box": Box(Decimal(1))})
    async def ship(order: Order, box: Box, boxes: dict[str, Box] | None = None) -> None: ...

    return app


@pytest.fixture
def url(api: ApiServer, app: App) -> str:
    return api.serve_app(app, open_to_all=True)


def task(**order: Any) -> dict[str, Any]:
    return {"type": "ship", "payload": {"order": {"items": [], **order}, "box": {"weight": "1.5"}}}


async def test_a_payload_that_does_not_validate_is_refused_with_its_place(
    http: httpx2.AsyncClient, url: str
) -> None:
    wrong = task(items=[{"sku": "a", "number": 1}, {"sku": "a", "number": 0}])

    assert (await http.post(f"{url}/tasks", json=task())).status_code == 201
    refused = await http.post(f"{url}/tasks", json=wrong)

    assert refused.status_code == 422
    problem = refused.json()
    assert problem["pointer"] == "/order/items/1/number"
    assert "Input should be greater than 0" in problem["detail"]


async def test_a_replay_with_another_payload_is_validated_as_an_enqueue_is(
    http: httpx2.AsyncClient, url: str, app: App, store: MemoryStore
) -> None:
    made = (await http.post(f"{url}/tasks", json=task())).json()
    await app.operator.cancel_one(made["id"], by=By(who="test"))

    def replay(payload: Any) -> Any:
        return http.post(f"{url}/tasks/{made['id']}/replay", json={"payload": payload})

    refused = await replay(task(items=[{"sku": "A", "number": 1}])["payload"])
    assert refused.status_code == 422
    assert refused.json()["pointer"].endswith("/order/items/0/sku")
    assert (await replay(task()["payload"])).is_success
    assert await (await app.client.get(made["id"])).state() == State.READY


async def test_the_openapi_document_shows_the_schemas_of_models(http: httpx2.AsyncClient, url: str) -> None:
    document = (await http.get(f"{url}/openapi.json")).json()
    schemas = document["components"]["schemas"]

    assert schemas["payload.ship"]["required"] == ["order", "box"]
    order = schemas["payload.ship"]["properties"]["order"]
    assert order["properties"]["items"]["items"] == {"$ref": "#/components/schemas/payload.ship.Item"}
    assert schemas["payload.ship.Item"]["properties"]["number"]["exclusiveMinimum"] == 0
    assert schemas["payload.ship.Box"]["properties"]["weight"]["format"] == "decimal"
    assert order["properties"]["word"]["anyOf"][0] == {
        "format": "password",
        "type": "string",
        "writeOnly": True,
    }
    refs = set(re.findall(r'"#/components/schemas/(payload[^"]*)"', json.dumps(document)))
    assert refs <= schemas.keys()
    body = document["paths"]["/tasks"]["post"]["requestBody"]["content"]["application/json"]
    assert body["examples"]["ship"]["value"]["payload"] == {
        "order": {"items": [{"sku": "a", "number": 1}], "word": None},
        "box": {"weight": "1"},
    }


@pytest.mark.parametrize("path", ["/tasks", "/schedules/nightly"])
async def test_a_misspelt_secret_field_of_a_declared_type_is_refused(
    http: httpx2.AsyncClient, url: str, path: str
) -> None:
    body = {**task(), "secret": ["order.wrod"], **({} if path == "/tasks" else {"rule": "1h"})}

    refused = await http.request("POST" if path == "/tasks" else "PUT", f"{url}{path}", json=body)

    assert refused.status_code == 422
    assert "did you mean 'order.word'?" in refused.json()["detail"]
