"""API keys: every verb of the store with every scope and every kind of key."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import product
from time import monotonic
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from tests.http.problem import assert_safe, problem
from tests.loops.workers import eventually
from tests.servers.api import ApiServer
from windlass._client.keys import Keys
from windlass._http import auth as access
from windlass._http.resources import store as remote
from windlass._ids import new_id
from windlass._model.filter import Filter, Page
from windlass._model.key import ApiKey, Scope
from windlass._policy import api_key
from windlass._store.messages import REQUESTS
from windlass._store.protocol import all_records
from windlass._stores.memory import MemoryStore
from windlass.testing.clock import ManualClock
from windlass.testing.faults import Fault, FaultyStore, scripted

BY = {"who": "eve"}
MESSAGES: dict[str, dict[str, Any]] = {
    "about": {},
    "enqueue": {"batch": []},
    "claim": {"claim": {"session": "s", "queues": ["q"], "limit": 1, "number": 1}},
    "settle": {"batch": []},
    "heartbeat": {"beat": {"session": "s", "worker": {"name": "w"}, "lease_for": 30, "opening": True}},
    "once": {"lease": {"task_id": new_id(), "fence": 1}, "key": "k"},
    "lead": {"holder": "h", "lease_for": 1},
    "promote": {"limit": 1},
    "rescue": {"session": "s", "limit": 1},
    "prune": {"default": {}, "limit": 1},
    "find": {"where": {}, "page": {}},
    "count": {"where": {}},
    "ended": {"ids": [new_id()]},
    "attempts": {"task_id": new_id()},
    "apply": {"action": {"kind": "cancel", "by": BY}, "where": {}, "limit": 1},
    "put": {"kind": "queue", "record": {"name": "q"}},
    "records": {"kind": "queue", "page": {}},
    "remove": {"kind": "queue", "name": "nobody"},
    "check": {},
}
AT_LEAST_ONE_LETTER_OF_A_KEY = "wl_"


class Asker:
    """Asks with one key."""

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self.http = http
        self.url = url

    async def verb(self, verb: str, key: str | None, message: Any = None) -> httpx2.Response:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        body = MESSAGES[verb] if message is None else message
        response = await self.http.post(f"{self.url}/store/{verb}", json=body, headers=headers)
        assert_safe(response)
        return response

    async def wakes(self, key: str | None) -> httpx2.Response:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        async with self.http.stream("POST", f"{self.url}/store/wakes", json={}, headers=headers) as response:
            if response.status_code != 200:
                await response.aread()
            return response


@pytest.fixture
def asker(http: httpx2.AsyncClient, url: str) -> Asker:
    return Asker(http, url)


@pytest.fixture
def always_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server looks at the keys anew for every request."""
    monkeypatch.setattr(access, "FRESH_FOR", 0.0)


ALMOST_ALL = [scope for scope in Scope if scope not in (Scope.ADMIN, Scope.OBSERVE)]


def test_every_verb_has_a_scope_and_a_message_here() -> None:
    assert set(REQUESTS) == set(MESSAGES)
    assert Scope.ADMIN not in {request.scope for request in REQUESTS.values()}


@pytest.mark.parametrize("scope", Scope)
async def test_a_scope_allows_its_verbs_and_no_others(scope: Scope, asker: Asker, keys: Keys) -> None:
    key = (await keys.create("k", scopes=[scope])).text
    for verb, needed in [(verb, request.scope) for verb, request in REQUESTS.items()]:
        response = await asker.verb(verb, key)
        if scope in (needed, Scope.ADMIN) or (scope, needed) == (Scope.OBSERVE, Scope.READ):
            # A lease that never was is lost: the store was asked, and that is what counts here.
            assert response.status_code in (200, 409, 410), (verb, response.text)
        else:
            found = problem(response, 403, "forbidden")
            assert found["detail"] == f"this key lacks the scope {needed.value}"
    assert (await asker.wakes(key)).status_code == (200 if scope in (Scope.WORK, Scope.ADMIN) else 403)


async def test_scopes_add_up(asker: Asker, keys: Keys) -> None:
    key = (await keys.create("k", scopes=[Scope.READ, Scope.WORK])).text
    for verb, needed in [(verb, request.scope) for verb, request in REQUESTS.items()]:
        allowed = needed in (Scope.READ, Scope.WORK)
        assert ((await asker.verb(verb, key)).status_code == 403) is not allowed, verb


@pytest.mark.parametrize(
    "name",
    [
        {"idempotency_key": "\x1fschedule:nightly:2026-06-01T12:00:00+00:00"},
        {"fingerprint": "schedule:nightly"},
    ],
)
async def test_only_operators_give_the_keys_of_ticks(
    name: dict[str, str], asker: Asker, keys: Keys, store: MemoryStore
) -> None:
    batch = [{"id": (one := new_id()), "root": one, "type": "t", "payload": {}, **name}]
    lease = {"task_id": new_id(), "fence": 1}
    verdict = {"kind": "complete", "successors": batch}
    settlements = [{"lease": lease, "verdict": verdict, "outcome": "completed"}]
    producer = (await keys.create("p", scopes=[Scope.ENQUEUE, Scope.WORK])).text
    operator = (await keys.create("o", scopes=[Scope.ENQUEUE, Scope.OPERATE])).text

    problem(await asker.verb("enqueue", producer, {"batch": batch}), 422, "invalid-option")
    problem(await asker.verb("settle", producer, {"batch": settlements}), 422, "invalid-option")
    assert not (await store.find(Filter(), Page())).items
    assert (await asker.verb("enqueue", operator, {"batch": batch})).status_code == 200


@pytest.mark.parametrize("bounds", [{"tenant": "acme"}, {"queues": ["q"]}, {"tenant": "t", "queues": ["q"]}])
@pytest.mark.parametrize("scope", Scope)
async def test_a_bound_key_never_asks_for_the_whole_store(
    bounds: dict[str, Any], scope: Scope, asker: Asker, keys: Keys
) -> None:
    key = (await keys.create("k", scopes=[scope], **bounds)).text
    for verb in REQUESTS:
        problem(await asker.verb(verb, key), 403, "forbidden")
    problem(await asker.wakes(key), 403, "forbidden")


def spoilt(good: str) -> dict[str, str | None]:
    """What looks like a key, more or less, and is none."""
    other = api_key.new_key(b"\x07" * 48)
    sent = api_key.parse_key(good)
    assert sent is not None
    return {
        "missing": None,
        "no key": "x",
        "cut": good[:-1],
        "longer": good + "0",
        "another id": f"wl_{other.id}_{sent.secret}",
        "another secret": f"wl_{sent.id}_{other.secret}",
        "never made": other.text,
        "the hash": f"wl_{sent.id}_{api_key.hash_secret(sent.secret)[:43]}",
        "twice": f"{good} {good}",
        "very long": "wl_" + "0" * 8000,
    }


async def test_without_a_good_key_nothing_is_allowed(
    asker: Asker, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "MISSING_FOR", 0.0)
    good = (await keys.create("k", scopes=[Scope.ADMIN])).text
    assert (await asker.verb("about", good)).status_code == 200
    for (what, key), verb in product(spoilt(good).items(), REQUESTS):
        response = await asker.verb(verb, key)
        problem(response, 401, "unauthorized")
        assert response.headers["www-authenticate"].startswith("Bearer"), what
    for key in spoilt(good).values():
        problem(await asker.wakes(key), 401, "unauthorized")


@pytest.mark.parametrize(
    "sent", ["Basic eDp5", "Bearer", "Bearer\tx", "Token {}", "{}", "Negotiate {}", "Bearer,{}"]
)
async def test_a_key_goes_behind_bearer(sent: str, asker: Asker, keys: Keys) -> None:
    key = (await keys.create("k", scopes=[Scope.ADMIN])).text
    headers = {"authorization": sent.format(key)}
    problem(await asker.http.post(f"{asker.url}/store/about", json={}, headers=headers), 401, "unauthorized")


async def test_refusals_are_the_same_whether_or_not_there_is_such_a_key(
    asker: Asker, keys: Keys, store: MemoryStore
) -> None:
    good = (await keys.create("k", scopes=[Scope.ADMIN])).text
    old = await keys.create("old", scopes=[Scope.ADMIN])
    await store.put(replace(old.key, expires_at=old.key.created_at))
    cases = spoilt(good)
    answers = [await asker.verb("about", key) for what, key in cases.items() if key]
    answers.append(await asker.verb("about", old.text))
    assert len({answer.content for answer in answers}) == 1
    for answer in answers:
        assert AT_LEAST_ONE_LETTER_OF_A_KEY not in answer.text
        for part in good.split("_")[1:]:
            assert part not in answer.text


async def test_an_expired_key_is_refused(
    api: ApiServer, http: httpx2.AsyncClient, always_looking: None
) -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    key = (await Keys(store).create("k", scopes=[Scope.READ], expires_in=60)).text
    asker = Asker(http, api.serve(store))
    clock.advance(59)
    assert (await asker.verb("about", key)).status_code == 200
    clock.advance(1)
    problem(await asker.verb("about", key), 401, "unauthorized")


async def until_refused(asker: Asker, key: str, seconds: float) -> None:
    async def is_refused() -> bool:
        return (await asker.verb("about", key)).status_code == 401

    await eventually(is_refused, within=seconds)


async def test_a_new_key_and_a_new_secret_are_known_at_once(
    asker: Asker, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "FRESH_FOR", 3600.0)
    new = await keys.create("k", scopes=[Scope.READ])
    assert (await asker.verb("about", new.text)).status_code == 200
    rotated = await keys.rotate(new.key.name, overlap=60)
    second = await keys.create("l", scopes=[Scope.READ])
    for text in (rotated.text, second.text):
        assert (await asker.verb("about", text)).status_code == 200


async def test_a_flood_of_unknown_keys_reads_the_store_ten_times_a_second(
    asker: Asker, keys: Keys, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown keys share a look at the store, and the looks are `MISSING_FOR` apart."""
    looks = 0

    async def counted(*args: Any) -> Any:
        nonlocal looks
        looks += 1
        return await all_records(*args)

    monkeypatch.setattr(access, "all_records", counted)
    good = (await keys.create("k", scopes=[Scope.ADMIN])).text
    wrong = spoilt(good)["another secret"]
    began = monotonic()
    answers = await asyncio.gather(*(asker.verb("about", wrong) for _ in range(100)))
    assert {answer.status_code for answer in answers} == {401}
    assert looks <= 2 + (monotonic() - began) / access.MISSING_FOR


async def test_a_revoked_key_is_refused_within_a_second_or_so(asker: Asker, keys: Keys) -> None:
    new = await keys.create("k", scopes=[Scope.READ])
    assert (await asker.verb("about", new.text)).status_code == 200
    await keys.revoke(new.key.name)
    await until_refused(asker, new.text, access.FRESH_FOR + 1)


async def test_a_key_expires_while_it_is_remembered(asker: Asker, keys: Keys) -> None:
    key = (await keys.create("k", scopes=[Scope.READ], expires_in=2)).text
    assert (await asker.verb("about", key)).status_code == 200
    await until_refused(asker, key, 10)


async def test_who_listens_hears_no_more_once_the_key_is_revoked(
    asker: Asker, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "PING_SECONDS", 0.05)
    new = await keys.create("k", scopes=[Scope.WORK])
    headers = {"authorization": f"Bearer {new.text}"}
    async with (
        asyncio.timeout(10),
        asker.http.stream("POST", f"{asker.url}/store/wakes", json={}, headers=headers) as heard,
    ):
        lines = heard.aiter_lines()
        await anext(lines)
        await keys.revoke(new.key.name)
        assert [line async for line in lines if line.strip()] == []  # and so it ends


async def test_keys_are_for_admins(asker: Asker, keys: Keys, store: MemoryStore) -> None:
    victim = await keys.create("victim", scopes=[Scope.READ])
    own = ApiKey(
        name="0" * 12, label="mine", hash="0" * 64, scopes=(Scope.ADMIN,), created_at=datetime.now(UTC)
    )
    record = {"name": own.name, "label": "mine", "hash": own.hash, "scopes": ["admin"]}
    messages = {
        "put": {"kind": "key", "record": {**record, "created_at": "2026-01-01T00:00:00Z"}},
        "records": {"kind": "key", "page": {}},
        "remove": {"kind": "key", "name": victim.key.name},
    }
    almost = (await keys.create("k", scopes=ALMOST_ALL)).text
    before = await keys.list()
    for verb, message in messages.items():
        found = problem(await asker.verb(verb, almost, message), 403, "forbidden")
        assert found["detail"] == "this key lacks the scope admin"
    problem(await asker.verb("put", almost, {"kind": "key", "record": 7}), 403, "forbidden")
    assert [replace(key, last_used_at=None) for key in await keys.list()] == before
    admin = (await keys.create("admin", scopes=[Scope.ADMIN])).text
    await until_known(asker, admin)
    for verb, message in messages.items():
        assert (await asker.verb(verb, admin, message)).status_code == 200, verb
    assert victim.key.name not in {key.name for key in await keys.list()}


async def until_known(asker: Asker, key: str) -> None:
    async def is_known() -> bool:
        return (await asker.verb("about", key)).status_code == 200

    await eventually(is_known)


async def test_hashes_never_leave_but_to_admins(asker: Asker, keys: Keys) -> None:
    made = [await keys.create(f"k{number}", scopes=[Scope.READ]) for number in range(3)]
    key = (await keys.create("k", scopes=ALMOST_ALL)).text
    answers = [await asker.verb(verb, key) for verb in REQUESTS]
    kinds = (
        "queue",
        "session",
        "audit",
        "usage",
        "limit",
        "schedule",
        "tick",
        "alert",
        "declaration",
        "Key",
        "keys",
    )
    answers += [await asker.verb("records", key, {"kind": kind, "page": {}}) for kind in kinds]
    for answer in answers:
        for one in made:
            assert one.key.hash not in answer.text
            assert one.key.name not in answer.text


async def test_a_key_whose_hash_is_none_does_not_break_the_door(asker: Asker, keys: Keys) -> None:
    admin = (await keys.create("k", scopes=[Scope.ADMIN])).text
    record = {"name": "0" * 12, "label": "x", "scopes": ["read"], "created_at": "2026-01-01T00:00:00Z"}
    for strange in ("", "ä" * 64, "0" * 63, "A" * 64):
        message = {"kind": "key", "record": {**record, "hash": strange}}
        problem(await asker.verb("put", admin, message), 422, "invalid-option")


async def test_a_store_that_is_away_tells_strangers_nothing(api: ApiServer, http: httpx2.AsyncClient) -> None:
    store = MemoryStore()
    key = (await Keys(store).create("k", scopes=[Scope.READ])).text
    asker = Asker(http, api.serve(FaultyStore(store, scripted(records=[Fault.BEFORE] * 2))))
    for _ in range(2):
        response = await asker.verb("about", key)
        assert (
            problem(response, 503, "store-unavailable")["detail"]
            == "cannot read API keys from the store; retry"
        )
        assert response.headers["retry-after"] == "1"
    assert (await asker.verb("about", key)).status_code == 200


async def test_the_keys_are_looked_up_once_for_many(api: ApiServer, http: httpx2.AsyncClient) -> None:
    looks = 0

    def plan(verb: str) -> None:
        nonlocal looks
        looks += verb == "records"

    store = MemoryStore()
    key = (await Keys(store).create("k", scopes=[Scope.READ])).text
    asker = Asker(http, api.serve(FaultyStore(store, plan)))
    began = datetime.now(UTC)
    answers = await asyncio.gather(*(asker.verb("about", key) for _ in range(50)))
    assert {answer.status_code for answer in answers} == {200}
    assert looks <= 1 + (datetime.now(UTC) - began) / timedelta(seconds=access.FRESH_FOR)


async def test_a_door_that_is_open_until_there_are_keys_stays_shut_then(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "FRESH_FOR", 0.0)  # The keys are looked at anew for every request.
    store = MemoryStore()
    url = api.serve(store, open_until_keys=True)
    keys = Keys(store)
    seen = []

    async with httpx2.AsyncClient(trust_env=False, verify=False) as client:
        for step in ("none", "made", "revoked"):
            if step == "made":
                made = await keys.create("first", scopes=["admin"])
            if step == "revoked":
                await keys.revoke(made.key.name)
            answer = await client.post(
                f"{url}/store/about", content=b"{}", headers={"content-type": "application/json"}
            )
            seen.append(answer.status_code)

    assert seen == [200, 401, 401]
