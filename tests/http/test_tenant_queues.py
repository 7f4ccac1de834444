"""How many queues, task types, and pairs of them a tenant may use, if its key is bound to it."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from tests.http.api_client import Api
from tests.http.problem import problem
from tests.servers.api import ApiServer
from windlass import App, Filter, Page
from windlass._client.keys import Keys
from windlass._http import auth
from windlass._http.auth import Caller
from windlass._http.bounds import tenant_queues
from windlass._http.bounds.tenant_queues import TenantBounds, TenantQueues
from windlass._http.web.load import LoadLimits, load_limits
from windlass._http.web.problems import Problem
from windlass._model.key import ApiKey, Scope
from windlass._stores.memory import MemoryStore
from windlass.testing.conformance.steps import a_task
from windlass.testing.faults import FaultyStore, Hold, scripted

MOST = 3
PAIRS = 6


@pytest.fixture
def bounded(
    http: httpx2.AsyncClient, api: ApiServer, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> Api:
    """A server with few queues and types for each tenant, which knows keys as soon as they are made."""
    monkeypatch.setattr(auth, "FRESH_FOR", 0.0)
    limits = LoadLimits(queues_per_tenant=MOST, types_per_tenant=MOST, queue_type_pairs_per_tenant=PAIRS)
    return Api(http, api.serve(store, limits=limits))


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
    monkeypatch.setattr(tenant_queues, "_STORED_AFTER", 0.0)
    own = bounded.by(await key(keys, tenant="acme"))
    made = [await own.enqueue(queue=f"q{number}") for number in range(MOST)]
    problem(await own("POST", "/tasks", {"type": "t", "queue": "more"}), 507, "quota-exceeded")

    await own.good("DELETE", f"/tasks/{made[0]}")

    await own.enqueue(queue="more")
    problem(await own("POST", "/tasks", {"type": "t", "queue": "q0"}), 507, "quota-exceeded")


async def test_what_was_stored_before_a_restart_counts(
    http: httpx2.AsyncClient, api: ApiServer, keys: Keys, store: MemoryStore, bounded: Api
) -> None:
    app = App(store)
    for number in range(MOST):
        await app.client.send("t", tenant="acme", queue=f"q{number}")
    own = bounded.by(await key(keys, tenant="acme"))

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


async def pairs(store: MemoryStore) -> set[tuple[str, str]]:
    found = await store.find(Filter(), Page(limit=1_000))
    return {(task.queue, task.type) for task in found.items}


@pytest.mark.parametrize("bounds", [{}, {"queues": ["q0", "q1", "q2"]}], ids=["tenant", "tenant-and-queues"])
async def test_a_tenant_enqueues_so_many_pairs_of_queue_and_type(
    bounded: Api, keys: Keys, store: MemoryStore, bounds: dict[str, Any]
) -> None:
    own = bounded.by(await key(keys, tenant="acme", **bounds))
    used = [(f"q{n // MOST}", f"t{n % MOST}") for n in range(PAIRS)]
    for queue, kind in used:
        await own.enqueue(queue=queue, type=kind)

    more, known = {"queue": "q2", "type": "t2"}, {"queue": "q0", "type": "t0"}
    for path, body in (
        ("/tasks", more),
        ("/tasks", {**known, "next": [{**known, "next": [more]}]}),
        ("/tasks/batch", {"tasks": [known, more]}),
        ("/tasks/batch", {"tasks": [known], "then": more}),
    ):
        refused = await own("POST", path, body)
        detail = problem(refused, 507, "quota-exceeded")["detail"]
        assert "has tasks of 6 pairs of queue and type" in detail
        assert "--max-queue-type-pairs-per-tenant" in detail
        assert int(refused.headers["retry-after"]) >= 1

    assert await pairs(store) == {*used}
    await own.enqueue(queue="q1", type="t1", next=[{"type": "t2", "queue": "q0"}])


def test_pairs_may_be_twice_as_many_as_queues_or_types() -> None:
    for given, most in (((), 20_000), ((50_000, 7), 100_000), ((7, 50_000), 100_000), ((7, 7, 9), 9)):
        assert load_limits(1_000, None, *given).queue_type_pairs_per_tenant == most


ACME = Caller(ApiKey(name="k", label="k", hash="", scopes=(), created_at=datetime.now(UTC), tenant="acme"))
BOUNDS = TenantBounds(queues=MOST, types=10, pairs=10)


async def uses(bound: TenantQueues, *queues: str) -> bool:
    """Whether it admits tasks in these queues. They are not stored."""
    try:
        await bound.admit(ACME, [a_task(queue=queue, tenant="acme") for queue in queues])
    except Problem as problem:
        return problem.status != 507
    return True


async def test_batches_at_once_stay_within_the_bound() -> None:
    bound = TenantQueues(MemoryStore(), BOUNDS)

    admitted = await asyncio.gather(*(uses(bound, f"{n}a", f"{n}b") for n in range(4)))

    assert sorted(admitted) == [False, False, False, True]


async def test_tenants_seen_for_the_first_time_by_several_requests_are_counted_once() -> None:
    store, hold = MemoryStore(), Hold()
    await store.enqueue([a_task(queue=queue, tenant="acme") for queue in ("a", "b")])
    bound = TenantQueues(FaultyStore(store, scripted(count=[hold])), BOUNDS)

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(uses(bound, queue)) for queue in ("c", "d", "a")]
        await hold.reached()
        assert not any(one.done() for one in asked)
        hold.let_go()

    assert [one.result() for one in asked] == [True, False, True]


async def test_what_is_admitted_while_the_store_is_counted_counts() -> None:
    store, hold = MemoryStore(), Hold()
    now = [0.0]
    bound = TenantQueues(FaultyStore(store, scripted(count=[None, hold])), BOUNDS, clock=lambda: now[0])
    await store.enqueue([a_task(queue=queue, tenant="acme") for queue in ("a", "b")])
    assert await uses(bound, "a")
    now[0] = 100.0

    async with asyncio.TaskGroup() as group:
        counted = group.create_task(uses(bound, "x", "y"))
        await hold.reached()
        assert await uses(bound, "c")
        hold.let_go()

    assert not counted.result()
    assert not await uses(bound, "x")
    assert await uses(bound, "a", "b", "c")


async def test_what_was_admitted_and_not_stored_is_forgotten_after_a_minute() -> None:
    now = [0.0]
    bound = TenantQueues(MemoryStore(), BOUNDS, clock=lambda: now[0])
    assert await uses(bound, "a", "b", "c")

    now[0] = 59.0
    assert not await uses(bound, "d")
    now[0] = 65.0
    assert await uses(bound, "d")
    assert await uses(bound, "e", "f")
    assert not await uses(bound, "a")
