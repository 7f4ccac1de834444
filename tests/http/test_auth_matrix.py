"""Authorisation: every operation with every kind of key and every bound; others' data never shows.

Derived from OPERATIONS: a new operation must be added to ASKED here, or the first test fails.
"""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import httpx2
import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

from tests.http.api_client import Api
from tests.http.problem import assert_safe, problem
from tests.loops.workers import Watch, eventually
from tests.servers.api import ApiServer
from windlass import App
from windlass._client.keys import Keys
from windlass._http import auth as access
from windlass._http.app import OPERATIONS
from windlass._http.operation import Operation
from windlass._ids import new_id
from windlass._model.filter import By, Filter, Page
from windlass._model.key import Scope
from windlass._model.record import Archive, Session
from windlass._policy import api_key
from windlass._stores.memory import MemoryStore
from windlass.testing.faults import FaultyStore

NAMES = {operation.name: operation for operation in OPERATIONS}
OPEN = {"healthz", "readyz", "openapi_document", "docs_page"}
EVENTS = "text/event-stream"
WORKER = {"name": "w", "queues": ["mail"]}
ALL: dict[str, Any] = {"where": {}, "why": "x"}


class Asking(Struct, frozen=True, kw_only=True):
    """How an operation is asked: with values for its path that are there, a query and a body."""

    query: str = ""
    body: Any = None
    kind: str = "application/json"


ASKED: dict[str, Asking] = {
    "enqueue": Asking(body={"type": "t", "queue": "mail"}),
    "enqueue_batch": Asking(body={"tasks": [{"type": "t", "queue": "mail"}]}),
    "enqueue_stream": Asking(body=b'{"type":"t","queue":"mail"}\n', kind="application/x-ndjson"),
    "list_tasks": Asking(),
    "count_tasks": Asking(),
    "list_chains": Asking(),
    "export_tasks": Asking(),
    "get_archive": Asking(),
    "stop_archiving": Asking(),
    "get_task": Asking(),
    "list_attempts": Asking(),
    "cancel_task": Asking(),
    "replay_task": Asking(),
    "cancel_tasks": Asking(body=ALL),
    "list_dead": Asking(),
    "list_failures": Asking(),
    "replay_dead": Asking(body=ALL),
    "discard_dead": Asking(body=ALL),
    "discard_dead_letter": Asking(query="?why=x"),
    "list_queues": Asking(),
    "get_queue": Asking(),
    "list_queue_types": Asking(),
    "list_queue_tenants": Asking(),
    "set_queue": Asking(body={"fairness": "round_robin"}),
    "pause_queue": Asking(),
    "resume_queue": Asking(),
    "remove_queue": Asking(),
    "list_limits": Asking(),
    "get_limit": Asking(),
    "put_limit": Asking(body={"running": 1, "all": True}),
    "change_limit": Asking(body={"running": 1}),
    "remove_limit": Asking(),
    "list_quotas": Asking(),
    "get_quota": Asking(),
    "put_quota": Asking(body={"tasks": 10}),
    "remove_quota": Asking(),
    "list_endpoints": Asking(),
    "enable_endpoint": Asking(),
    "list_alerts": Asking(),
    "get_alert": Asking(),
    "put_alert": Asking(body={"count": 1}),
    "remove_alert": Asking(),
    "list_schedules": Asking(),
    "get_schedule": Asking(),
    "list_ticks": Asking(),
    "list_past_ticks": Asking(),
    "put_schedule": Asking(body={"type": "t", "rule": "1h"}),
    "change_schedule": Asking(body={"rule": "2h"}),
    "remove_schedule": Asking(),
    "pause_schedule": Asking(),
    "resume_schedule": Asking(),
    "trigger_schedule": Asking(),
    "list_types": Asking(),
    "remove_type": Asking(),
    "list_workers": Asking(),
    "list_audit": Asking(),
    "list_keys": Asking(),
    "create_key": Asking(body={"label": "x", "scopes": ["read"]}),
    "rotate_key": Asking(),
    "revoke_key": Asking(),
    "list_logins": Asking(),
    "sign_out_key": Asking(),
    "get_overview": Asking(),
    "get_history": Asking(),
    "list_type_history": Asking(),
    "watch_overview": Asking(),
    "watch_task": Asking(),
    "get_metrics": Asking(),
    "open_session": Asking(body=WORKER),
    "end_session": Asking(),
    "heartbeat": Asking(body={"session": "s", "worker": WORKER}),
    "claim": Asking(body={"session": "s", "queues": ["mail"], "number": 1}),
    "settle": Asking(body={"tasks": [{"id": new_id(), "fence": 1, "outcome": "returned"}]}),
    "get_check": Asking(),
    "healthz": Asking(),
    "readyz": Asking(),
    "openapi_document": Asking(),
    "docs_page": Asking(),
}

BOUNDS: dict[str, dict[str, Any]] = {
    "tenant": {"tenant": "acme"},
    "queue": {"queues": ["mail"]},
    "both": {"tenant": "acme", "queues": ["mail"]},
}


def test_every_operation_is_here() -> None:
    assert set(ASKED) == set(NAMES)
    assert len(NAMES) == len(OPERATIONS)
    assert {one.name for one in OPERATIONS if one.scope is None} == OPEN


class World:
    """A store with tasks of ours and of others, and the API over it."""

    def __init__(self, api: ApiServer, http: httpx2.AsyncClient) -> None:
        self.watch = Watch()
        self.store = MemoryStore()
        self.keys = Keys(self.store)
        self.http = http
        served = FaultyStore(self.store, self.watch)
        self.url = api.serve(served)
        self.own: dict[str, str] = {}
        self.foreign: dict[str, str] = {}
        self.app = App(self.store)

    async def fill(self) -> None:
        """Ours are acme's in mail; the others' say FOREIGN wherever something can be said."""
        whole = Api(self.http, self.url, (await self.keys.create("all", scopes=[Scope.ADMIN])).text)
        theirs = {"type": "FOREIGN.t", "payload": {"x": "FOREIGN"}, "idempotency_key": "FOREIGN"}
        for name, at in (
            ("tenant", {"tenant": "FOREIGN-bob", "queue": "mail"}),
            ("queue", {"tenant": "acme", "queue": "FOREIGN-other"}),
        ):
            self.foreign[name] = await whole.enqueue(**theirs, **at)
            self.foreign[f"dead {name}"] = await whole.die(**theirs | {"idempotency_key": "FOREIGN2"}, **at)
        follows = [
            {"type": "FOREIGN.t", "tenant": "FOREIGN-bob", "queue": "mail", "payload": {"x": "FOREIGN"}},
            {"type": "FOREIGN.t", "tenant": "acme", "queue": "FOREIGN-other"},
        ]
        self.own["ready"] = await whole.enqueue(tenant="acme", queue="mail", next=follows)
        self.own["dead"] = await whole.die(tenant="acme", queue="mail")
        for session in (await self.store.records(Session, Page(limit=100))).items:
            await self.store.remove(Session, session.id)
        self.session = await whole.session("mail")
        operator = self.app.operator.acting_as(By(who="FOREIGN"))
        await operator.limits.set("n", create=True, all=True, running=5)
        for tenant in ("acme", "FOREIGN-bob", "*"):
            await operator.quotas.set(tenant, tasks=1_000)
        await operator.endpoints.disable("FOREIGN-hook", tenant="FOREIGN-bob", task_id=self.foreign["tenant"])
        await operator.alerts.add("n", queue="FOREIGN-other")
        await self.store.put(Archive(directory="FOREIGN"))
        await operator.set_queue("mail", fairness="random")
        await operator.set_queue("FOREIGN-set", stripes=2, create=True)
        made = await operator.schedules.make("n", "t", "1h", b"{}")
        await operator.schedules.put(made)
        self.watch.calls.clear()

    async def ask(
        self,
        name: str,
        key: str | None,
        *,
        task: str | None = None,
        queue: str = "mail",
        **changes: Any,
    ) -> httpx2.Response:
        """Ask an operation; of a stream that goes on, what comes first."""
        operation, asking = NAMES[name], replace(ASKED[name], **changes)
        path = operation.path.replace("{id}", task or self.own["ready"]).replace("{queue}", queue)
        path = path.replace("{key}", "0" * 12).replace("{tenant}", "acme")
        path = path.replace("{name}", self.session if "sessions" in path else "n")
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        if isinstance(asking.body, bytes):
            sent: dict[str, Any] = {"content": asking.body}
            headers["content-type"] = asking.kind
        else:
            sent = {"json": asking.body} if asking.body is not None else {}
        url = f"{self.url}{path}{asking.query}"
        async with (
            asyncio.timeout(10),
            self.http.stream(operation.method, url, headers=headers, **sent) as response,
        ):
            if response.headers.get("content-type", "").startswith(EVENTS):
                response._content = await anext(response.aiter_bytes())
            else:
                await response.aread()
        if name not in ("docs_page", "openapi_document"):
            assert_safe(response)
        return response

    async def uses_are_noted(self) -> bool:
        """Whether the server has noted, beside the requests, that the last key created was used."""
        keys = await self.keys.list()
        return max(keys, key=lambda key: key.created_at).last_used_at is not None

    async def snapshot(self) -> bytes:
        """The tasks of others, as they are."""
        found = await self.store.find(Filter(ids=tuple(self.foreign.values())), Page(limit=100))
        return msgspec.json.encode(found.items)


@pytest.fixture
async def world(api: ApiServer, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(access, "FRESH_FOR", 0.0)  # Keys are known as soon as they are made.
    monkeypatch.setattr(access, "MISSING_FOR", 0.0)
    world = World(api, http)
    await world.fill()
    return world


def documented(operation: Operation) -> set[int]:
    return {operation.status, *operation.statuses}


async def test_without_a_good_key_nothing_is_told(world: World) -> None:
    good = await world.keys.create("k", scopes=[Scope.ADMIN])
    expired = await world.keys.create("old", scopes=[Scope.ADMIN])
    await world.store.put(replace(expired.key, expires_at=expired.key.created_at - timedelta(seconds=1)))
    revoked = await world.keys.create("gone", scopes=[Scope.ADMIN])
    await world.keys.revoke(revoked.key.name)
    never = api_key.new_key(b"\x07" * 48).text
    told = set()
    for name in NAMES:
        for key in (None, good.text[:-1], expired.text, revoked.text, never):
            response = await world.ask(name, key)
            if name in OPEN:
                assert response.status_code == 200, name
                continue
            problem(response, 401, "unauthorized")
            if key is not None:
                told.add(response.content)
    assert len(told) == 1


ALLOWS = {Scope.ADMIN: (*Scope,), Scope.OBSERVE: (Scope.OBSERVE, Scope.READ)}
COMES_FROM_PAYLOADS = {"list_endpoints"}


@pytest.mark.parametrize("scope", Scope)
async def test_each_scope_allows_its_own(scope: Scope, world: World) -> None:
    key = (await world.keys.create("k", scopes=[scope])).text
    for name, operation in NAMES.items():
        response = await world.ask(name, key)
        if scope is Scope.OBSERVE and name in COMES_FROM_PAYLOADS:
            problem(response, 403, "forbidden")
        elif operation.scope is None or operation.scope in ALLOWS.get(scope, (scope,)):
            assert response.status_code in documented(operation), (name, response.text)
        else:
            found = problem(response, 403, "forbidden")
            assert operation.scope is not None
            assert found["detail"] == f"this key lacks the scope {operation.scope.value}"


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("scope", Scope)
async def test_a_bound_key_is_allowed_no_more(scope: Scope, bounds: str, world: World) -> None:
    key = (await world.keys.create("k", scopes=[scope], **BOUNDS[bounds])).text
    for name, operation in NAMES.items():
        response = await world.ask(name, key)
        if operation.scope is None:
            assert response.status_code == 200
        elif operation.scope not in ALLOWS.get(scope, (scope,)) or not operation.bound:
            problem(response, 403, "forbidden")
        elif "tenant" in BOUNDS[bounds] and name in ONE_TENANT_MAY_NOT:
            assert response.status_code in (403, 410), (name, response.text)
        elif "queues" in BOUNDS[bounds] and name in SOME_QUEUES_MAY_NOT:
            problem(response, 403, "forbidden")
        else:
            assert response.status_code in documented(operation), (name, response.text)


ONE_TENANT_MAY_NOT = {
    "open_session",
    "end_session",
    "heartbeat",
    "claim",
    "settle",
    "set_queue",
    "pause_queue",
    "resume_queue",
    "remove_queue",
    "get_history",
    "list_type_history",
}
"""A worker takes whose turn it is, a queue is everybody's, and history is not kept by tenant."""

SOME_QUEUES_MAY_NOT = {"list_quotas", "get_quota"}
"""What a tenant uses tells of its other queues."""


@pytest.mark.parametrize("bounds", BOUNDS)
async def test_nothing_of_others_shows_and_nothing_of_theirs_changes(bounds: str, world: World) -> None:
    key = (await world.keys.create("k", scopes=[Scope.ADMIN], **BOUNDS[bounds])).text
    hidden = [world.foreign[one] for one in world.foreign if bounds == "both" or bounds in one]
    before = await world.snapshot()
    for name in NAMES:
        response = await world.ask(name, key)
        if name in OPEN:
            continue
        for word in ("FOREIGN-bob", *hidden) if bounds != "queue" else ("FOREIGN-other", *hidden):
            assert word not in response.text, (name, response.text)
        if bounds == "both":
            assert "FOREIGN" not in response.text, (name, response.text)
    after = await world.snapshot()
    if bounds == "both":
        assert after == before
    for one in hidden:
        assert one.encode() in after


@pytest.mark.parametrize("bounds", BOUNDS)
async def test_anothers_task_is_as_if_it_were_not_there(bounds: str, world: World) -> None:
    """The same answer but for the id, and the same questions to the store: not even time tells."""
    key = (await world.keys.create("k", scopes=[Scope.ADMIN], **BOUNDS[bounds])).text
    theirs = [world.foreign[one] for one in world.foreign if bounds == "both" or bounds in one]
    await world.ask("list_tasks", key)
    await eventually(world.uses_are_noted)

    async def asked(name: str, task: str) -> tuple[int, str, Counter[str]]:
        world.watch.calls.clear()
        response = await world.ask(name, key, task=task)
        return response.status_code, response.text.replace(task, "ID"), Counter(world.watch.calls)

    for name, operation in NAMES.items():
        if "{id}" not in operation.path:
            continue
        missing = await asked(name, new_id())
        assert missing[0] == 404, name
        for task in theirs:
            assert await asked(name, task) == missing, name


async def test_anothers_queue_is_as_if_it_were_not_there(world: World) -> None:
    for bounds in ("queue", "both"):
        key = (await world.keys.create("k", scopes=[Scope.ADMIN], **BOUNDS[bounds])).text
        for name, operation in NAMES.items():
            if "{queue}" in operation.path:
                answers = {
                    (response.status_code, response.text.replace(queue, "Q"))
                    for queue in ("FOREIGN-other", "FOREIGN-set", "nowhere")
                    for response in [await world.ask(name, key, queue=queue)]
                }
                assert len(answers) == 1, (name, answers)
                assert answers.pop()[0] in (403, 404)


@pytest.mark.parametrize("bounds", BOUNDS)
async def test_cursors_and_filters_do_not_reach_beyond(bounds: str, world: World) -> None:
    own = Api(
        world.http, world.url, (await world.keys.create("k", scopes=[Scope.READ], **BOUNDS[bounds])).text
    )
    hidden = {world.foreign[one] for one in world.foreign if bounds == "both" or bounds in one}
    queries = [
        "?limit=1",
        "?tenant=FOREIGN-bob&tenant=acme",
        "?queue=FOREIGN-other&queue=mail",
        "?type=FOREIGN.t",
    ]
    queries += ["?idempotency_key=FOREIGN", "?error=broke", "?" + "&".join(f"id={one}" for one in hidden)]
    queries += [f"?root={one}" for one in hidden] + [f"?cursor={one}&limit=1" for one in hidden]
    for path in ("/tasks", "/dead"):
        for query in queries:
            seen: set[str] = set()
            at: str | None = f"{path}{query}"
            while at is not None:
                response = await own("GET", at)
                page = response.json()
                seen |= {one["id"] for one in page["items"]} | {page["cursor"]}
                link = response.headers.get("link")
                at = None if link is None else link[1:].partition(">")[0]
            assert not seen & hidden, query


async def test_what_is_done_to_many_keeps_within_the_bounds(world: World) -> None:
    key = (await world.keys.create("k", scopes=[Scope.OPERATE], **BOUNDS["both"])).text
    own = Api(world.http, world.url, key)
    before = await world.snapshot()
    everything = {"where": {"id": [*world.foreign.values(), *world.own.values()]}, "why": "x"}
    for path, number in (("/tasks/cancel", 1), ("/dead/replay", 1), ("/dead/discard", 0)):
        for body in (everything | {"dry_run": True}, everything, everything):
            done = (await own.good("POST", path, body))["number"]
            assert done <= number
    assert await world.snapshot() == before
