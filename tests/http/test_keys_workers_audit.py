"""Workers, the audit log and API keys over HTTP."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import msgspec
import pytest
from msgspec.structs import replace

from tests.http.api_client import Api
from tests.http.conftest import Ask
from tests.http.problem import problem
from tests.loops.workers import eventually
from tests.servers.api import ApiServer
from windlass import App
from windlass._client import records
from windlass._client.keys import Keys
from windlass._http.auth import FRESH_FOR
from windlass._ids import new_id
from windlass._model.filter import Page
from windlass._model.key import Scope
from windlass._model.record import Audit
from windlass._store.messages import RECORD_TYPES
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass.testing.clock import ManualClock


async def audits(store: Store) -> list[Audit]:
    return [*(await store.records(Audit, Page(limit=1_000))).items]


async def known(api: Api) -> httpx2.Response:
    """Ask until the key is known; it takes a second at most."""

    async def asked() -> httpx2.Response | None:
        response = await api("GET", "/tasks")
        return None if response.status_code == 401 else response

    found = await eventually(asked, within=FRESH_FOR + 2)
    assert found is not None
    return found


class TestWorkers:
    async def test_those_that_live_and_those_that_do_not(
        self, api: ApiServer, http: httpx2.AsyncClient
    ) -> None:
        clock = ManualClock()
        store = MemoryStore(clock=clock)
        own = Api(http, api.serve(store, open_to_all=True))
        assert await own.good("GET", "/workers") == {"items": []}
        await own.enqueue(queue="mail")
        silent = await own.session("mail", name="silent", slots=3)
        await own.claim(silent, 1, "mail")
        clock.advance(timedelta(hours=1))
        lively = await own.session("mail", "a/b", name="lively", host="h", pid=7, version="v1")
        items = {one["session"]: one for one in (await own.good("GET", "/workers"))["items"]}
        assert {one: items[one]["alive"] for one in items} == {silent: False, lively: True}
        assert {one: items[one]["keeper"] for one in items} == {silent: False, lively: False}
        one = items[lively]
        assert (one["name"], one["queues"], one["slots"], one["busy"]) == ("lively", ["mail", "a/b"], 1, 0)
        assert one["started_at"] == one["beat_at"] < one["expires_at"]

    async def test_the_keeper_is_told_apart(self, api_of: Api, store: MemoryStore) -> None:
        await api_of.session("mail", name="keeper of nothing")  # has slots, and is a worker
        keeping = asyncio.ensure_future(App(store).keeper(name="k").run())

        async def both() -> bool:
            flags = [one["keeper"] for one in (await api_of.good("GET", "/workers"))["items"]]
            return sorted(flags) == [False, True]

        await eventually(both)
        keeping.cancel()
        await asyncio.wait([keeping])
        assert [one["keeper"] for one in (await api_of.good("GET", "/workers"))["items"]] == [False]


class TestAudit:
    @pytest.mark.parametrize("newest_first", [None, False, True])
    async def test_pages_lead_through_all_of_it(self, newest_first: bool | None, on_each: Api) -> None:
        for number in range(23):
            await on_each.good(
                "PATCH", "/queues/mail?create=true", {"stripes": 1 + number, "why": f"w{number}"}
            )
        more = "" if newest_first is None else f"&newest_first={'true' if newest_first else 'false'}"
        at: str | None = f"/audit?limit=5{more}"
        found: list[dict[str, Any]] = []
        sizes = []
        while at is not None:
            response = await on_each("GET", at)
            page = response.json()
            found += page["items"]
            sizes.append(len(page["items"]))
            link = response.headers.get("link")
            assert (link is None) is (page["cursor"] is None)
            at = None if link is None else link[1:].partition(">")[0]
        told = [one["why"] for one in found]
        wanted = [f"w{number}" for number in range(23)]
        assert told == (wanted if newest_first is False else wanted[::-1])
        assert sizes[:5] == [5, 5, 5, 5, 3]
        assert {one["subject"] for one in found} == {"queue mail"}
        assert len({one["id"] for one in found}) == 23

    async def test_of_a_task_and_of_what_people_set(self, api_of: Api) -> None:
        assert await api_of.good("GET", "/audit") == {"items": [], "cursor": None}
        made = await api_of.enqueue()
        await api_of.good("DELETE", f"/tasks/{made}?why=mistaken")
        await api_of.good("PUT", "/limits/n", {"running": 1, "all": True})
        limit, task = (await api_of.good("GET", "/audit"))["items"]
        assert (task["task_id"], task["who"], task["why"]) == (made, "anonymous", "mistaken")
        assert (limit["task_id"], limit["subject"]) == (None, "limit n")

    async def test_it_can_be_searched(self, on_each: Api) -> None:
        made = await on_each.enqueue()
        await on_each.good("DELETE", f"/tasks/{made}?why=mistaken")
        for number in range(5):
            await on_each.good(
                "PATCH", "/queues/mail?create=true", {"stripes": 2 + number, "why": f"w{number}"}
            )
            await on_each.good("PATCH", "/queues/post?create=true", {"stripes": 2 + number})

        async def found(query: str) -> list[str]:
            return [one["why"] for one in (await on_each.good("GET", f"/audit?{query}"))["items"]]

        assert await found(f"subject={made}") == await found("action=cancel") == ["mistaken"]
        assert await found("subject=QUEUE%20mail&who=ANON") == ["w4", "w3", "w2", "w1", "w0"]
        assert await found("subject=mail&newest_first=false&limit=2") == ["w0", "w1"]
        assert await found("who=nobody") == await found("action=canc") == []
        pages, cursor = [], ""
        while cursor is not None:
            page = await on_each.good("GET", f"/audit?subject=mail&limit=2{cursor and f'&cursor={cursor}'}")
            pages.append([one["why"] for one in page["items"]])
            cursor = page["cursor"]
        assert pages == [["w4", "w3"], ["w2", "w1"], ["w0"]]

    async def test_a_search_reads_a_part_and_leads_on(
        self, api_of: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(records, "MAX_PAGE", 2)
        monkeypatch.setattr(records, "MAX_SEARCHED", 4)
        for number in range(9):
            await api_of.good("PATCH", f"/queues/q{number}?create=true", {"stripes": 2})
        empty = await api_of.good("GET", "/audit?subject=q0")
        assert empty["items"] == []
        more = await api_of.good("GET", f"/audit?subject=q0&cursor={empty['cursor']}")
        last = await api_of.good("GET", f"/audit?subject=q0&cursor={more['cursor']}")
        assert [one["subject"] for one in last["items"]] == ["queue q0"]
        assert last["cursor"] is None

    @pytest.mark.parametrize(
        "query", ["cursor=x", "cursor=%00", "limit=0", "limit=1001", "newest=1", f"who={'x' * 201}"]
    )
    async def test_what_cannot_be_asked(self, query: str, api_of: Api) -> None:
        assert (await api_of("GET", f"/audit?{query}")).status_code == 422


class TestKeys:
    @pytest.fixture
    async def admin(self, http: httpx2.AsyncClient, url: str, keys: Keys) -> Api:
        return Api(http, url, (await keys.create("root", scopes=[Scope.ADMIN])).text)

    async def test_one_that_is_made_is_known_within_a_second(self, admin: Api) -> None:
        """Not at once: a server looks at the keys once a second, whoever asks."""
        said = {"label": "mine", "scopes": ["enqueue", "read"], "tenant": "acme", "queues": ["mail", "a/b"]}
        response = await admin("POST", "/keys", {**said, "expires_in": 3600, "rate": 50, "why": "new"})
        assert response.status_code == 201
        assert response.headers["cache-control"] == "no-store"
        made = response.json()
        assert {name: made[name] for name in said} == said
        assert made["rate"] == 50.0
        expires = datetime.fromisoformat(made["expires_at"]) - datetime.fromisoformat(made["created_at"])
        assert expires == timedelta(hours=1)
        own = admin.by(made["key"])
        assert (await known(own)).status_code == 200
        assert (
            await own("POST", "/tasks", {"type": "t", "tenant": "acme", "queue": "mail"})
        ).status_code == 201
        problem(await own("POST", "/tasks", {"type": "t", "tenant": "bob"}), 403, "forbidden")

    async def test_its_secret_is_in_that_one_answer_alone(
        self, admin: Api, store: MemoryStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        made = await admin.good("POST", "/keys", {"label": "mine", "scopes": ["admin"], "why": "w"})
        text = made.pop("key")
        secret = text.rpartition("_")[2]
        assert len(secret) > 20
        own = admin.by(text)
        await known(own)
        told = [
            (await own("GET", path)).text for path in ("/keys", "/audit", "/workers", "/overview", "/tasks")
        ]
        await own("GET", "/nowhere")
        await own("POST", "/keys", {"label": "\0", "scopes": ["read"]})
        kept = msgspec.json.encode(
            [(await store.records(kind, Page())).items for kind in RECORD_TYPES.values()]
        )
        for one in (*told, caplog.text, kept.decode()):
            assert secret not in one
        listed = (await own.good("GET", "/keys"))["items"]
        assert made in [{**one, "last_used_at": None} for one in listed]
        (line,) = await audits(store)
        assert (line.subject, line.why) == (f"key {made['id']}", "w")

    async def test_one_that_is_revoked_is_refused(self, admin: Api, store: MemoryStore) -> None:
        made = await admin.good("POST", "/keys", {"label": "mine", "scopes": ["read"]})
        own = admin.by(made["key"])
        await known(own)
        await admin.good("DELETE", f"/keys/{made['id']}?why=lost")

        async def refused() -> bool:
            return (await own("GET", "/tasks")).status_code == 401

        await eventually(refused, within=FRESH_FOR + 2)
        problem(await own("GET", "/tasks"), 401, "unauthorized")
        problem(await admin("DELETE", f"/keys/{made['id']}"), 404, "not-found")
        assert made["id"] not in {one["id"] for one in (await admin.good("GET", "/keys"))["items"]}
        assert [one.why for one in await audits(store)] == ["", "lost"]

    @pytest.mark.parametrize(
        ("said", "named"),
        [
            ({"scopes": ["read"]}, "label"),
            ({"label": "", "scopes": ["read"]}, "label"),
            ({"label": " ", "scopes": ["read"]}, "label"),
            ({"label": "a\nb", "scopes": ["read"]}, "label"),
            ({"label": "x" * 101, "scopes": ["read"]}, "label"),
            ({"label": "x"}, "scopes"),
            ({"label": "x", "scopes": []}, "scopes"),
            ({"label": "x", "scopes": ["all"]}, "scopes"),
            ({"label": "x", "scopes": "read"}, "scopes"),
            ({"label": "x", "scopes": ["read"], "tenant": ""}, "tenant"),
            ({"label": "x", "scopes": ["read"], "queues": []}, "queues"),
            ({"label": "x", "scopes": ["read"], "queues": ["a b"]}, "queues"),
            ({"label": "x", "scopes": ["read"], "expires_in": 0}, "expires_in"),
            ({"label": "x", "scopes": ["read"], "rate": 0}, "rate"),
            ({"label": "x", "scopes": ["read"], "rate": 1e9}, "rate"),
            ({"label": "x", "scopes": ["read"], "key": "mine"}, "key"),
            ({"label": "x", "scopes": ["read"], "hash": "0" * 64}, "hash"),
        ],
        ids=lambda value: str(value)[:60],
    )
    async def test_what_is_wrong_is_named_and_makes_none(
        self, said: dict[str, Any], named: str, admin: Api, keys: Keys
    ) -> None:
        refused = await admin("POST", "/keys", said)
        assert named in problem(refused, 422, refused.json()["code"])["detail"]
        assert len(await keys.list()) == 1


class TestGain:
    """Whoever may not have more cannot make himself a key that has."""

    BOUNDS: tuple[dict[str, Any], ...] = (
        {"tenant": "acme"},
        {"queues": ["mail"]},
        {"tenant": "acme", "queues": ["mail"]},
    )

    async def test_by_a_key(self, http: httpx2.AsyncClient, url: str, keys: Keys) -> None:
        others = [scope for scope in Scope if scope not in (Scope.ADMIN, Scope.OBSERVE)]
        weak = [await keys.create("k", scopes=others)]
        weak += [await keys.create("k", scopes=[*others, Scope.ADMIN], **bounds) for bounds in self.BOUNDS]
        before = await keys.list()
        now = datetime.now(UTC).isoformat()
        record = {"name": "0" * 12, "label": "x", "hash": "0" * 64, "scopes": ["admin"], "created_at": now}
        for key in weak:
            own = Api(http, url, key.text)
            for said in ({"label": "x", "scopes": ["read"]}, {"label": "x", "scopes": ["admin"]}):
                problem(await own("POST", "/keys", said), 403, "forbidden")
            problem(await own("GET", "/keys"), 403, "forbidden")
            problem(await own("DELETE", f"/keys/{before[0].name}"), 403, "forbidden")
            for verb, asked in (
                ("put", {"kind": "key", "record": record}),
                ("remove", {"kind": "key", "name": before[0].name}),
                ("records", {"kind": "key", "page": {}}),
            ):
                problem(await own("POST", f"/store/{verb}", asked), 403, "forbidden")
        assert [replace(key, last_used_at=None) for key in await keys.list()] == before


class TestSigned:
    """Who is put down in the audit log for a client of the seam: the key, whomever the client names."""

    @pytest.fixture
    async def key(self, keys: Keys) -> Any:
        return await keys.create("robot", scopes=[Scope.OPERATE, Scope.READ, Scope.ADMIN])

    @pytest.fixture
    def far(self, http: httpx2.AsyncClient, url: str, key: Any) -> Api:
        return Api(http, url, key.text)

    async def test_what_is_done_to_tasks(self, far: Api, key: Any, store: MemoryStore) -> None:
        whole = far.by(key.text)
        made = await whole.enqueue()
        action = {"kind": "cancel", "by": {"who": "eve", "why": "fun"}}
        asked = {"action": action, "where": {"ids": [made]}, "limit": 1}
        done = await far("POST", "/store/apply", asked)
        assert done.status_code == 200, done.text
        (line,) = await audits(store)
        assert (line.who, line.why) == (f"key {key.key.name} (robot) for eve", "fun")

    @pytest.mark.parametrize("by", [None, {"who": "eve", "why": "fun"}, {"who": "e" * 10_000}])
    @pytest.mark.parametrize(
        ("kind", "record"),
        [
            ("queue", {"name": "mail", "stripes": 2}),
            ("limit", {"name": "n", "running": 1}),
            ("schedule", {"name": "n", "type": "t", "every": 3600}),
            ("alert", {"name": "n", "count": 1}),
        ],
    )
    async def test_what_people_set(
        self, kind: str, record: dict[str, Any], by: Any, far: Api, key: Any, store: MemoryStore
    ) -> None:
        who = f"key {key.key.name} (robot)"
        wanted = who if by is None else f"{who} for {by['who'][:200]}"
        put = await far("POST", "/store/put", {"kind": kind, "record": record, "by": by})
        assert put.status_code == 200, put.text
        removed = await far("POST", "/store/remove", {"kind": kind, "name": record["name"], "by": by})
        assert removed.status_code == 200, removed.text
        assert {one.who for one in await audits(store)} == {wanted}
        assert len(await audits(store)) == 2

    async def test_a_prune_that_a_person_asks_for(self, far: Api, key: Any, store: MemoryStore) -> None:
        """The keeper's own, which names nobody, is none."""
        retention: dict[str, Any] = {"completed": 0, "cancelled": 0, "dead": 0}
        told = []
        for by in (None, {"who": "eve"}):
            await far.good("DELETE", f"/tasks/{await far.enqueue()}")
            pruned = await far("POST", "/store/prune", {"default": retention, "limit": 10, "by": by})
            assert [one["number"] for one in pruned.json()["counts"]] == [1]
            told.append([one.who for one in await audits(store) if one.action == "prune"])
        assert told == [[], [f"key {key.key.name} (robot) for eve"]]

    async def test_what_keepers_keep_is_not_told(self, far: Api, store: MemoryStore) -> None:
        """Unless somebody signs it."""
        record = {"name": "n", "at": datetime.now(UTC).isoformat()}
        await far.good("POST", "/store/put", {"kind": "tick", "record": record})
        assert await audits(store) == []
        await far.good("POST", "/store/put", {"kind": "tick", "record": record, "by": {"who": "eve"}})
        assert [one.subject for one in await audits(store)] == ["tick n"]

    async def test_without_keys_it_is_who_it_says(self, ask: Ask, store: MemoryStore) -> None:
        asked = {"kind": "queue", "record": {"name": "mail", "paused": True}, "by": {"who": "eve"}}
        assert (await ask("put", asked)).status_code == 200
        assert [one.who for one in await audits(store)] == ["eve"]

    async def test_nobody_writes_the_log_itself(self, far: Api, store: MemoryStore) -> None:
        line = {
            "id": new_id(),
            "at": datetime.now(UTC).isoformat(),
            "who": "x",
            "why": "",
            "action": "cancel",
        }
        for verb, asked in (
            ("put", {"kind": "audit", "record": line}),
            ("remove", {"kind": "audit", "name": line["id"]}),
        ):
            assert (await far("POST", f"/store/{verb}", asked)).status_code >= 400
        assert await audits(store) == []
