"""Every change by a person leaves exactly one line in the audit log: over the API and the store protocol.

Both tables are checked against the code: a new operation or verb must be added here.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from tests.foreign_input import RECORDS, task
from tests.http.api_client import Api
from windlass._client.endpoints import Endpoints
from windlass._client.keys import Keys
from windlass._http.app import OPERATIONS
from windlass._ids import new_id
from windlass._model.filter import Page
from windlass._model.key import Login, Scope
from windlass._model.lease import Heartbeat
from windlass._model.options import DeclaredType
from windlass._model.record import ARCHIVE_NAME, Archive, Audit, Worker
from windlass._store.messages import REQUESTS
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore

_MINUTE = timedelta(minutes=1)

Prepare = Callable[[Api, MemoryStore], Awaitable[str]]
"""Makes what is changed; returns its name."""

NOT_A_CHANGE = {
    **dict.fromkeys(["enqueue", "enqueue_batch", "enqueue_stream"], "the task says by whom"),
    **dict.fromkeys(["open_session", "end_session", "heartbeat", "claim", "settle"], "a worker's own"),
}
NOT_A_PERSONS = {
    **dict.fromkeys(["about", "find", "count", "ended", "attempts", "records", "check"], "changes nothing"),
    "enqueue": "the task says by whom",
    **dict.fromkeys(["heartbeat", "claim", "settle", "once"], "a worker's own"),
    **dict.fromkeys(["lead", "promote", "rescue"], "a keeper's own"),
}


async def nothing(_: Api, __: MemoryStore) -> str:
    return "x"


async def pending(api: Api, _: MemoryStore) -> str:
    return await api.enqueue()


async def running(api: Api, _: MemoryStore) -> str:
    made = await api.enqueue()
    await api.claim(await api.session(), 1)
    return made


async def dead(api: Api, _: MemoryStore) -> str:
    made = await api.enqueue()
    (claimed,) = await api.claim(await api.session(), 1)
    await api.settle({"id": made, "fence": claimed["fence"], "outcome": "failed", "fatal": True})
    return made


async def queue(api: Api, _: MemoryStore) -> str:
    await api.good("PATCH", "/queues/x?create=true", {"stripes": 2})
    return "x"


async def limit(api: Api, _: MemoryStore) -> str:
    await api.good("PUT", "/limits/x", {"running": 1, "all": True})
    return "x"


async def schedule(api: Api, _: MemoryStore) -> str:
    await api.good("PUT", "/schedules/x", {"type": "t", "rule": "1h"})
    return "x"


async def quota(api: Api, _: MemoryStore) -> str:
    await api.good("PUT", "/quotas/x", {"tasks": 1})
    return "x"


async def endpoint(_: Api, store: MemoryStore) -> str:
    return (await Endpoints(store).disable("https://example.org", task_id=new_id())).name


async def paused_queue(api: Api, _: MemoryStore) -> str:
    await api.good("POST", "/queues/x/pause?create=true")
    return "x"


async def paused_schedule(api: Api, store: MemoryStore) -> str:
    await schedule(api, store)
    await api.good("POST", "/schedules/x/pause")
    return "x"


async def alert(api: Api, _: MemoryStore) -> str:
    await api.good("PUT", "/alerts/x", {"count": 1})
    return "x"


async def declared(_: Api, store: MemoryStore) -> str:
    await store.put(DeclaredType(name="x"))
    return "x"


async def archive(_: Api, store: MemoryStore) -> str:
    await store.put(Archive())
    return "history"


async def key(api: Api, _: MemoryStore) -> str:
    made: str = (await api.good("POST", "/keys", {"label": "x", "scopes": ["read"]}))["id"]
    return made


async def login(api: Api, store: MemoryStore) -> str:
    made = await key(api, store)
    at = await store.now()
    await store.put(Login(name="0" * 64, key=made, secret="0" * 64, created_at=at, expires_at=at))
    return made


ALL: dict[str, Any] = {"where": {}, "why": "cleaning"}
WHY = "?why=cleaning"
CHANGES: dict[str, tuple[Prepare, str, Any, str]] = {
    "cancel_task": (pending, WHY, None, "cancel"),
    "replay_task": (dead, "", {"why": "cleaning"}, "replay"),
    "cancel_tasks": (running, "", ALL, "cancel"),
    "replay_dead": (dead, "", ALL, "replay"),
    "discard_dead": (dead, "", ALL, "discard"),
    "discard_dead_letter": (dead, WHY, None, "discard"),
    "set_queue": (nothing, "?create=true", {"stripes": 2, "why": "cleaning"}, "set"),
    "pause_queue": (nothing, f"{WHY}&create=true", None, "pause"),
    "resume_queue": (paused_queue, WHY, None, "resume"),
    "remove_queue": (queue, WHY, None, "remove"),
    "put_limit": (nothing, "", {"running": 1, "all": True, "why": "cleaning"}, "create"),
    "change_limit": (limit, "", {"running": 2, "why": "cleaning"}, "set"),
    "remove_limit": (limit, WHY, None, "remove"),
    "put_quota": (nothing, "", {"tasks": 1, "why": "cleaning"}, "create"),
    "remove_quota": (quota, WHY, None, "remove"),
    "enable_endpoint": (endpoint, WHY, None, "remove"),
    "put_schedule": (nothing, "", {"type": "t", "rule": "1h", "why": "cleaning"}, "create"),
    "change_schedule": (schedule, "", {"rule": "3h", "why": "cleaning"}, "set"),
    "remove_schedule": (schedule, WHY, None, "remove"),
    "pause_schedule": (schedule, WHY, None, "pause"),
    "resume_schedule": (paused_schedule, WHY, None, "resume"),
    "trigger_schedule": (schedule, WHY, None, "trigger"),
    "put_alert": (nothing, "", {"count": 1, "why": "cleaning"}, "create"),
    "remove_alert": (alert, WHY, None, "remove"),
    "remove_type": (declared, WHY, None, "remove"),
    "stop_archiving": (archive, WHY, None, "remove"),
    "create_key": (nothing, "", {"label": "x", "scopes": ["read"], "why": "cleaning"}, "create"),
    "rotate_key": (key, "", {"why": "cleaning"}, "rotate"),
    "revoke_key": (key, WHY, None, "revoke"),
    "sign_out_key": (login, WHY, None, "remove"),
}


async def audits(store: Store) -> list[Audit]:
    return [*(await store.records(Audit, Page(limit=1_000))).items]


def test_every_operation_that_changes_something_is_here() -> None:
    unsafe = {one.name for one in OPERATIONS if one.method != "GET"}
    assert unsafe == CHANGES.keys() | NOT_A_CHANGE.keys()


@pytest.mark.parametrize("name", CHANGES)
async def test_an_operation_leaves_one_line(
    name: str, http: httpx2.AsyncClient, url: str, keys: Keys, store: MemoryStore
) -> None:
    made = await keys.create("ann", scopes=[Scope.ADMIN])
    api = Api(http, url, made.text)
    (operation,) = [one for one in OPERATIONS if one.name == name]
    prepare, query, body, action = CHANGES[name]
    named = await prepare(api, store)
    before = await audits(store)
    path = operation.path
    for part in ("{id}", "{name}", "{queue}", "{key}", "{tenant}"):
        path = path.replace(part, named)
    await api.good(operation.method, f"{path}{query}", body)
    (line,) = [one for one in await audits(store) if one not in before]
    assert (line.who, line.why, line.action) == (f"key {made.key.name} (ann)", "cleaning", action)
    assert line.task_id is not None or line.subject


BY = {"who": "ann"}


async def session(_: Api, store: MemoryStore) -> str:
    beat = Heartbeat(session="x", worker=Worker(name="w"), lease_for=_MINUTE, opening=True)
    await store.heartbeat(beat)
    return "x"


VERBS: dict[str, dict[str, tuple[Prepare, Callable[[str], dict[str, Any]], str]]] = {
    "apply": {
        "cancel": (pending, lambda one: _applied("cancel", one), "cancel"),
        "replay": (dead, lambda one: _applied("replay", one), "replay"),
        "discard": (dead, lambda one: _applied("discard", one), "discard"),
        "trigger": (pending, lambda one: _applied("trigger", one, schedule="s"), "trigger"),
    },
    "prune": {"": (dead, lambda _: {"default": {"dead": 0}, "limit": 10}, "prune")},
    "put": {
        kind: (nothing, lambda _, kind=kind: {"kind": kind, "record": RECORDS[kind][0]}, "create|set|resume")
        for kind in RECORDS
        if kind not in ("session", "audit", "usage")
    },
    "remove": {
        "session": (session, lambda one: {"kind": "session", "name": one}, "remove"),
        "limit": (limit, lambda one: {"kind": "limit", "name": one}, "remove"),
        "type": (declared, lambda one: {"kind": "type", "name": one}, "remove"),
        "archive": (archive, lambda one: {"kind": "archive", "name": one}, "remove"),
        "alert": (alert, lambda one: {"kind": "alert", "name": one}, "remove"),
        "key": (key, lambda one: {"kind": "key", "name": one}, "remove"),
        "login": (login, lambda _: {"kind": "login", "name": "0" * 64}, "remove"),
    },
}


def _applied(kind: str, task_id: str, **more: Any) -> dict[str, Any]:
    return {"action": {"kind": kind, "by": BY, **more}, "where": {"ids": [task_id]}, "limit": 1}


def test_every_verb_that_changes_something_is_here() -> None:
    assert REQUESTS.keys() == VERBS.keys() | NOT_A_PERSONS.keys()


@pytest.mark.parametrize(("verb", "case"), [(verb, case) for verb, cases in VERBS.items() for case in cases])
async def test_a_verb_of_a_person_leaves_one_line(
    verb: str, case: str, http: httpx2.AsyncClient, url: str, keys: Keys, store: MemoryStore
) -> None:
    """Of a key without the scope work, even if the request names nobody."""
    admin = await keys.create("root", scopes=[Scope.ADMIN])
    made = await keys.create("ann", scopes=[Scope.OPERATE, Scope.READ])
    prepare, message, action = VERBS[verb][case]
    named = await prepare(Api(http, url, admin.text), store)
    before = await audits(store)
    key = admin if case in ("key", "login") else made
    await Api(http, url, key.text).good("POST", f"/store/{verb}", message(named))
    (line,) = [one for one in await audits(store) if one not in before]
    assert line.who.startswith(f"key {key.key.name} ({key.key.label})")
    assert line.action in action.split("|")


async def test_what_workers_and_keepers_keep_leaves_none(
    http: httpx2.AsyncClient, url: str, keys: Keys, store: MemoryStore
) -> None:
    worker = await keys.create("worker", scopes=[Scope.WORK, Scope.OPERATE, Scope.READ, Scope.ENQUEUE])
    api = Api(http, url, worker.text)
    for kind in ("tick", "alarm", "archive", "declaration", "type"):
        await api.good("POST", "/store/put", {"kind": kind, "record": RECORDS[kind][0]})
        await api.good(
            "POST", "/store/remove", {"kind": kind, "name": RECORDS[kind][0].get("name", ARCHIVE_NAME)}
        )
    await session(api, store)
    await api.good("POST", "/store/remove", {"kind": "session", "name": "x"})
    await api.good("POST", "/store/prune", {"default": {}, "limit": 10})
    await api.good("POST", "/store/apply", {"action": {"kind": "expire"}, "where": {}, "limit": 10})
    await api.good("POST", "/store/enqueue", {"batch": [task()]})
    assert await audits(store) == []


async def test_only_a_keeper_expires_tasks(http: httpx2.AsyncClient, url: str, keys: Keys) -> None:
    person = await keys.create("ann", scopes=[Scope.OPERATE, Scope.READ])
    asked = {"action": {"kind": "expire"}, "where": {"ids": [new_id()]}, "limit": 10}
    response = await Api(http, url, person.text)("POST", "/store/apply", asked)
    assert response.status_code == 403
