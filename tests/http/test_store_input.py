"""The store protocol is a trust boundary: what no Python client sends is refused, whoever sends it."""

from typing import Any

import httpx2
import pytest

from tests.foreign_input import RECORDS, TASKS, task
from tests.http.api_client import Api
from tests.http.conftest import Ask
from tests.http.test_body import nothing_kept, refused
from windlass._client.keys import Keys
from windlass._ids import new_id
from windlass._model.key import Scope
from windlass._model.record import KINDS, Session
from windlass._store.messages import RECORD_TYPES
from windlass._store.protocol import Store, all_records


async def test_a_task_that_no_client_makes(ask: Ask, store: Store) -> None:
    accepted = []
    for changed in TASKS:
        response = await ask("enqueue", {"batch": [task(), task(**changed)]})
        if response.status_code == 200:
            accepted.append(repr(changed)[:80])
        else:
            refused(response)
    assert not accepted
    assert await nothing_kept(store)


@pytest.mark.parametrize("kind", RECORD_TYPES)
async def test_a_record_that_no_client_makes(kind: str, ask: Ask, store: Store) -> None:
    record, attacks = RECORDS[kind]
    accepted = []
    for changed in attacks:
        response = await ask("put", {"kind": kind, "record": {**record, **changed}})
        if response.status_code == 200:
            accepted.append(repr(changed)[:80])
        else:
            assert response.status_code in (422, 501), response.text
    assert not accepted
    for stored in KINDS:
        assert not await all_records(store, stored)  # type: ignore[type-var]
    if kind in KINDS.values():
        assert (await ask("put", {"kind": kind, "record": record})).status_code == 200


SESSION = {"session": "s", "worker": {"name": "w"}, "lease_for": 30, "opening": True}
LEASE = {"task_id": new_id(), "fence": 1}
BURY = {"kind": "bury", "error": {"type": "E", "message": ""}}
BY = {"who": "ann"}


def settled(**changed: Any) -> dict[str, Any]:
    return {"batch": [{"lease": LEASE, "verdict": BURY, "outcome": "failed", **changed}]}


def beat(**changed: Any) -> dict[str, Any]:
    return {"beat": {**SESSION, **changed}}


def claim(**changed: Any) -> dict[str, Any]:
    return {"claim": {"session": "s", "queues": ["q"], "limit": 1, "number": 1, **changed}}


def applied(action: dict[str, Any]) -> dict[str, Any]:
    return {"action": {"by": BY, **action}, "where": {}, "limit": 1}


LONG = "x" * 20_000
STUCK = {"task_id": new_id(), "type": "t", "attempt": 1, "overrun": 2.0}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("settle", settled(duration=-1)),
    ("settle", settled(duration=1e300)),
    ("settle", settled(outcome=LONG)),
    ("settle", settled(outcome="a\nb")),
    ("settle", settled(notes=[])),
    ("settle", settled(notes={"x": "y" * 70_000})),
    ("settle", settled(progress={"fraction": 2})),
    ("settle", settled(progress={"fraction": 1, "message": LONG})),
    ("settle", settled(verdict={**BURY, "error": {"type": LONG, "message": ""}})),
    ("settle", settled(verdict={**BURY, "error": {"type": "E", "message": LONG}})),
    ("settle", settled(verdict={**BURY, "error": {"type": "E", "message": "", "traceback": LONG}})),
    ("settle", settled(verdict={"kind": "postpone", "delay": -1, "reason": "retry"})),
    ("settle", settled(verdict={"kind": "complete", "result": {"x": "y" * 3_300_000}})),
    ("settle", settled(verdict={"kind": "complete", "successors": [task(type="a b")]})),
    ("settle", settled(verdict={"kind": "complete", "successors": [task(next="boo")]})),
    ("heartbeat", beat(lease_for=-1)),
    ("heartbeat", beat(session=LONG)),
    ("heartbeat", beat(session="a\x1bb")),
    ("heartbeat", beat(worker={"name": LONG})),
    ("heartbeat", beat(worker={"name": "w", "host": "\x1b[2J"})),
    ("heartbeat", beat(worker={"name": "w", "slots": -1})),
    ("heartbeat", beat(worker={"name": "w", "queues": ["\n"]})),
    ("heartbeat", beat(worker={"name": "w", "types": [LONG]})),
    ("heartbeat", beat(worker={"name": "w", "stuck": [STUCK] * 101})),
    ("heartbeat", beat(worker={"name": "w", "stuck": [{**STUCK, "type": LONG}]})),
    ("heartbeat", beat(worker={"name": "w", "stuck": [{**STUCK, "task_id": LONG}]})),
    ("heartbeat", beat(worker={"name": "w", "stuck": [{**STUCK, "place": LONG}]})),
    ("heartbeat", beat(worker={"name": "w", "stuck": [{**STUCK, "overrun": -1}]})),
    ("heartbeat", beat(progress=[{"lease": LEASE, "progress": {"fraction": -1}}])),
    ("claim", claim(session=LONG)),
    ("claim", claim(number=-1)),
    ("lead", {"holder": LONG, "lease_for": 1}),
    ("lead", {"holder": "h", "lease_for": -1}),
    ("once", {"lease": LEASE, "key": LONG}),
    ("ended", {"ids": [new_id()] * 1_001}),
    ("apply", applied({"kind": "cancel", "by": {"who": "w", "why": LONG}})),
    ("apply", applied({"kind": "replay", "payload": []})),
    ("apply", applied({"kind": "replay", "payload": {"x": "y" * 3_300_000}})),
    ("apply", applied({"kind": "replay", "fingerprint": LONG})),
    ("find", {"where": {}, "page": {"cursor": LONG}}),
]


async def test_a_call_that_no_client_makes(ask: Ask, store: Store) -> None:
    accepted = []
    for verb, message in CALLS:
        response = await ask(verb, message)
        if response.status_code == 200:
            accepted.append(f"{verb} {message}"[:120])
        else:
            refused(response)
    assert not accepted
    assert not await all_records(store, Session)


class TestWhoEnqueued:
    async def test_a_key_cannot_pass_for_another(
        self, url: str, http: httpx2.AsyncClient, keys: Keys
    ) -> None:
        made = await keys.create("shop", scopes=[Scope.ENQUEUE, Scope.READ])
        api = Api(http, url, made.text)
        named = f"key {made.key.name} (shop)"
        for claimed, shown in (
            ("", named),
            ("key 000000000000 (boss)", f"{named} for key 000000000000 (boss)"),
            ("a\x1b[31mb\0", f"{named} for a\\x1b[31mb\\x00"),
            ("w" * 9_000, f"{named} for {'w' * 200}"),
        ):
            new = task(enqueued_by=claimed)
            await api.good("POST", "/store/enqueue", {"batch": [new]})
            assert (await api.good("GET", f"/tasks/{new['id']}"))["enqueued_by"] == shown

    async def test_without_keys_a_claim_is_printable(self, api_of: Api) -> None:
        new = task(enqueued_by="a\x1b[31mb" + "w" * 9_000)
        await api_of.good("POST", "/store/enqueue", {"batch": [new]})
        shown = (await api_of.good("GET", f"/tasks/{new['id']}"))["enqueued_by"]
        assert shown.isprintable()
        assert len(shown) == 200
