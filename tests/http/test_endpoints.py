"""Disabled endpoints of webhooks over HTTP."""

import httpx2

from tests.http.api_client import Api
from tests.http.problem import problem
from windlass._client.endpoints import Endpoints
from windlass._client.keys import Keys
from windlass._ids import new_id
from windlass._model.key import Scope
from windlass._stores.memory import MemoryStore


async def test_a_disabled_endpoint_is_listed_and_enabled(
    http: httpx2.AsyncClient, url: str, keys: Keys, store: MemoryStore
) -> None:
    api = Api(http, url, (await keys.create("all", scopes=[Scope.ADMIN])).text)
    task = new_id()
    made = await Endpoints(store).disable("https://example.org/T0K3N", tenant="acme", task_id=task)
    (listed,) = (await api.good("GET", "/endpoints"))["items"]

    assert "T0K3N" not in str(listed)
    assert (listed["id"], listed["endpoint"], listed["task_id"]) == (
        made.name,
        "https://example.org/\u2026",
        task,
    )
    assert (await api("POST", f"/endpoints/{made.name}/enable")).status_code == 204
    assert (await api.good("GET", "/endpoints"))["items"] == []
    problem(await api("POST", f"/endpoints/{made.name}/enable"), 404, "not-found")


async def test_a_key_of_one_tenant_sees_none(
    http: httpx2.AsyncClient, url: str, keys: Keys, store: MemoryStore
) -> None:
    await Endpoints(store).disable("https://example.org", tenant="bob", task_id=new_id())
    made = await keys.create("acme", scopes=[Scope.ADMIN], tenant="acme")

    problem(await Api(http, url, made.text)("GET", "/endpoints"), 403, "forbidden")
