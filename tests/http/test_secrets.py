"""Secrets over HTTP: who sees them, who does not, and what the audit log tells of it."""

from typing import Any

import httpx2
import msgspec
import pytest

from tests.http.api_client import Api
from tests.http.problem import problem
from windlass import App, Filter, Refused
from windlass._client import published_types
from windlass._client.keys import Keys
from windlass._http import auth
from windlass._model.alert import Alert
from windlass._model.filter import By, Page
from windlass._model.key import Scope
from windlass._model.options import DeclaredType, Defaults
from windlass._model.record import Audit, Declaration
from windlass._model.schedule import Schedule
from windlass._model.state import State
from windlass._policy.input.fingerprint import fingerprint
from windlass._store.json_codec import encode
from windlass._stores import open_store
from windlass._stores.memory import MemoryStore

SECRET = "4242-s3cr3t"
HOOK = "https://hooks.example.org/T0/p4th-s3cr3t?key=qu3ry"


async def told(store: MemoryStore) -> list[tuple[str, str | None, str]]:
    """Who revealed what."""
    lines = (await store.records(Audit, Page(limit=1_000))).items
    return [(line.who, line.task_id, line.subject) for line in lines if line.action == "reveal"]


class World:
    """A server without an app, a store in which there is a secret, and keys."""

    def __init__(self, http: httpx2.AsyncClient, url: str, store: MemoryStore, keys: Keys) -> None:
        self.http, self.url, self.store, self.keys = http, url, store, keys

    async def api(self, *scopes: Scope, **bounds: Any) -> Api:
        made = await self.keys.create("k", scopes=scopes, **bounds)
        return Api(self.http, self.url, made.text)

    async def declare(self, *secret: str, type: str = "pay") -> None:
        """What an app does that declares the type."""
        await self.store.put(DeclaredType(name=type, defaults=Defaults(secret=secret)))


@pytest.fixture
async def world(
    http: httpx2.AsyncClient, url: str, store: MemoryStore, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> World:
    """The server looks at keys and types anew for every request."""
    monkeypatch.setattr(auth, "FRESH_FOR", 0.0)
    monkeypatch.setattr(published_types, "FRESH_SECONDS", 0.0)
    await keys.create("first", scopes=[Scope.ADMIN])
    return World(http, url, store, keys)


@pytest.fixture
async def failed(world: World) -> str:
    """A task of a type that nobody has declared yet, whose error, notes and progress repeat its secret."""
    api = await world.api(Scope.ENQUEUE, Scope.WORK)
    task_id = await api.enqueue(type="pay", payload={"card": SECRET, "by": {SECRET: 1}}, max_attempts=1)
    session = await api.session()
    (task,) = await api.claim(session, 1)
    error = {"type": "Declined", "message": f"{SECRET} was declined"}
    progress = {"fraction": 0.5, "message": f"charging {SECRET}"}
    outcome = {"outcome": "failed", "error": error, "notes": {"used": SECRET}, "progress": progress}
    assert await api.settle({"id": task["id"], "fence": task["fence"], **outcome}) == ["applied"]
    return task_id


READS = ["/tasks", "/tasks/{id}", "/tasks/{id}/attempts", "/dead", "/tasks/{id}/events", "/tasks/{id}?wait=1"]


@pytest.mark.parametrize("path", READS)
async def test_rest_masks_what_a_type_declares_after_its_task_has_failed(
    path: str, world: World, failed: str
) -> None:
    await world.declare("card")
    api = await world.api(Scope.READ)

    response = await api("GET", path.format(id=failed))

    assert response.status_code == 200
    assert SECRET not in response.text
    assert "[secret]" in response.text


@pytest.mark.parametrize("path", ["/tasks", "/tasks/{id}", "/dead", "/tasks/{id}/events"])
async def test_rest_reveals_with_the_scope_and_writes_a_line_for_each_task(
    path: str, world: World, failed: str
) -> None:
    await world.declare("card")
    path = f"{path.format(id=failed)}?reveal=true"

    for scopes in ((Scope.READ,), (Scope.READ, Scope.WORK, Scope.OPERATE, Scope.ENQUEUE)):
        problem(await (await world.api(*scopes))("GET", path), 403, "forbidden")
    assert await told(world.store) == []

    for scopes in ((Scope.READ, Scope.REVEAL), (Scope.ADMIN,)):
        api = await world.api(*scopes)
        before = len(await told(world.store))
        assert SECRET in (await api("GET", path)).text
        (line,) = (await told(world.store))[before:]
        assert (line[0].startswith("key "), line[1:]) == (True, (failed, ""))


async def test_reveal_alone_reads_nothing_over_rest(world: World, failed: str) -> None:
    api = await world.api(Scope.REVEAL)

    problem(await api("GET", f"/tasks/{failed}?reveal=true"), 403, "forbidden")


async def test_a_server_without_keys_reveals_and_tells(api_of: Api, store: MemoryStore) -> None:
    task_id = await api_of.enqueue(payload={"password": SECRET})

    shown = await api_of.good("GET", f"/tasks/{task_id}?reveal=true")

    assert shown["payload"] == {"password": SECRET}
    assert await told(store) == [("anonymous", task_id, "")]


async def test_a_bound_key_reveals_within_its_bounds_only(world: World, failed: str) -> None:
    await world.declare("card")
    api = await world.api(Scope.READ, Scope.REVEAL, tenant="other")

    problem(await api("GET", f"/tasks/{failed}?reveal=true"), 404, "not-found")
    assert (await api.good("GET", "/tasks?reveal=true"))["items"] == []
    assert await told(world.store) == []


# -- the store protocol ------------------------------------------------------------------------------


VERBS = ("find", "attempts")


async def verb(api: Api, name: str, body: dict[str, Any], task_id: str = "") -> httpx2.Response:
    filled = {
        key: value.format(id=task_id) if isinstance(value, str) else value for key, value in body.items()
    }
    return await api("POST", f"/store/{name}", filled)


@pytest.mark.parametrize("name", VERBS)
async def test_the_store_protocol_shows_secrets_to_workers_and_on_record(
    name: str, world: World, failed: str
) -> None:
    async def asked(*scopes: Scope) -> str:
        body = {"task_id": failed} if name == "attempts" else {"where": {}, "page": {}}
        response = await (await world.api(*scopes))("POST", f"/store/{name}", body)
        assert response.status_code == 200
        return response.text

    await world.declare("card")

    assert SECRET not in await asked(Scope.READ)
    assert SECRET not in await asked(Scope.READ, Scope.OPERATE, Scope.ENQUEUE)
    assert SECRET in await asked(Scope.READ, Scope.WORK)
    assert SECRET in await asked(Scope.ADMIN)
    assert await told(world.store) == []
    assert SECRET in await asked(Scope.READ, Scope.REVEAL)
    assert [line[1] for line in await told(world.store)] == [failed]


async def test_records_of_schedules_and_alerts_are_masked(world: World) -> None:
    await world.declare("card")
    await world.store.put(Alert(name="a", webhook=HOOK))
    await world.store.put(Schedule(name="s", type="pay", cron="* * * * *", payload=b'{"card":"4242-s3cr3t"}'))

    async def asked(kind: str, *scopes: Scope) -> str:
        body = {"kind": kind, "page": {}}
        return (await (await world.api(*scopes))("POST", "/store/records", body)).text

    for kind, secret in (("alert", "p4th"), ("schedule", SECRET)):
        assert secret not in await asked(kind, Scope.READ)
        assert secret not in await asked(kind, Scope.READ, Scope.OPERATE)
        assert secret in await asked(kind, Scope.READ, Scope.WORK)
    assert "hooks.example.org" in await asked("alert", Scope.READ)
    assert await told(world.store) == []

    assert SECRET in await asked("schedule", Scope.READ, Scope.REVEAL)
    assert [line[1:] for line in await told(world.store)] == [(None, "schedule s")]


async def test_a_record_that_was_seen_masked_keeps_its_secrets_when_it_is_changed(world: World) -> None:
    """As the command line does with a key of a person, over HTTP: read, change, put back."""
    await world.declare("card")
    payload = b'{"card":"4242-s3cr3t"}'
    await world.store.put(Schedule(name="s", type="pay", cron="* * * * *", payload=payload))
    await world.store.put(Alert(name="a", webhook=HOOK))
    made = await world.keys.create("ann", scopes=[Scope.READ, Scope.OPERATE])
    app = App(open_store(world.url, key=made.text))
    try:
        await app.operator.schedules.pause("s")
        (alert,) = (await app.store.records(Alert, Page())).items
        await app.store.put(msgspec.structs.replace(alert, count=7), None, alert)
    finally:
        await app.close()

    (schedule,) = (await world.store.records(Schedule, Page())).items
    (kept,) = (await world.store.records(Alert, Page())).items
    assert (schedule.paused, schedule.payload) == (True, payload)
    assert (kept.count, kept.webhook) == (7, HOOK)


async def test_a_webhook_that_is_masked_is_not_tested(world: World) -> None:
    await world.store.put(Alert(name="a", webhook=HOOK))
    made = await world.keys.create("ann", scopes=[Scope.READ, Scope.OPERATE])
    app = App(open_store(world.url, key=made.text))
    try:
        with pytest.raises(Refused, match="masks the webhook"):
            await app.operator.alerts.test("a")
    finally:
        await app.close()


async def test_the_server_adds_the_secrets_of_a_type_that_the_sender_does_not_know(world: World) -> None:
    await world.declare("card")
    api = await world.api(Scope.ENQUEUE)
    task_id = "0199c3a2-7d10-7abc-8def-0123456789ab"
    new = {"id": task_id, "root": task_id, "type": "pay", "payload": {"card": SECRET}}

    assert (await api("POST", "/store/enqueue", {"batch": [new]})).status_code == 200

    (task,) = (await world.store.find(Filter(), Page())).items
    assert task.secret == ("card",)


async def test_the_action_reveal_needs_its_own_scope(world: World, failed: str) -> None:
    action = {"kind": "reveal", "by": {"who": "ann", "why": "support"}}
    body = {"action": action, "where": {"ids": [failed]}, "limit": 1}

    for scope in (Scope.READ, Scope.OPERATE, Scope.WORK, Scope.ENQUEUE):
        problem(await (await world.api(scope))("POST", "/store/apply", body), 403, "forbidden")
    assert await told(world.store) == []

    assert (await (await world.api(Scope.REVEAL))("POST", "/store/apply", body)).status_code == 200
    ((who, task_id, _),) = await told(world.store)
    assert (who.endswith("for ann"), task_id) == (True, failed)
    cancel = {**body, "action": {**action, "kind": "cancel"}}
    problem(await (await world.api(Scope.REVEAL))("POST", "/store/apply", cancel), 403, "forbidden")


async def test_schedules_are_revealed_with_the_scope(world: World) -> None:
    await world.store.put(
        Schedule(name="s", type="t", cron="* * * * *", payload=b'{"password":"4242-s3cr3t"}')
    )

    problem(await (await world.api(Scope.READ))("GET", "/schedules/s?reveal=true"), 403, "forbidden")
    for path in ("/schedules", "/schedules/s"):
        assert SECRET not in (await (await world.api(Scope.ADMIN))("GET", path)).text
    assert SECRET in (await (await world.api(Scope.ADMIN))("GET", "/schedules/s?reveal=true")).text
    assert [line[1:] for line in await told(world.store)] == [(None, "schedule s")]


# -- guesses by keys that do not see secrets -------------------------------------------------------------

PIN = "7391"
GUESSES = ["7390", PIN]


def declared(pin: str) -> App:
    """A program with a schedule and an alert that have a secret."""
    app = App("memory://")

    @app.task(name="pay", secret=["pin"])
    def pay(pin: str) -> None: ...

    app.schedule("s", pay.step(pin=pin), "0 3 * * *")
    app.alert("a", webhook=f"https://hooks.example.org/{pin}")
    return app


async def digests_of(pin: str) -> list[str]:
    app = declared(pin)
    await app.publish()
    found = (await app.store.records(Declaration, Page())).items
    await app.close()
    return [one.body for one in found]


@pytest.mark.parametrize("scopes", [(Scope.READ,), (Scope.READ, Scope.OPERATE, Scope.ENQUEUE)])
async def test_a_fingerprint_is_shown_only_to_who_sees_the_payload(
    scopes: tuple[Scope, ...], world: World
) -> None:
    """Or a PIN is found by trying them all, without asking."""
    admin = await world.api(Scope.ADMIN)
    for unique in (True, ["pin"]):
        await admin.enqueue(type="pay", payload={"pin": PIN, "n": 1}, secret=["pin"], unique=unique)

    async def shown(*scopes: Scope) -> list[str]:
        body = {"where": {}, "page": {}}
        found = await (await world.api(*scopes)).good("POST", "/store/find", body)
        return [one["fingerprint"] for one in found["items"]]

    assert await shown(*scopes) == ["0" * 64, "0" * 64 + '["pin"]']
    stored = [task.fingerprint for task in (await world.store.find(Filter(), Page())).items]
    assert stored == await shown(Scope.READ, Scope.REVEAL) == await shown(Scope.READ, Scope.WORK)
    assert "0" * 64 not in "".join(map(str, stored))


async def test_a_replay_by_who_sees_no_fingerprint_gives_the_right_one(world: World) -> None:
    """As the command line does with a key of a person: with an edited payload."""
    admin = await world.api(Scope.ADMIN)
    task_id = await admin.enqueue(type="pay", payload={"pin": PIN}, secret=["pin"], unique=["pin"])
    await admin.good("DELETE", f"/tasks/{task_id}")
    (before,) = (await world.store.find(Filter(), Page())).items
    made = await world.keys.create("ann", scopes=[Scope.READ, Scope.OPERATE])
    app = App(open_store(world.url, key=made.text))
    try:
        await app.operator.replay_one(task_id, by=By(who="ann"), payload={"pin": "1"})
    finally:
        await app.close()

    (after,) = (await world.store.find(Filter(), Page())).items
    assert after.fingerprint == fingerprint(("pin",), "pay", b'{"pin":"1"}', 0, "") != before.fingerprint


async def test_a_digest_of_what_is_declared_is_shown_to_workers_only(world: World) -> None:
    app = declared(PIN)
    app.queue("q", fairness="fifo")
    await app.publish()
    for one in (await app.store.records(Declaration, Page())).items:
        await world.store.put(one)
    await app.close()
    digests = await digests_of(PIN)
    assert len(digests) == 2

    async def shown(*scopes: Scope) -> str:
        body = {"kind": "declaration", "page": {}}
        return (await (await world.api(*scopes))("POST", "/store/records", body)).text

    assert [one in await shown(Scope.READ, Scope.WORK) for one in digests] == [True, True]
    for scopes in ((Scope.READ,), (Scope.READ, Scope.OPERATE), (Scope.READ, Scope.REVEAL)):
        text = await shown(*scopes)
        assert [one in text for one in digests] == [False, False]
        assert "fifo" in text  # which is no secret


async def test_a_guess_of_what_is_stored_is_a_conflict_right_or_wrong(world: World) -> None:
    """A record is expected as it was shown, by who sees no secrets."""
    operator = await world.api(Scope.READ, Scope.OPERATE)
    payload = {"pin": PIN, "n": 1}
    await operator.good(
        "PUT", "/schedules/s", {"type": "pay", "rule": "1h", "payload": payload, "secret": ["pin"]}
    )
    await world.store.put(Alert(name="a", webhook=f"https://hooks.example.org/{PIN}"))
    digest = (await digests_of(PIN))[1]
    await world.store.put(Declaration(name="schedule/s", body=digest))

    async def put(
        kind: str, guessed: dict[str, Any], changed: dict[str, Any], api: Api = operator
    ) -> httpx2.Response:
        records = await operator.good("POST", "/store/records", {"kind": kind, "page": {}})
        (shown,) = records["items"]
        body = {"kind": kind, "record": {**shown, **changed}, "expected": {**shown, **guessed}}
        return await api("POST", "/store/put", msgspec.json.encode(body))

    responses = [
        response
        for guess in GUESSES
        for response in (
            await put("schedule", {"payload": {"pin": guess, "n": 1}}, {"priority": 1}),
            await put("alert", {"webhook": f"https://hooks.example.org/{guess}"}, {"count": 7}),
            await put("declaration", {"body": (await digests_of(guess))[1]}, {"body": digest}),
        )
    ]
    for response in responses:
        problem(response, 409, "conflict")
    assert [one.text for one in responses[:3]] == [one.text for one in responses[3:]]
    assert (await stored_schedule(world)).priority == 0

    assert (await put("schedule", {}, {"priority": 1})).status_code == 200
    assert (await put("alert", {}, {"count": 7})).status_code == 200
    assert (await put("declaration", {}, {"body": digest})).status_code == 200
    revealing = await world.api(Scope.READ, Scope.OPERATE, Scope.REVEAL)
    seen = {"payload": payload, "priority": 1}
    assert (await put("schedule", seen, {"priority": 2}, revealing)).status_code == 200
    assert msgspec.json.decode((await stored_schedule(world)).payload) == payload


# -- changes by keys that do not see secrets -------------------------------------------------------------


PAYING = {"type": "pay", "rule": "1h", "payload": {"card": SECRET, "n": 1}, "secret": ["card"]}
UNMASKING: tuple[dict[str, Any], ...] = (
    {"secret": []},
    {"secret": ["n"]},
    {"tenant": "other"},
    {"secret": [], "payload": {"n": 1, "card": "[secret]"}},
)

OTHERWISE: tuple[dict[str, Any], ...] = (
    {"type": "noop", "secret": []},
    {"type": "noop"},
    {"secret": []},
    {"tenant": "x"},
)


async def stored_schedule(world: World) -> Schedule:
    (schedule,) = (await world.store.records(Schedule, Page())).items
    return schedule


@pytest.mark.parametrize("change", UNMASKING)
async def test_an_operator_cannot_unmask_what_a_schedule_keeps(change: Any, world: World) -> None:
    operator = await world.api(Scope.READ, Scope.OPERATE)
    await operator.good("PUT", "/schedules/s", PAYING)

    response = await operator("PATCH", "/schedules/s", change)

    problem(response, 403, "forbidden")
    assert msgspec.json.decode((await stored_schedule(world)).payload) == PAYING["payload"]
    assert SECRET not in (await operator("GET", "/schedules/s")).text
    revealing = await world.api(Scope.READ, Scope.OPERATE, Scope.REVEAL)
    await revealing.good("PATCH", "/schedules/s", change)
    assert msgspec.json.decode((await stored_schedule(world)).payload) == PAYING["payload"]


async def test_an_operator_changes_a_schedule_around_what_it_keeps(world: World) -> None:
    operator = await world.api(Scope.READ, Scope.OPERATE)
    await operator.good("PUT", "/schedules/s", PAYING)

    shown = {"n": 1, "card": "[secret]"}
    await operator.good("PATCH", "/schedules/s", {"rule": "2h", "secret": ["card", "n"], "queue": "q"})
    await operator.good("PATCH", "/schedules/s", {"payload": {**shown, "n": "[secret]"}})
    assert msgspec.json.decode((await stored_schedule(world)).payload) == PAYING["payload"]
    for payload in ({"card": "[secret]", "n": 2}, {"more": "to [secret]"}):
        problem(await operator("PATCH", "/schedules/s", {"payload": payload}), 422, "invalid-option")
        put = {**PAYING, "payload": payload}
        problem(await operator("PUT", "/schedules/s", put), 422, "invalid-option")
    await operator.good("PATCH", "/schedules/s", {"secret": [], "payload": {"card": "none"}})

    assert (await operator.good("GET", "/schedules/s"))["payload"] == {"card": "none"}
    assert SECRET.encode() not in (await stored_schedule(world)).payload


SHOWN = {"n": 1, "card": "[secret]"}
ESCAPED = msgspec.Raw(b'{"text": "\\u005bsecret]"}')
NEW: tuple[Any, ...] = (SHOWN, {"text": "pay with [secret]"}, {"[secret]": 1}, ESCAPED)


@pytest.mark.parametrize("payload", NEW)
async def test_a_mask_is_not_taken_for_a_value_of_a_new_schedule(payload: Any, world: World) -> None:
    operator = await world.api(Scope.READ, Scope.OPERATE)
    await operator.good("PUT", "/schedules/plain", {**PAYING, "payload": {}, "secret": []})
    records = await operator.good("POST", "/store/records", {"kind": "schedule", "page": {}})
    (record,) = records["items"]

    for name in ("new", "plain"):
        body = msgspec.json.encode({**PAYING, "payload": payload})
        problem(await operator("PUT", f"/schedules/{name}", body), 422, "invalid-option")
        changed = msgspec.Raw(msgspec.json.encode({**record, "name": name, "payload": payload}))
        put = msgspec.json.encode({"kind": "schedule", "record": changed})
        problem(await operator("POST", "/store/put", put), 422, "invalid-option")

    assert [one["name"] for one in (await operator.good("GET", "/schedules"))["items"]] == ["plain"]
    assert msgspec.json.decode((await stored_schedule(world)).payload) == {}


async def test_a_mask_that_is_stored_as_text_stays(world: World) -> None:
    await world.store.put(Schedule(name="s", type="t", cron="* * * * *", payload=b'{"text":"a [secret]"}'))
    operator = await world.api(Scope.READ, Scope.OPERATE)

    await operator.good("PATCH", "/schedules/s", {"queue": "q"})

    assert (await operator.good("GET", "/schedules/s"))["payload"] == {"text": "a [secret]"}


async def replays(api: Api, task_id: str, payload: Any) -> tuple[httpx2.Response, httpx2.Response]:
    """Replay a task with another payload in both ways of HTTP."""
    action = {"kind": "replay", "by": {"who": "x"}, "payload": msgspec.Raw(msgspec.json.encode(payload))}
    body = {"action": action, "where": {"ids": [task_id]}, "limit": 1}
    rest = await api("POST", f"/tasks/{task_id}/replay", msgspec.json.encode({"payload": payload}))
    return rest, await api("POST", "/store/apply", msgspec.json.encode(body))


async def test_a_replay_with_the_payload_as_it_is_shown_keeps_the_stored_one(
    world: World, failed: str
) -> None:
    await world.declare("card")
    operator = await world.api(Scope.READ, Scope.OPERATE)
    shown = (await operator.good("GET", f"/tasks/{failed}"))["payload"]
    assert "[secret]" in msgspec.json.encode(shown).decode()
    (before,) = (await world.store.find(Filter(ids=(failed,)), Page(limit=1))).items

    for response in await replays(operator, failed, {**shown, "more": 2}):
        problem(response, 422, "invalid-option")
    assert (await world.store.find(Filter(ids=(failed,)), Page(limit=1))).items == (before,)
    rest, _ = await replays(operator, failed, shown)

    assert rest.status_code == 200
    (after,) = (await world.store.find(Filter(ids=(failed,)), Page(limit=1))).items
    assert (after.state, after.payload) == (State.READY, before.payload)


async def test_a_replay_over_the_store_protocol_keeps_the_payload_that_is_shown(
    world: World, failed: str
) -> None:
    await world.declare("card")
    operator = await world.api(Scope.READ, Scope.OPERATE)
    found = await operator.good("POST", "/store/find", {"where": {}, "page": {"limit": 1}})
    (shown,) = found["items"]
    (before,) = (await world.store.find(Filter(ids=(failed,)), Page(limit=1))).items
    action = {"kind": "replay", "by": {"who": "x"}, "payload": shown["payload"], "fingerprint": "f"}

    body = {"action": action, "where": {"ids": [failed]}, "limit": 1}
    await operator.good("POST", "/store/apply", body)

    (after,) = (await world.store.find(Filter(ids=(failed,)), Page(limit=1))).items
    assert (after.state, after.payload, after.fingerprint) == (
        State.READY,
        before.payload,
        before.fingerprint,
    )


@pytest.mark.parametrize("declared", [(), ("card",)])
async def test_an_operator_cannot_unmask_a_schedule_by_putting_it_back_otherwise(
    declared: tuple[str, ...], world: World
) -> None:
    await world.declare(*declared)
    operator = await world.api(Scope.READ, Scope.OPERATE)
    await operator.good("PUT", "/schedules/s", PAYING)
    records = await operator.good("POST", "/store/records", {"kind": "schedule", "page": {}})
    (shown,) = records["items"]

    async def put(**changes: Any) -> httpx2.Response:
        record = msgspec.json.encode({**shown, **changes})
        body = {"kind": "schedule", "record": msgspec.Raw(record)}
        return await operator("POST", "/store/put", msgspec.json.encode(body))

    spaced = msgspec.Raw(b'{ "n" : 1, "card" : "[secret]" }')
    for payload in (shown["payload"], spaced):
        for change in OTHERWISE:
            response = await put(payload=payload, **change)
            if change == {"secret": []} and declared:  # the type still masks it
                assert response.status_code == 200
            else:
                problem(response, 403, "forbidden")
    problem(await put(payload={"card": "[secret]"}), 422, "invalid-option")
    assert (await put(payload=spaced, paused=True)).status_code == 200

    stored = await stored_schedule(world)
    assert (stored.paused, msgspec.json.decode(stored.payload)) == (True, PAYING["payload"])
    assert SECRET not in (await operator("GET", "/schedules/s")).text


async def test_steps_that_repeat_a_secret_of_their_schedule_stay_masked(world: World) -> None:
    await world.declare("card")
    step = b'[{"id":"s","type":"note","payload":{"text":"paid by 4242-s3cr3t"}}]'
    schedule = Schedule(name="s", type="pay", cron="* * * * *", payload=b'{"card":"4242-s3cr3t"}', next=step)
    await world.store.put(schedule)
    operator = await world.api(Scope.READ, Scope.OPERATE)

    problem(await operator("PATCH", "/schedules/s", {"payload": {"card": "none"}}), 403, "forbidden")
    await operator.good("PATCH", "/schedules/s", {"rule": "2h", "zone": "UTC"})

    assert SECRET.encode() in ((await stored_schedule(world)).next or b"")


async def test_an_operator_cannot_take_the_secrets_of_a_type_away(world: World, failed: str) -> None:
    await world.declare("card", "cvc")
    operator = await world.api(Scope.READ, Scope.OPERATE)

    async def put(*secret: str) -> httpx2.Response:
        record = DeclaredType(name="pay", defaults=Defaults(secret=secret))
        body = msgspec.json.encode({"kind": "type", "record": msgspec.Raw(encode(record))})
        return await operator("POST", "/store/put", body)

    for refused in (
        await put(),
        await put("card"),
        await operator("POST", "/store/remove", {"kind": "type", "name": "pay"}),
        await operator("DELETE", "/types/pay"),
    ):
        problem(refused, 403, "forbidden")
    assert (await put("more", "cvc", "card")).status_code == 200
    assert SECRET not in (await operator("GET", f"/tasks/{failed}")).text
    revealing = await world.api(Scope.READ, Scope.OPERATE, Scope.REVEAL)
    await revealing.good("DELETE", "/types/pay")


PAY = DeclaredType(
    name="pay", aliases=("charge", "debit"), defaults=Defaults(secret=("card",)), encrypted=True
)
UNMASKING_TYPES: dict[str, DeclaredType] = {
    "a type with the name of an alias": DeclaredType(name="charge"),
    "the same, encrypted": DeclaredType(name="charge", encrypted=True),
    "the same with another secret": DeclaredType(name="charge", defaults=Defaults(secret=("cvc",))),
    "without its aliases": msgspec.structs.replace(PAY, aliases=()),
    "without one alias": msgspec.structs.replace(PAY, aliases=("debit",)),
    "a later type with the alias": DeclaredType(name="zzz", aliases=("charge",)),
    "an earlier type with the alias": DeclaredType(name="aaa", aliases=("x", "debit")),
    "without its secret": msgspec.structs.replace(PAY, defaults=Defaults()),
    "not encrypted": msgspec.structs.replace(PAY, encrypted=False),
    "the alias not encrypted": DeclaredType(name="charge", defaults=Defaults(secret=("card",))),
}


async def put_type(api: Api, record: DeclaredType) -> httpx2.Response:
    body = msgspec.json.encode({"kind": "type", "record": msgspec.Raw(encode(record))})
    return await api("POST", "/store/put", body)


async def remove_type(api: Api, name: str) -> tuple[httpx2.Response, httpx2.Response]:
    """Remove a type in both ways of HTTP."""
    over_store = await api("POST", "/store/remove", {"kind": "type", "name": name})
    return over_store, await api("DELETE", f"/types/{name}")


@pytest.mark.parametrize("change", UNMASKING_TYPES.values(), ids=UNMASKING_TYPES)
async def test_an_operator_cannot_take_the_secrets_of_a_former_name_away(
    change: DeclaredType, world: World
) -> None:
    task_id = await (await world.api(Scope.ENQUEUE)).enqueue(type="charge", payload={"card": SECRET})
    await world.store.put(PAY)
    operator = await world.api(Scope.READ, Scope.OPERATE)
    assert SECRET not in (await operator("GET", f"/tasks/{task_id}")).text

    problem(await put_type(operator, change), 403, "forbidden")

    assert (await world.store.records(DeclaredType, Page())).items == (PAY,)
    assert SECRET not in (await operator("GET", f"/tasks/{task_id}")).text
    for scope in (Scope.REVEAL, Scope.WORK):
        assert (await put_type(await world.api(Scope.READ, Scope.OPERATE, scope), change)).status_code == 200


async def test_an_operator_cannot_remove_a_type_that_masks_under_any_name(world: World) -> None:
    """Also one beside another that masks the same: of two requests at once each might count on the other."""
    former = DeclaredType(name="charge", defaults=Defaults(secret=("card",)))
    for one in (PAY, former, DeclaredType(name="plain"), DeclaredType(name="marked", encrypted=True)):
        await world.store.put(one)
    operator = await world.api(Scope.READ, Scope.OPERATE)

    for name in ("pay", "charge", "marked"):
        for response in await remove_type(operator, name):
            problem(response, 403, "forbidden")
    over_store, over_rest = await remove_type(operator, "plain")

    assert (over_store.status_code, over_rest.status_code) == (200, 404)
    revealing = await world.api(Scope.READ, Scope.OPERATE, Scope.REVEAL)
    await revealing.good("DELETE", "/types/pay")


async def test_an_operator_changes_types_that_go_on_masking(world: World) -> None:
    await world.store.put(PAY)
    operator = await world.api(Scope.READ, Scope.OPERATE)
    more = Defaults(queue="q", secret=("cvc", "card"))

    for change in (
        PAY,
        msgspec.structs.replace(PAY, defaults=more, aliases=("debit", "x", "charge")),
        DeclaredType(name="charge", defaults=more, encrypted=True),
        DeclaredType(name="zzz", aliases=("pay",)),  # tasks of this name go on as those of `pay`
        DeclaredType(name="other", aliases=("former",)),
    ):
        assert (await put_type(operator, change)).status_code == 200


# -- workers in other languages ------------------------------------------------------------------------


async def test_the_progress_of_a_heartbeat_is_masked(world: World) -> None:
    await world.declare("card")
    api = await world.api(Scope.ENQUEUE, Scope.WORK)
    await api.enqueue(type="pay", payload={"card": SECRET})
    session = await api.session()
    (task,) = await api.claim(session, 1)
    held = {"id": task["id"], "fence": task["fence"], "progress": {"fraction": 0.1, "message": SECRET}}
    beat = {"session": session, "worker": {"name": "w"}, "held": [held], "through": 1}

    await api.good("POST", "/work/heartbeat", beat)

    (stored,) = (await world.store.find(Filter(), Page())).items
    assert stored.progress is not None
    assert stored.progress.message == "[secret]"


# -- fields that senders mark ----------------------------------------------------------------------------


async def test_senders_mark_fields_of_tasks_steps_batches_streams_and_schedules(api_of: Api) -> None:
    step = {"type": "t", "payload": {"x": {"y": SECRET}}, "secret": ["x.y"]}
    task = {"type": "t", "payload": {"x": SECRET}, "secret": ["x"], "next": [{**step, "next": [step]}]}
    await api_of.good("POST", "/tasks", task)
    await api_of.good("POST", "/tasks/batch", {"tasks": [task, task], "then": step})
    body = msgspec.json.encode(task) + b"\n"
    streamed = await api_of("POST", "/tasks/stream", body, content_type="application/x-ndjson")
    assert streamed.status_code == 200
    schedule = {"type": "t", "rule": "1h", "payload": {"x": SECRET}, "secret": ["x"]}
    await api_of.good("PUT", "/schedules/hourly", schedule)
    await api_of.good("POST", "/schedules/hourly/trigger")

    shown = [(await api_of("GET", path)).text for path in ("/tasks", "/schedules")]

    assert len(msgspec.json.decode(shown[0])["items"]) == 6
    assert not [text for text in shown if SECRET in text]


@pytest.mark.parametrize("secret", ["x", [""], ["re:x"], ["a\x00"], [1], ["x"] * 101, ["x" * 513]])
async def test_what_names_no_fields_is_refused(secret: Any, api_of: Api) -> None:
    task = {"type": "t", "payload": {"x": 1}, "secret": secret}

    assert (await api_of("POST", "/tasks", task)).status_code == 422
    assert (await api_of("POST", "/tasks", {"type": "t", "next": [task]})).status_code == 422
    assert (await api_of("PUT", "/schedules/s", {**task, "rule": "1h"})).status_code == 422


# -- limits ------------------------------------------------------------------------------------------------


async def test_no_limit_counts_by_a_field_that_is_secret(world: World) -> None:
    await world.declare("card")
    api = await world.api(Scope.OPERATE, Scope.READ)

    for limit in ({"by": "password"}, {"by": "card"}, {"by": "card", "type": "pay"}):
        problem(
            await api("PUT", "/limits/x", {"running": 1, "all": "type" not in limit, **limit}),
            422,
            "invalid-option",
        )
    await api.good("PUT", "/limits/x", {"running": 1, "by": "card", "type": "other"})
    problem(await api("PATCH", "/limits/x", {"type": "pay"}), 422, "invalid-option")


async def test_the_values_of_a_limit_are_digests_once_their_field_is_secret(world: World) -> None:
    api = await world.api(Scope.ADMIN)
    await api.good("PUT", "/limits/x", {"running": 1, "by": "card", "all": True})
    for card in (SECRET, f"9{SECRET}"):
        await api.enqueue(type="pay", payload={"card": card})
    await api.claim(await api.session(), 1, limit=2)
    assert SECRET in (await api("GET", "/limits")).text

    await world.declare("card")

    reader = await world.api(Scope.READ)
    for path in ("/limits", "/limits/x"):
        text = (await reader("GET", path)).text
        assert SECRET not in text
        assert "[secret] " in text
    for path in ("/metrics", "/overview"):
        assert SECRET not in (await reader("GET", path)).text
    for page in ({}, {"limit": 1}):  # the cursor of a page names its last value
        records = await reader("POST", "/store/records", {"kind": "usage", "page": page})
        assert SECRET not in records.text
    assert records.json()["items"][0]["running"] == 1
