"""A key with the scope `observe` gets no payload, result or text, in whatever way it asks.

An ordinary key gets all of them in the same answers: see `test_an_ordinary_key_sees_them`.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from tests.examples import sample
from tests.http.problem import problem
from tests.security.observe_probes import Answer, actions, commands, operations, screens, verbs
from tests.security.observe_world import OPERATOR, WAYS, World, canary, hits
from tests.servers.api import ApiServer
from tests.servers.postgres import Postgres
from tests.stores.schemas import Schemas
from windlass import App, Filter, Page
from windlass._dashboard.access import caller_with
from windlass._http import auth as access
from windlass._http.bounds.quotas import QuotaStore
from windlass._http.masked_store import MaskedStore
from windlass._http.web.refusal import Refusal
from windlass._model.attempt import Attempt
from windlass._model.key import ApiKey, Login, Scope
from windlass._model.limit import Usage
from windlass._model.record import Audit, DisabledEndpoint
from windlass._model.schedule import Schedule
from windlass._model.state import State
from windlass._model.task import Task
from windlass._model.transition import TaskTransition
from windlass._policy.secrets.whole import (
    SEEN,
    whole_attempt,
    whole_audit,
    whole_schedule,
    whole_task,
    whole_transition,
)
from windlass._store import messages
from windlass._store.json_codec import encode
from windlass._store.protocol import Store, all_records
from windlass._stores.memory import MemoryStore
from windlass._stores.sqlite import SQLiteStore
from windlass.errors import InvalidOption
from windlass.http import Access

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture(params=sample(["memory"], ["sqlite", "postgres"]))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store of each kind."""
    with ExitStack() as lent:
        if request.param == "memory":
            store: Store = MemoryStore()
        elif request.param == "sqlite":
            store = SQLiteStore(tmp_path / "windlass.db")
        else:
            postgres: Postgres = request.getfixturevalue("postgres_newest")
            schemas = lent.enter_context(Schemas(postgres.url, prefix="observe"))
            store = lent.enter_context(schemas.lent())(None)
        await store.open()
        yield store
        await store.close()


@pytest.fixture
async def world(server: ApiServer, store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(access, "FRESH_FOR", 0.0)  # keys are known as soon as they are made
    monkeypatch.setattr(access, "MISSING_FOR", 0.0)
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=30) as http:
        world = World(server, store, http)
        await world.fill()
        yield world
        await world.close()


def leaks(world: World, answers: Iterable[Answer]) -> dict[str, set[str]]:
    """What came through, by what was asked."""
    found: dict[str, set[str]] = {}
    for one in answers:
        told = hits(one.text) | {text for text in world.derived if text in one.text and text not in one.asked}
        if told:
            found[one.asked] = told | found.get(one.asked, set())
    return found


async def all_of(world: World, key: str) -> list[Answer]:
    """The answers to every way to ask over HTTP; what changes something comes last."""
    person = await world.signed_in(key)
    answers = [one async for one in screens(world, person)]
    for change in (False, True):
        answers += [one async for one in operations(world, key, change=change)]
        answers += [one async for one in verbs(world, key, change=change)]
    return answers


# -- every way to ask --------------------------------------------------------------------------------


async def test_no_answer_has_one(world: World) -> None:
    answers = await all_of(world, "operator")

    assert leaks(world, answers) == {}
    assert len(answers) >= 200
    assert [one for one in answers if one.status >= 500] == []
    assert sum(one.status < 300 for one in answers) > len(answers) / 2


async def test_an_ordinary_key_sees_them(world: World) -> None:
    """So silence means something: the same answers have each of them."""
    found = leaks(world, await all_of(world, "reader"))

    assert set(WAYS) <= set().union(*found.values())
    assert len(found) >= 50


@pytest.mark.parametrize("scopes", sample([OPERATOR], [(("observe",),)]))
async def test_no_page_of_a_mounted_dashboard_has_one(world: World, scopes: tuple[str, ...]) -> None:
    person = world.resolved(*scopes)
    answers = [one async for one in screens(world, person)]
    if "operate" in scopes:  # others find no form
        answers += [one async for one in actions(world, person)]

    assert leaks(world, answers) == {}
    assert [one for one in answers if one.status >= 500] == []
    assert sum(one.status == 200 for one in answers) >= 50


@pytest.mark.more
async def test_no_command_prints_one(world: World) -> None:
    answers = await asyncio.to_thread(lambda: [*commands(world, "operator")])

    assert leaks(world, answers) == {}
    assert sum(one.status == 0 for one in answers) >= 20


@pytest.mark.parametrize("store", ["memory"], indirect=True)
async def test_of_a_damaged_task_nothing_shows(world: World) -> None:
    await world.damage()
    answers = [one async for one in operations(world, "operator", change=False)]

    assert leaks(world, answers) == {}
    assert any("Damaged" in one.text for one in answers)


# -- guesses -----------------------------------------------------------------------------------------

READ = ("/tasks", "/tasks/counts", "/dead", "/dead/failures", "/export")
ACTED = ("/tasks/cancel", "/dead/replay", "/dead/discard")


def guesses(world: World) -> dict[str, tuple[str, str]]:
    """A right guess and a wrong one, for each criterion that could tell."""
    failure = next(one.failure for one in world.tasks.values() if one.failure)
    return {
        "error": (canary("error"), "nothing"),
        "idempotency_key": (canary("key"), "nothing"),
        "failure": (failure, "0" * 16),
    }


async def test_no_search_tells_a_right_guess_from_a_wrong_one(world: World) -> None:
    api, reader = world.api("operator"), world.api("reader")
    for criterion, pair in guesses(world).items():
        for path in READ:
            asked = [await api("GET", f"{path}?{criterion}={quote(one)}") for one in pair]
            assert told(asked[0]) == told(asked[1]), (criterion, path)
        for path in ACTED:
            for dry_run in (True, False):
                asked = []
                for one in pair:
                    where = {criterion: [one] if criterion == "failure" else one}
                    asked.append(await api("POST", path, {"where": where, "dry_run": dry_run, "why": "x"}))
                assert told(asked[0]) == told(asked[1]), (criterion, path)
        right, wrong = [await reader("GET", f"/tasks?{criterion}={quote(one)}") for one in pair]
        assert told(right) != told(wrong)


def told(response: httpx2.Response) -> tuple[int, str]:
    """What an answer tells, but for the tokens of a rate: they come back between two answers."""
    return response.status_code, re.sub(r'"tokens":[\d.]+', '"tokens":0', response.text)


async def test_no_verb_tells_a_right_guess_from_a_wrong_one(world: World) -> None:
    """Of what is compared and set, of the digest of a URL, of a cursor among values of a limit."""
    api = world.api("operator")
    (stored,) = [one for one in await all_records(world.store, Schedule) if one.name == "nightly"]
    wrong = replace(stored, payload=b'{"x": "nothing"}')
    usages = await all_records(world.store, Usage)
    last = max(one.name for one in usages)
    pairs: list[tuple[messages.Request[Any], messages.Request[Any]]] = [
        (put(stored, stored), put(wrong, wrong)),
        (put(stored, None), put(wrong, None)),
        (put(stored, UNSET), put(wrong, UNSET)),
        (messages.RemoveRequest("endpoint", world.endpoint), messages.RemoveRequest("endpoint", "0" * 16)),
        (usages_after(last), usages_after(last[:-1])),
        (
            messages.FindRequest(Filter(error=canary("error")), Page()),
            messages.FindRequest(Filter(error="x"), Page()),
        ),
    ]
    for requests in pairs:
        asked = [await api("POST", f"/store/{one.verb}", encode(one)) for one in requests]
        assert told(asked[0]) == told(asked[1]), requests[0].verb
    assert stored in await all_records(world.store, Schedule)


def put(schedule: Schedule, expected: Schedule | UnsetType | None) -> messages.PutRequest:
    return messages.PutRequest(
        "schedule", encode(schedule), None, None if expected is UNSET else encode(expected)
    )


def usages_after(cursor: str) -> messages.RecordsRequest:
    return messages.RecordsRequest("usage", Page(cursor=cursor))


# -- what it may do ----------------------------------------------------------------------------------


async def test_it_writes_no_payload(world: World) -> None:
    """With a payload of its own it could compare: with open tasks by `unique`, with others by a limit."""
    api, before = world.api("operator"), await all_records(world.store, Schedule)
    for method, path, body in (
        ("POST", f"/tasks/{world.dead[0]}/replay", {"payload": {}}),
        ("PUT", "/schedules/nightly", {"type": "t", "rule": "1h", "payload": {}}),
        ("PUT", "/schedules/new", {"type": "t", "rule": "1h"}),
        ("PATCH", "/schedules/nightly", {"payload": {}}),
        ("PATCH", "/schedules/nightly", {"tenant": "other"}),
        ("POST", "/tasks", {"type": "t"}),
        ("POST", "/tasks/batch", {"tasks": [{"type": "t"}]}),
    ):
        problem(await api(method, path, body), 403, "forbidden")
    assert await all_records(world.store, Schedule) == before
    found = await world.store.find(Filter(ids=tuple(world.dead)), Page())
    assert {one.state for one in found.items} == {State.DEAD}


async def test_a_schedule_that_it_changes_keeps_its_payload(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = world.api("operator")
    monkeypatch.setenv("WINDLASS_KEY", world.keys["operator"])
    before = {one.name: one for one in await all_records(world.store, Schedule)}
    for name, stored in before.items():
        for path in ("pause", "resume"):
            await api.good("POST", f"/schedules/{name}/{path}")
        shown = await api.good("PATCH", f"/schedules/{name}", {"rule": "3h", "priority": 7})
        assert (shown["every"], shown["priority"], shown["payload"]) == (10_800, 7, {"*": "[secret]"})
        async with App(world.url) as app:
            await app.operator.schedules.pause(name)
        (after,) = [one for one in await all_records(world.store, Schedule) if one.name == name]
        assert (after.payload, after.next, after.secret) == (stored.payload, stored.next, stored.secret)
        assert (after.paused, after.priority) == (True, 7)
        made = (await api.good("POST", f"/schedules/{name}/trigger"))["id"]
        (task,) = (await world.store.find(Filter(ids=(made,)), Page())).items
        assert task.payload == stored.payload
        assert (task.next is None) is (stored.next is None)


async def test_it_operates_by_types_of_errors(world: World) -> None:
    """Failures are those of a type of task with the same type of error; their tasks can be replayed."""
    api = world.api("operator")
    found = (await api.good("GET", "/dead/failures"))["items"]
    numbers = {one["error"]["type"]: one["number"] for one in found}
    assert numbers == {"Declined": 2, "[secret]": 1}
    (declined,) = [one for one in found if one["error"]["type"] == "Declined"]
    assert declined["error"] == {"type": "Declined", "message": "[secret]", "traceback": None}
    where = {"failure": [declined["id"]]}
    dead = (await api.good("GET", f"/dead?failure={declined['id']}"))["items"]
    assert {one["id"] for one in dead} == set(world.dead[:2])
    assert (await api.good("POST", "/dead/replay", {"where": where}))["number"] == 2
    assert [one["error"]["type"] for one in (await api.good("GET", "/dead/failures"))["items"]] == [
        "[secret]"
    ]


async def test_of_limits_it_sees_names_of_tasks_only(world: World) -> None:
    admin, api = world.api("admin"), world.api("operator")
    await admin.enqueue(tenant="acme", queue="later")

    async def values(by: str) -> list[str]:
        await api.good("PATCH", "/limits/by-who", {"by": by, "rate": 0.001})
        return [one["value"] for one in (await api.good("GET", "/limits/by-who"))["in_use"]]

    assert all(one.startswith("[secret] ") for one in await values("who"))
    for by in ("tenant", "queue", "type"):  # what was counted before stays a while
        assert not hits(str(await values(by)))


# -- the scope ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [one for one in Scope if one not in OPERATOR])
async def test_it_goes_with_operate_only(world: World, other: Scope) -> None:
    scopes = ["observe", other.value]
    response = await world.api("admin")("POST", "/keys", {"label": "x", "scopes": scopes})
    assert "observe goes with operate only" in problem(response, 422, "invalid-option")["detail"]
    with pytest.raises(InvalidOption, match="observe goes with operate only"):
        caller_with(Access("ann", scopes=tuple(scopes)))
    (key,) = [one for one in await all_records(world.store, ApiKey) if one.label == "observer"]
    await world.store.put(replace(key, scopes=tuple(map(Scope, scopes))))  # as nobody should
    assert hits((await world.api("observer")("GET", "/tasks?limit=1000")).text) == set()
    response = await world.api("observer")("POST", "/store/claim", b"{}")
    assert response.status_code == 403


async def test_it_is_kept_with_the_key(world: World) -> None:
    listed = (await world.api("admin").good("GET", "/keys"))["items"]
    assert [one["scopes"] for one in listed if one["label"] == "operator"] == [["observe", "operate"]]


# -- the rule ----------------------------------------------------------------------------------------


async def test_a_new_verb_or_kind_of_record_is_refused() -> None:
    """Until somebody says what of it is seen."""
    store = MaskedStore(QuotaStore(MemoryStore()))
    with pytest.raises(Refusal):
        await store._forward("new", store.inner.check)
    for verb in ("enqueue", "claim", "settle", "heartbeat", "once", "lead", "promote", "rescue", "migrate"):
        with pytest.raises(Refusal):
            await getattr(store, verb)()
    for handle in (store.transaction, partial(store.join, None), partial(store.wakes, ())):
        with pytest.raises(Refusal):
            handle()
    for kind in (ApiKey, Login, DisabledEndpoint, type("New", (), {})):
        with pytest.raises(Refusal):
            await store.records(kind, Page())


@pytest.mark.parametrize("kind", SEEN)
def test_a_new_field_is_hidden(kind: type[Struct]) -> None:
    """Every field is seen by its name, or set to something else: what is not named is not taken."""
    mask: Any = {
        Task: whole_task,
        Attempt: whole_attempt,
        Schedule: whole_schedule,
        Audit: whole_audit,
        TaskTransition: whole_transition,
    }.get(kind)
    if mask is None:  # steps are parts of tasks
        assert {*SEEN[kind]} <= {*kind.__struct_fields__}
        return
    told = {"type": "t", "subject": "other thing"}
    texts: Any = {
        name: told.get(name, canary("payload"))
        for name in kind.__struct_fields__
        if name not in ("payload", "result", "next", "error", "progress", "secret", "notes")
    }
    hidden = {"payload": b'"%s"' % canary("payload").encode()} if kind in (Task, Schedule) else {}
    shown = mask(kind(**texts, **hidden))
    seen = {name for name in kind.__struct_fields__ if hits(str(getattr(shown, name)))}
    assert seen <= {*SEEN[kind]}
