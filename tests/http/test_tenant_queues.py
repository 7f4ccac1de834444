"""How many queues and task types a tenant may use, if its key is bound to it."""

from typing import Any

import httpx2
import pytest

from tests.http.api_client import Api
from tests.http.problem import problem
from tests.servers.api import ApiServer
from windlass import App, Filter, Page
from windlass._client.keys import Keys
from windlass._http import auth
from windlass._http.bounds import tenant_queues
from windlass._http.web.load import LoadLimits
from windlass._model.key import Scope
from windlass._stores.memory import MemoryStore

MOST = 3


@pytest.fixture
def bounded(
    http: httpx2.AsyncClient, api: ApiServer, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> Api:
    """A server with few queues and types for each tenant, which knows keys as soon as they are made."""
    monkeypatch.setattr(auth, "FRESH_FOR", 0.0)
    return Api(http, api.serve(store, limits=LoadLimits(queues_per_tenant=MOST, types_per_tenant=MOST)))


async def key(keys: Keys, **bounds: Any) -> str:
    scopes = [Scope.ENQUEUE, Scope.READ, Scope.OPERATE]
    return (await keys.create("k", scopes=scopes, **bounds)).text


async def queues(store: MemoryStore) -> set[str]:
    return {task.queue for task in (await store.find(Filter(), Page(limit=1_000))).items}


async def test_a_tenant_enqueues_into_so_many_queues(bounded: Api, keys: Keys, store: MemoryStore) -> None:
    own = bounded.by(await key(keys, tenant="acme"))
    for number in range(MOST):
        await own.enqueue(queue=f"q{number}")

    step = {"type": "t", "queue": "more"}
    for path, body in (
        ("/tasks", step),
        ("/tasks", {"type": "t", "queue": "q0", "next": [{"type": "t", "queue": "q1", "next": [step]}]}),
        ("/tasks/batch", {"tasks": [{"type": "t", "queue": "q0"}, step]}),
        ("/tasks/batch", {"tasks": [{"type": "t", "queue": "q0"}], "then": step}),
    ):
        refused = await own("POST", path, body)
        assert "--max-queues-per-tenant" in problem(refused, 507, "quota-exceeded")["detail"]
        assert int(refused.headers["retry-after"]) >= 1
    line = b'{"type":"t","queue":"more"}'
    streamed = await own("POST", "/tasks/stream", line, content_type="application/x-ndjson")
    assert "quota-exceeded" in streamed.text

    assert await queues(store) == {"q0", "q1", "q2"}
    await own.enqueue(queue="q0", next=[{"type": "t", "queue": "q2"}])


async def test_other_keys_and_tenants_have_their_own_or_no_bound(bounded: Api, keys: Keys) -> None:
    first, second = [bounded.by(await key(keys, tenant=tenant)) for tenant in ("acme", "zebra")]
    unbound = bounded.by(await key(keys))
    names = [f"q{number}" for number in range(MOST)]
    for own in (first, second):
        for queue in names:
            await own.enqueue(queue=queue)

    for number in range(2 * MOST):
        await unbound.enqueue(queue=f"other{number}", tenant="acme")

    some = bounded.by(await key(keys, tenant="new", queues=[f"own{number}" for number in range(2 * MOST)]))
    for number in range(2 * MOST):
        await some.enqueue(queue=f"own{number}")


async def test_queues_that_are_empty_again_make_room(
    bounded: Api, keys: Keys, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenant_queues, "_READ_EVERY", 0.0)
    monkeypatch.setattr(tenant_queues, "_SHARE", 0)
    own = bounded.by(await key(keys, tenant="acme"))
    made = [await own.enqueue(queue=f"q{number}") for number in range(MOST)]
    problem(await own("POST", "/tasks", {"type": "t", "queue": "more"}), 507, "quota-exceeded")

    await own.good("DELETE", f"/tasks/{made[0]}")

    await own.enqueue(queue="more")
    problem(await own("POST", "/tasks", {"type": "t", "queue": "q0"}), 507, "quota-exceeded")


async def test_what_was_stored_before_a_restart_counts_once_there_is_too_much(
    http: httpx2.AsyncClient, api: ApiServer, keys: Keys, store: MemoryStore, bounded: Api
) -> None:
    app = App(store)
    for number in range(MOST):
        await app.client.send("t", tenant="acme", queue=f"q{number}")
    own = bounded.by(await key(keys, tenant="acme"))

    batch = {"tasks": [{"type": "t", "queue": f"new{number}"} for number in range(MOST + 1)]}
    problem(await own("POST", "/tasks/batch", batch), 507, "quota-exceeded")
    problem(await own("POST", "/tasks", {"type": "t", "queue": "new0"}), 507, "quota-exceeded")
    await own.enqueue(queue="q1")


async def types(store: MemoryStore) -> set[str]:
    return {task.type for task in (await store.find(Filter(), Page(limit=1_000))).items}


@pytest.mark.parametrize("bounds", [{}, {"queues": ["q"]}], ids=["tenant", "tenant-and-queue"])
async def test_a_tenant_enqueues_so_many_types(
    bounded: Api, keys: Keys, store: MemoryStore, bounds: dict[str, Any]
) -> None:
    own = bounded.by(await key(keys, tenant="acme", **bounds))
    for number in range(MOST):
        await own.enqueue(queue="q", type=f"t{number}")

    more, known = {"type": "more", "queue": "q"}, {"type": "t0", "queue": "q"}
    for path, body in (
        ("/tasks", more),
        ("/tasks", {**known, "next": [{**known, "next": [more]}]}),
        ("/tasks/batch", {"tasks": [known, more]}),
        ("/tasks/batch", {"tasks": [known], "then": more}),
    ):
        refused = await own("POST", path, body)
        detail = problem(refused, 507, "quota-exceeded")["detail"]
        assert "has tasks of 3 types" in detail
        assert "--max-types-per-tenant" in detail

    assert await types(store) == {"t0", "t1", "t2"}
    await own.enqueue(queue="q", type="t1", next=[{"type": "t2", "queue": "q"}])
    unbound = bounded.by(await key(keys))
    for number in range(2 * MOST):
        await unbound.enqueue(type=f"other{number}", tenant="acme")
