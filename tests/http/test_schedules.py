"""Schedules over HTTP: put, pause, trigger, remove; errors name the field."""

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from tests.http.api_client import Api, lease
from tests.http.problem import problem
from tests.servers.api import ApiServer
from windlass import App, chain
from windlass._client.keys import Keys
from windlass._ids import new_id
from windlass._model.filter import Page
from windlass._model.key import Scope
from windlass._model.record import Audit
from windlass._model.schedule import Schedule
from windlass._policy.schedule import tick_task
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore

DEFAULTS: dict[str, Any] = {
    "payload": {},
    "zone": "UTC",
    "missed": "skip",
    "at_most": 100,
    "overlap": "allow",
    "jitter": 0.0,
    "queue": "default",
    "tenant": "",
    "priority": 0,
    "max_attempts": 8,
    "timeout": None,
}
FULL: dict[str, Any] = {
    "type": "shop.report",
    "payload": {"day": "today", "n": [1, None, "ä"]},
    "zone": "Europe/Berlin",
    "missed": "all",
    "at_most": 7,
    "overlap": "skip",
    "jitter": 12.5,
    "queue": "a/b",
    "tenant": "日本",
    "priority": 5,
    "max_attempts": 3,
    "timeout": 30.5,
}


async def kept_schedules(store: Store) -> list[Schedule]:
    return [*(await store.records(Schedule, Page(limit=100))).items]


async def audits(store: Store) -> list[Audit]:
    return [*(await store.records(Audit, Page(limit=100))).items]


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


class TestPut:
    @pytest.mark.parametrize(
        ("rule", "cron", "every"),
        [
            ("0 3 * * *", "0 3 * * *", None),
            ("  0  3 * *   * ", "0 3 * * *", None),
            ("5m", None, 300.0),
            ("1h30m", None, 5400.0),
            (90, None, 90.0),
            (3601.5, None, 3601.5),
        ],
    )
    async def test_what_is_set_is_what_is_seen(
        self, rule: Any, cron: str | None, every: float | None, on_each: Api
    ) -> None:
        said = FULL if cron else {**FULL, "zone": "UTC"}
        made = await on_each.good("PUT", "/schedules/n", {**said, "rule": rule})
        assert {name: made[name] for name in ("name", "cron", "every")} == {
            "name": "n",
            "cron": cron,
            "every": every,
        }
        assert {name: made[name] for name in said} == said
        assert (made["paused"], made["declared"], made["error"]) == (False, False, None)
        assert (made["last_at"], made["task_id"]) == (None, None)
        assert instant(made["next_at"]) > datetime.now(UTC) - timedelta(seconds=5)
        shown = await on_each.good("GET", "/schedules/n")
        assert {**shown, "next_at": None} == {**made, "next_at": None}
        (listed,) = (await on_each.good("GET", "/schedules"))["items"]
        assert {**listed, "next_at": None} == {**made, "next_at": None}
        again = await on_each.good(
            "PUT", "/schedules/n", {**{name: shown[name] for name in said}, "rule": cron or every}
        )
        assert {**again, "next_at": None} == {**made, "next_at": None}

    async def test_what_is_left_out_is_the_default(self, api_of: Api) -> None:
        made = await api_of.good("PUT", "/schedules/n", {"type": "t", "rule": "1h"})
        assert {name: made[name] for name in DEFAULTS} == DEFAULTS

    async def test_what_is_left_out_is_as_the_type_declares(
        self, api: ApiServer, http: httpx2.AsyncClient, store: MemoryStore
    ) -> None:
        app = App(store)

        @app.task(name="pay", queue="money", max_attempts=2, timeout=9, secret=("card",), priority="high")
        async def pay(card: str) -> None: ...

        own = Api(http, api.serve_app(app, open_to_all=True))
        made = await own.good(
            "PUT", "/schedules/n", {"type": "pay", "rule": "1h", "payload": {"card": "4111"}}
        )
        assert (made["queue"], made["max_attempts"], made["timeout"]) == ("money", 2, 9.0)
        assert made["priority"] > 0
        assert "4111" not in str(made)
        (kept,) = await kept_schedules(store)
        assert (kept.payload, kept.secret) == (b'{"card":"4111"}', ("card",))
        for payload in ({}, {"card": 1}, {"card": "x", "more": 1}):
            refused = await own("PUT", "/schedules/n", {"type": "pay", "rule": "1h", "payload": payload})
            problem(refused, 422, "invalid-payload")
        assert await kept_schedules(store) == [kept]

    @pytest.mark.parametrize("name", ["a", "a/b", "a//b/", "日本", "x" * 128, "a/pause", "a@b:c+d.e-f"])
    async def test_of_any_good_name(self, name: str, api_of: Api) -> None:
        at = f"/schedules/{quote(name)}"
        problem(await api_of("GET", at), 404, "not-found")
        assert (await api_of.good("PUT", at, {"type": "t", "rule": "1h"}))["name"] == name
        assert (await api_of.good("POST", f"{at}/pause"))["paused"] is True
        assert (await api_of.good("POST", f"{at}/resume"))["paused"] is False
        assert (await api_of.good("POST", f"{at}/trigger"))["id"]
        assert len((await api_of.good("GET", f"{at}/ticks"))["items"]) == 5
        assert (await api_of.good("GET", f"/schedules/{quote(name, safe='')}"))["name"] == name
        await api_of.good("DELETE", at)
        problem(await api_of("DELETE", at), 404, "not-found")

    @pytest.mark.parametrize("name", ["", "\0", "a b", "-a", "x" * 129, "日" * 67, "x" * 10_000])
    async def test_what_is_no_name_is_no_schedule(self, name: str, api_of: Api, store: MemoryStore) -> None:
        at = f"/schedules/{quote(name, safe='')}"
        for method, then in (("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/trigger")):
            assert len(problem(await api_of(method, f"{at}{then}"), 404, "not-found")["detail"]) < 500
        problem(await api_of("PUT", at, {"type": "t", "rule": "1h"}), 422, "invalid-option")
        assert await kept_schedules(store) == []

    @pytest.mark.parametrize(
        ("body", "named"),
        [
            ({"type": "t"}, "rule"),
            ({"rule": "1h"}, "type"),
            ({"type": "a b", "rule": "1h"}, "type"),
            ({"type": "t", "rule": ""}, "cron expression or an interval"),
            ({"type": "t", "rule": "61 * * * *"}, "61"),
            ({"type": "t", "rule": "* * *"}, "* * *"),
            ({"type": "t", "rule": "0 0 30 2 *"}, "0 0 30 2 *"),
            ({"type": "t", "rule": "soon"}, "cron expression or an interval"),
            ({"type": "t", "rule": 0}, "rule"),
            ({"type": "t", "rule": 0.5}, "at least 1 s"),
            ({"type": "t", "rule": 1e300}, "interval"),
            ({"type": "t", "rule": None}, "rule"),
            ({"type": "t", "rule": "x" * 100_000}, "cron expression or an interval"),
            ({"type": "t", "rule": "0 3 * * *", "zone": "Mars/Olympus"}, "Mars/Olympus"),
            ({"type": "t", "rule": "0 3 * * *", "zone": "../../etc/passwd"}, "zone"),
            ({"type": "t", "rule": "1h", "zone": "Europe/Berlin"}, "zone is for cron"),
            ({"type": "t", "rule": "1h", "missed": "twice"}, "missed"),
            ({"type": "t", "rule": "1h", "at_most": 0}, "at_most"),
            ({"type": "t", "rule": "1h", "at_most": 1_001}, "at_most"),
            ({"type": "t", "rule": "1h", "overlap": "never"}, "overlap"),
            ({"type": "t", "rule": "1h", "jitter": -1}, "jitter"),
            ({"type": "t", "rule": "1h", "jitter": 86_401}, "jitter"),
            ({"type": "t", "rule": "1h", "payload": [1]}, "payload"),
            ({"type": "t", "rule": "1h", "payload": {"a": "\0"}}, "NUL"),
            ({"type": "t", "rule": "1h", "queue": "a b"}, "queue"),
            ({"type": "t", "rule": "1h", "priority": "urgent"}, "priority"),
            ({"type": "t", "rule": "1h", "max_attempts": 0}, "max_attempts"),
            ({"type": "t", "rule": "1h", "paused": True}, "paused"),
            ({"type": "t", "rule": "1h", "why": "x" * 501}, "why"),
        ],
        ids=lambda value: str(value)[:60],
    )
    async def test_what_is_wrong_is_named_and_changes_nothing(
        self, body: dict[str, Any], named: str, api_of: Api, store: MemoryStore
    ) -> None:
        await api_of.good("PUT", "/schedules/n", {"type": "t", "rule": "1h"})
        before = await kept_schedules(store), await audits(store)
        refused = await api_of("PUT", "/schedules/n", body)
        told = problem(refused, 422, refused.json()["code"])
        assert named in told["detail"]
        assert len(told["detail"]) < 1_000
        assert (await kept_schedules(store), await audits(store)) == before


class TestStanding:
    async def test_one_put_in_place_of_another_stays_paused(self, api_of: Api) -> None:
        await api_of.good("PUT", "/schedules/n", {"type": "t", "rule": "1h"})
        paused = await api_of.good("POST", "/schedules/n/pause")
        assert (paused["paused"], paused["next_at"]) == (True, None)
        other = await api_of.good("PUT", "/schedules/n", {"type": "u", "rule": "2h"})
        assert (other["type"], other["paused"], other["next_at"]) == ("u", True, None)
        resumed = await api_of.good("POST", "/schedules/n/resume")
        assert resumed["paused"] is False
        assert resumed["next_at"] is not None

    async def test_one_put_in_place_of_a_declared_one(
        self, api: ApiServer, http: httpx2.AsyncClient, store: MemoryStore
    ) -> None:
        def declared() -> App:
            app = App(store)

            @app.task(name="t", schedule="1h")
            async def t() -> None: ...

            return app

        await declared().open()
        own = Api(http, api.serve(store, open_to_all=True))
        assert (await own.good("GET", "/schedules/t"))["declared"] is True
        put = await own.good("PUT", "/schedules/t", {"type": "t", "rule": "2h"})
        assert (put["declared"], put["every"]) == (False, 7200.0)
        await declared().open()  # A restart changes nothing.
        assert (await own.good("GET", "/schedules/t"))["every"] == 7200.0

    async def test_ticks(self, api_of: Api) -> None:
        rule = {"type": "t", "rule": "30 12 * * *", "zone": "Europe/Berlin"}
        await api_of.good("PUT", "/schedules/n", rule)
        ticks = [instant(one) for one in (await api_of.good("GET", "/schedules/n/ticks?number=400"))["items"]]
        assert len(ticks) == 400
        assert ticks == sorted(set(ticks))
        gaps = {later - one for one, later in pairwise(ticks)}
        assert gaps == {timedelta(hours=hours) for hours in (23, 24, 25)}
        assert ticks[0] == instant((await api_of.good("GET", "/schedules/n"))["next_at"])
        await api_of.good("POST", "/schedules/n/pause")
        assert len((await api_of.good("GET", "/schedules/n/ticks"))["items"]) == 5
        for number in ("0", "1001", "-1", "x"):
            problem(await api_of("GET", f"/schedules/n/ticks?number={number}"), 422, "invalid-request")
        problem(await api_of("GET", "/schedules/other/ticks"), 404, "not-found")

    async def test_past_ticks_and_what_became_of_them(self, on_each: Api, kept: Store) -> None:
        now = await kept.now()
        schedule = Schedule(
            name="n", type="t", every=timedelta(minutes=1), since=now - timedelta(minutes=3, seconds=30)
        )
        await kept.put(schedule)
        newest, *older = (await on_each.good("GET", "/schedules/n/ticks/past"))["items"]
        assert len(older) in (2, 3)
        assert newest["at"] > older[0]["at"] > older[1]["at"]
        assert (newest["task_id"], newest["state"], newest["late"]) == (None, None, None)
        task = tick_task(schedule, instant(newest["at"]), new_id)
        await kept.enqueue([task])
        seen = (await on_each.good("GET", "/schedules/n/ticks/past?number=2"))["items"]
        (fired,) = [one for one in seen if one["at"] == newest["at"]]
        assert (fired["task_id"], fired["state"]) == (task.id, "ready")
        assert 0 <= fired["late"] < 150
        for number in ("0", "101", "-1", "1e9", "x"):
            problem(await on_each("GET", f"/schedules/n/ticks/past?number={number}"), 422, "invalid-request")
        problem(await on_each("GET", "/schedules/other/ticks/past"), 404, "not-found")

    async def test_how_late_it_is(self, on_each: Api, kept: Store) -> None:
        now = await kept.now()
        await kept.put(Schedule(name="a", type="t", cron="30 3 * * 1-5", since=now))
        await kept.put(Schedule(name="b", type="t", every=timedelta(hours=1), since=now - timedelta(hours=2)))
        await kept.put(Schedule(name="c", type="t", cron="@reboot", since=now))
        a, b, c = (await on_each.good("GET", "/schedules"))["items"]
        assert a["late"] == 0
        assert 3600 <= b["late"] < 7300
        assert (c["late"], c["next_at"]) == (0, None)

    async def test_a_change_keeps_what_is_not_named(self, on_each: Api, kept: Store) -> None:
        made = await on_each.good("PUT", "/schedules/n", {**FULL, "rule": "0 3 * * *", "secret": ["day"]})
        assert made["payload"]["day"] != "today"
        changed = await on_each.good("PATCH", "/schedules/n", {"rule": "0 4 * * *", "missed": "skip"})
        assert (changed["cron"], changed["missed"], changed["zone"]) == ("0 4 * * *", "skip", FULL["zone"])
        (stored,) = await kept_schedules(kept)
        assert json.loads(stored.payload) == FULL["payload"]
        assert (stored.secret, stored.jitter, stored.overlap) == (("day",), timedelta(seconds=12.5), "skip")
        changed = await on_each.good("PATCH", "/schedules/n", {"payload": {"n": 2}, "timeout": None})
        assert (changed["cron"], changed["payload"], changed["timeout"]) == ("0 4 * * *", {"n": 2}, None)
        problem(await on_each("PATCH", "/schedules/n", {"rule": "1h"}), 422, "invalid-option")  # has a zone
        problem(await on_each("PATCH", "/schedules/other", {"rule": "1h"}), 404, "not-found")

    async def test_a_change_keeps_what_code_declares(self, api_of: Api, store: MemoryStore) -> None:
        app = App(store)

        @app.task(name="t")
        async def task() -> None: ...

        app.schedule("n", chain(task.step(), task.step()), "1h")
        await app.open()
        (before,) = await kept_schedules(store)
        changed = await api_of.good("PATCH", "/schedules/n", {"rule": "2h"})
        assert (changed["declared"], changed["every"]) == (True, 7200)
        (after,) = await kept_schedules(store)
        assert after.next == before.next is not None

    async def test_removing_keeps_what_it_enqueued(self, api_of: Api) -> None:
        await api_of.good("PUT", "/schedules/n", {"type": "t", "rule": "1h"})
        made = (await api_of.good("POST", "/schedules/n/trigger"))["id"]
        await api_of.good("DELETE", "/schedules/n")
        assert (await api_of.good("GET", "/schedules"))["items"] == []
        assert (await api_of.good("GET", f"/tasks/{made}"))["state"] == "ready"
        for method, then in (("DELETE", ""), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/trigger")):
            problem(await api_of(method, f"/schedules/n{then}"), 404, "not-found")

    async def test_what_cannot_be_read_is_told_and_can_be_removed(
        self, api_of: Api, store: MemoryStore
    ) -> None:
        await store.put(Schedule(name="n", type="t", cron="not cron"))
        (shown,) = (await api_of.good("GET", "/schedules"))["items"]
        assert shown["next_at"] is None
        assert shown["error"]
        problem(await api_of("GET", "/schedules/n/ticks"), 422, "invalid-option")
        await api_of.good("DELETE", "/schedules/n")


class TestTrigger:
    async def test_it_enqueues_once_paused_or_not(self, api_of: Api) -> None:
        await api_of.good("PUT", "/schedules/n", {**FULL, "rule": "0 3 * * *", "overlap": "allow"})
        before = (await api_of.good("GET", "/schedules/n"))["next_at"]
        response = await api_of("POST", "/schedules/n/trigger")
        assert response.status_code == 201
        made = response.json()["id"]
        assert response.headers["location"].endswith(f"/tasks/{made}")
        task = await api_of.good("GET", f"/tasks/{made}")
        same = ("type", "payload", "queue", "tenant", "priority", "max_attempts", "timeout")
        assert {name: task[name] for name in same} == {name: FULL[name] for name in same}
        assert task["state"] == "ready"
        assert task["enqueued_by"] == "anonymous, schedule n"
        await api_of.good("POST", "/schedules/n/pause")
        assert (await api_of.good("POST", "/schedules/n/trigger"))["id"] != made
        resumed = await api_of.good("POST", "/schedules/n/resume")
        assert (resumed["next_at"], resumed["last_at"]) == (before, None)

    async def test_one_that_must_not_overlap_says_what_stands(self, on_each: Api) -> None:
        await on_each.good("PUT", "/schedules/n", {"type": "t", "rule": "1h", "overlap": "skip"})
        made = (await on_each.good("POST", "/schedules/n/trigger"))["id"]
        for _ in range(2):
            refused = problem(await on_each("POST", "/schedules/n/trigger"), 409, "duplicate-task")
            assert refused["standing"] == made
            assert made in refused["detail"]
        (claimed,) = await on_each.claim(await on_each.session(), 1)
        problem(await on_each("POST", "/schedules/n/trigger"), 409, "duplicate-task")
        await on_each.settle({**lease(claimed), "outcome": "returned"})
        assert (await on_each.good("POST", "/schedules/n/trigger"))["id"] != made

    async def test_a_repeat_is_no_change(self, api_of: Api, store: MemoryStore) -> None:
        await api_of.good("PUT", "/schedules/n", {"type": "t", "rule": "1h"})
        for _ in range(2):
            await api_of.good("POST", "/schedules/n/trigger?why=x", idempotency_key="k")
        lines = [(one.action, one.why) for one in await audits(store)]
        assert lines == [("create", ""), ("trigger", "x")]


async def test_who_did_it_and_why(http: httpx2.AsyncClient, url: str, keys: Keys, store: MemoryStore) -> None:
    key = await keys.create("ops", scopes=[Scope.OPERATE, Scope.READ])
    own, who = Api(http, url, key.text), f"key {key.key.name} (ops)"
    await own.good("PUT", "/schedules/n", {"type": "t", "rule": "1h", "why": "one"})
    await own.good("POST", "/schedules/n/pause?why=two")
    await own.good("POST", "/schedules/n/resume?why=three")
    made = (await own.good("POST", "/schedules/n/trigger?why=four"))["id"]
    await own.good("DELETE", "/schedules/n?why=five")
    lines = [(one.subject, one.why, one.who) for one in await audits(store)]
    assert lines == [("schedule n", why, who) for why in ("one", "two", "three", "four", "five")]
    assert (await own.good("GET", f"/tasks/{made}"))["enqueued_by"] == f"{who}, schedule n"


async def test_a_repeated_trigger_has_the_same_answer(on_each: Api) -> None:
    await on_each.good("PUT", "/schedules/n", {"type": "t", "rule": "1h"})
    first = await on_each("POST", "/schedules/n/trigger", idempotency_key="k")
    again = await on_each("POST", "/schedules/n/trigger", idempotency_key="k")
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["location"] == first.headers["location"]
    assert ("idempotency-replayed" in first.headers, again.headers["idempotency-replayed"]) == (False, "true")
    other = await on_each("POST", "/schedules/n/trigger", idempotency_key="k2")
    assert other.json()["id"] != first.json()["id"]
