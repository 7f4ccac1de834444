"""Tasks and dead letters over HTTP: list, show, cancel, replay, discard."""

from datetime import datetime
from itertools import product
from typing import Any
from urllib.parse import quote

import pytest

from tests.http.api_client import Api, lease
from tests.http.problem import problem
from windlass._ids import new_id
from windlass._model.filter import Page
from windlass._model.record import Audit
from windlass._model.state import State
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore

ID = "0199c3a2-7d10-7abc-8def-0123456789ab"  # always the same: tests are named by it


async def ids(api: Api, query: str = "", path: str = "/tasks") -> list[str]:
    return [one["id"] for one in (await api.good("GET", f"{path}{query}"))["items"]]


async def audits(store: Store) -> list[tuple[str, str, str]]:
    found = (await store.records(Audit, Page(limit=1000))).items
    return [(str(one.action), one.who, one.why) for one in found]


class TestList:
    async def test_each_filter_and_several_values(self, on_each: Api) -> None:
        made = {}
        for queue, tenant, kind in product("ab", ("", "acme"), "tu"):
            made[queue, tenant, kind] = await on_each.enqueue(
                queue=queue, type=kind, **({"tenant": tenant} if tenant else {})
            )
        keyed = await on_each.enqueue(idempotency_key="k/1 ä", next=[{"type": "x"}])

        def those(**like: str) -> set[str]:
            names = ("queue", "tenant", "kind")
            return {made[key] for key in made if all(key[names.index(n)] == v for n, v in like.items())}

        assert set(await ids(on_each, "?queue=a")) == those(queue="a")
        assert set(await ids(on_each, "?queue=a&queue=b")) == set(made.values())
        assert set(await ids(on_each, "?queue=a&type=u")) == those(queue="a", kind="u")
        assert set(await ids(on_each, "?tenant=acme")) == those(tenant="acme")
        assert set(await ids(on_each, "?tenant=")) == those(tenant="") | {keyed}
        assert set(await ids(on_each, f"?id={keyed}&id={new_id()}")) == {keyed}
        assert await ids(on_each, f"?root={keyed}") == [keyed]
        assert await ids(on_each, f"?idempotency_key={quote('k/1 ä')}") == [keyed]
        assert await ids(on_each, "?state=scheduled&state=running") == []
        assert len(await ids(on_each, "?state=ready")) == 9
        shown = await on_each.good("GET", f"/tasks/{keyed}")
        instant = quote(shown["created_at"])
        assert keyed in await ids(on_each, f"?created_after={instant}")
        assert keyed not in await ids(on_each, f"?created_before={instant}")
        assert await ids(on_each, "?finished_after=2020-01-01T00:00:00Z") == []
        dead = await on_each.die(type="d", queue="z")
        assert await ids(on_each, "?error=it+broke") == await ids(on_each, "?error=Boom") == [dead]
        assert await ids(on_each, "?finished_after=2020-01-01T00:00:00Z") == [dead]
        assert await ids(on_each, "?finished_before=2020-01-01T00:00:00Z") == []
        assert await ids(on_each, "", "/dead") == await ids(on_each, "?state=dead", "/dead") == [dead]
        assert await ids(on_each, "?state=ready", "/dead") == []
        assert await ids(on_each, f"?queue={quote(chr(0x1F600))}") == []

    async def test_counts_are_by_state_and_follow_the_filter(self, on_each: Api) -> None:
        await on_each.die(queue="a")
        for queue in ("a", "a", "b"):
            await on_each.enqueue(queue=queue)

        async def counted(query: str = "") -> dict[str, int]:
            items = (await on_each.good("GET", f"/tasks/counts{query}"))["items"]
            assert all(one["exact"] for one in items)
            return {one["state"]: one["number"] for one in items if one["number"]}

        assert await counted() == {"ready": 3, "dead": 1}
        assert await counted("?queue=a") == {"ready": 2, "dead": 1}
        assert await counted("?queue=a&state=dead&state=running") == {"dead": 1}
        assert len((await on_each.good("GET", "/tasks/counts"))["items"]) == len(State)
        problem(await on_each("GET", "/tasks/counts?limit=1"), 422, "invalid-request")

    async def test_chains_are_listed_with_their_progress(self, on_each: Api) -> None:
        chain = await on_each.enqueue(type="first", queue="c", next=[{"type": "u", "next": [{"type": "v"}]}])
        batch = {"tasks": [{"type": "g"}, {"type": "g"}], "then": {"type": "end"}}
        group = (await on_each.good("POST", "/tasks/batch", batch))["tasks"][0]["id"]
        await on_each.enqueue()
        newest, oldest = (await on_each.good("GET", "/chains"))["items"]
        assert (newest["root"], newest["type"], newest["tasks"], newest["steps"]) == (
            group, "g", {"ready": 2, "waiting": 1}, 0,
        )  # fmt: skip
        assert (oldest["root"], oldest["type"], oldest["tasks"], oldest["steps"]) == (
            chain, "first", {"ready": 1}, 2,
        )  # fmt: skip
        session = await on_each.session("c")
        (claimed,) = await on_each.claim(session, 1, "c")
        assert await on_each.settle(lease(claimed) | {"outcome": "returned"}) == ["applied"]
        first = await on_each.good("GET", "/chains?limit=1")
        (last,) = (await on_each.good("GET", f"/chains?limit=1&cursor={first['cursor']}"))["items"]
        assert (last["root"], last["tasks"], last["steps"]) == (chain, {"completed": 1, "ready": 1}, 1)
        problem(await on_each("GET", "/chains?cursor=x"), 422, "invalid-option")

    @pytest.mark.parametrize("newest_first", [False, True])
    async def test_cursors_lead_through_all_of_them_once(self, newest_first: bool, on_each: Api) -> None:
        tasks = [{"type": "t", "queue": "ab"[number % 2]} for number in range(240)]
        made = [one["id"] for one in (await on_each.good("POST", "/tasks/batch", {"tasks": tasks}))["tasks"]]
        wanted = sorted(made[::2], reverse=newest_first)
        path: str | None = f"/tasks?queue=a&limit=50&newest_first={'true' if newest_first else 'false'}"
        found, pages = [], 0
        while path is not None:
            response = await on_each("GET", path)
            page = response.json()
            assert len(page["items"]) <= 50
            found += [one["id"] for one in page["items"]]
            link = response.headers.get("link")
            assert (link is None) is (page["cursor"] is None)
            if link is not None:
                assert link.endswith('>; rel="next"')
                assert f"cursor={page['cursor']}" in link
            path = None if link is None else link[1:].partition(">")[0]
            pages += 1
        assert found == wanted
        assert pages in (3, 4)

    @pytest.mark.parametrize(
        "query",
        [
            "cursor=x",
            "cursor=",
            "cursor=%00",
            f"cursor={ID}%0a",
            f"cursor={ID.upper()}",
            f"cursor={ID}&cursor={ID}",
            "limit=0",
            "limit=1001",
            "limit=-1",
            "limit=x",
            "state=over",
            "state=",
            "id=x",
            f"id={ID}%0a",
            f"id={ID}%00",
            "root=x",
            "queue=",
            "queue=%00",
            f"queue={'q' * 501}",
            "error=",
            "error=%00",
            "created_after=yesterday",
            "created_after=2026-01-01T00:00:00",
            "created_after=9999-12-31T23:59:59-14:00",
            "created_before=0001-01-01T00:00:00%2B14:00",
            "created_after=1e400",
            "newest_first=perhaps",
            "what=1",
            "wait=1",
        ],
    )
    async def test_what_is_no_query(self, query: str, api_of: Api) -> None:
        for path in ("/tasks", "/dead"):
            response = await api_of("GET", f"{path}?{query}")
            problem(response, 422, response.json()["code"])

    async def test_a_cursor_of_no_task_is_a_place_all_the_same(self, on_each: Api) -> None:
        made = [await on_each.enqueue() for _ in range(3)]
        assert await ids(on_each, f"?cursor={'0' * 8}-0000-0000-0000-{'0' * 12}") == made
        assert await ids(on_each, f"?cursor={'f' * 8}-ffff-ffff-ffff-{'f' * 12}") == []
        assert (
            await ids(on_each, f"?newest_first=true&cursor={'f' * 8}-ffff-ffff-ffff-{'f' * 12}") == made[::-1]
        )

    async def test_very_many_values(self, on_each: Api) -> None:
        own = await on_each.enqueue()
        some = "&".join(f"id={one}" for one in [new_id() for _ in range(299)])
        assert await ids(on_each, f"?id={own}&{some}") == [own]


class TestOne:
    @pytest.mark.parametrize(
        "name",
        ["x", "%00", "%2e%2e%2fdead", "a%2fb", "%ff", "%F0%9F%98%80", "a" * 10_000, "%0d%0aX:1", "null"],
    )
    async def test_what_is_no_id_is_not_there(self, name: str, api_of: Api) -> None:
        for method, path in (
            ("GET", f"/tasks/{name}"),
            ("DELETE", f"/tasks/{name}"),
            ("GET", f"/tasks/{name}/attempts"),
            ("POST", f"/tasks/{name}/replay"),
            ("DELETE", f"/dead/{name}?why=x"),
        ):
            response = await api_of(method, path)
            problem(response, 404, "not-found")
            assert len(response.content) < 500

    async def test_nothing_leads_elsewhere(self, api_of: Api) -> None:
        """A redirect would go to whatever host the request names."""
        for path in ("/tasks/", "//tasks", "/tasks/%2e%2e%2f", "/dead/"):
            assert (await api_of("GET", path, host="evil.example")).status_code == 404

    async def test_secrets_are_masked(self, api_of: Api, store: MemoryStore) -> None:
        made = await api_of.enqueue(payload={"password": "hush", "a": 1})
        shown = (await api_of("GET", f"/tasks/{made}")).text
        assert "hush" not in shown
        assert '"a":1' in shown

    async def test_attempts(self, on_each: Api) -> None:
        made = await on_each.die()
        (attempt,) = (await on_each.good("GET", f"/tasks/{made}/attempts"))["items"]
        assert (attempt["number"], attempt["worker"], attempt["outcome"]) == (1, "w", "failed")
        assert attempt["error"]["message"] == "it broke"
        problem(await on_each("GET", f"/tasks/{new_id()}/attempts"), 404, "not-found")

    async def test_a_head_is_an_answer_without_its_body(self, api_of: Api) -> None:
        made = await api_of.enqueue()
        got, head = [await api_of(method, f"/tasks/{made}") for method in ("GET", "HEAD")]
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == got.headers["content-length"]

    async def test_what_cannot_be_done_at_an_address(self, api_of: Api) -> None:
        for method, path in (("PUT", "/tasks"), ("PATCH", "/tasks/x"), ("PUT", "/tasks/batch")):
            response = await api_of(method, path)
            problem(response, 405, "method-not-allowed")
            assert response.headers["allow"]


class TestCancel:
    async def test_one_that_has_not_started_never_does(self, on_each: Api, kept: Store) -> None:
        for said in ({}, {"delay": 60}):
            made = await on_each.enqueue(**said)
            response = await on_each("DELETE", f"/tasks/{made}?why=no+need")
            assert (response.status_code, response.json()) == (200, {"id": made, "state": "cancelled"})
            problem(await on_each("DELETE", f"/tasks/{made}"), 409, "task-finished")
        assert await on_each.claim(await on_each.session(), 1) == []
        assert await audits(kept) == [("cancel", "anonymous", "no need")] * 2

    async def test_one_that_runs_is_asked_to_stop(self, on_each: Api) -> None:
        made = await on_each.enqueue()
        session = await on_each.session()
        (claimed,) = await on_each.claim(session, 1)
        for _ in range(2):
            response = await on_each("DELETE", f"/tasks/{made}")
            assert (response.status_code, response.json()) == (202, {"id": made, "state": "running"})
        pulse = (await on_each.beat(session, held=[lease(claimed)], through=1)).json()
        assert pulse == {"lost": [], "cancel": [made]}
        assert await on_each.settle(lease(claimed) | {"outcome": "stopped"}) == ["applied"]
        assert (await on_each.good("GET", f"/tasks/{made}"))["state"] == "cancelled"

    @pytest.mark.parametrize("outcome", ["returned", "failed"])
    async def test_one_that_has_ended_is_refused(self, outcome: str, on_each: Api) -> None:
        made = await on_each.enqueue()
        (claimed,) = await on_each.claim(await on_each.session(), 1)
        await on_each.settle(lease(claimed) | {"outcome": outcome, "fatal": True})
        told = problem(await on_each("DELETE", f"/tasks/{made}"), 409, "task-finished")
        assert ("completed" if outcome == "returned" else "dead") in told["detail"]

    async def test_one_that_is_unknown(self, on_each: Api) -> None:
        problem(await on_each("DELETE", f"/tasks/{new_id()}"), 404, "not-found")

    async def test_many(self, on_each: Api, kept: Store) -> None:
        made = [await on_each.enqueue(queue="a") for _ in range(5)]
        other = await on_each.enqueue(queue="b")
        await on_each.claim(await on_each.session("a"), 1, "a")
        body: dict[str, Any] = {"where": {"queue": ["a"]}, "why": "over"}
        assert await on_each.good("POST", "/tasks/cancel", body | {"dry_run": True}) == {
            "number": 5,
            "exact": True,
        }
        assert set(await ids(on_each, "?state=ready")) == {*made[1:], other}
        assert (await on_each.good("POST", "/tasks/cancel", body | {"limit": 2}))["number"] == 2
        assert (await on_each.good("POST", "/tasks/cancel", body))["number"] == 3
        assert await ids(on_each, "?state=ready") == [other]
        assert (await on_each.good("GET", f"/tasks/{made[0]}"))["cancel_requested"]
        assert await audits(kept) == [("cancel", "anonymous", "over")] * 5
        nothing = {"where": {"queue": ["a"], "state": ["completed"]}}
        assert (await on_each.good("POST", "/tasks/cancel", nothing))["number"] == 0


class TestReplay:
    async def test_brings_one_back_perhaps_edited(self, on_each: Api, kept: Store) -> None:
        made = await on_each.die(payload={"n": 1})
        assert await on_each.good("POST", f"/tasks/{made}/replay") == {"id": made, "state": "ready"}
        again = await on_each.good("GET", f"/tasks/{made}")
        assert (again["state"], again["attempt"], again["payload"]) == ("ready", 0, {"n": 1})
        problem(await on_each("POST", f"/tasks/{made}/replay"), 409, "refused")
        await on_each.good("DELETE", f"/tasks/{made}")
        await on_each.good("POST", f"/tasks/{made}/replay", {"payload": {"n": 2}, "why": "a typo"})
        assert (await on_each.good("GET", f"/tasks/{made}"))["payload"] == {"n": 2}
        assert ("replay", "anonymous", "a typo") in await audits(kept)

    @pytest.mark.parametrize(
        "body", [{"payload": []}, {"payload": {"a": "\0"}}, {"payload": 7}, {"x": 1}, []]
    )
    async def test_with_what_is_no_payload(self, body: Any, api_of: Api) -> None:
        made = await api_of.die()
        response = await api_of("POST", f"/tasks/{made}/replay", body)
        problem(response, 422, response.json()["code"])
        assert (await api_of.good("GET", f"/tasks/{made}"))["state"] == "dead"

    async def test_one_whose_twin_stands(self, on_each: Api) -> None:
        made = await on_each.die(payload={"n": 1}, unique=True)
        await on_each.enqueue(payload={"n": 1}, unique=True, priority=100)
        problem(await on_each("POST", f"/tasks/{made}/replay"), 409, "refused")

    async def test_many(self, on_each: Api, kept: Store) -> None:
        made = [await on_each.die(queue="a") for _ in range(3)]
        other = await on_each.die(queue="b")
        body: dict[str, Any] = {"where": {"queue": ["a"]}, "why": "mended"}
        assert (await on_each.good("POST", "/dead/replay", body | {"dry_run": True}))["number"] == 3
        assert (await on_each.good("POST", "/dead/replay", body | {"limit": 1}))["number"] == 1
        assert len(await ids(on_each, "", "/dead")) == 3
        assert (await on_each.good("POST", "/dead/replay", body))["number"] == 2
        assert await ids(on_each, "", "/dead") == [other]
        assert set(await ids(on_each, "?state=ready")) == set(made)
        assert await audits(kept) == [("replay", "anonymous", "mended")] * 3

    @pytest.mark.parametrize("pace", [{"per_second": 0.001}, {"spread": 3000}])
    async def test_many_over_time(self, pace: dict[str, float], on_each: Api) -> None:
        made = [await on_each.die() for _ in range(3)]

        assert (await on_each.good("POST", "/dead/replay", {"where": {}, **pace}))["number"] == 3

        first, *later = (await on_each.good("GET", "/tasks"))["items"]
        assert [one["id"] for one in (first, *later)] == made
        assert [one["state"] for one in later] == ["scheduled"] * 2
        due = [datetime.fromisoformat(one["run_at"]) for one in (first, *later)]
        assert [round((at - due[0]).total_seconds(), -1) for at in due] == [0, 1000, 2000]
        summary = (await on_each.good("GET", "/audit?limit=1"))["items"][0]["summary"]
        assert summary.startswith(f"replayed task {made[-1]} (t), due at 20")

    @pytest.mark.parametrize("pace", [{"per_second": 0.001}, {"spread": 3000}])
    async def test_many_over_time_into_a_paused_queue(self, pace: dict[str, float], on_each: Api) -> None:
        made = [await on_each.die(queue="a") for _ in range(3)]
        await on_each.good("POST", "/queues/a/pause")

        refused = await on_each("POST", "/dead/replay", {"where": {}, **pace})

        assert "Resume queue 'a' first" in problem(refused, 409, "refused")["detail"]
        assert len(await ids(on_each, "", "/dead")) == len(made)
        await on_each.good("POST", "/queues/a/resume")
        assert (await on_each.good("POST", "/dead/replay", {"where": {}, **pace}))["number"] == len(made)

    @pytest.mark.parametrize("pace", [{"per_second": 0}, {"spread": -1}, {"per_second": 1, "spread": 1}])
    async def test_many_at_no_pace(self, pace: dict[str, float], api_of: Api) -> None:
        response = await api_of("POST", "/dead/replay", {"where": {}, **pace})
        problem(response, 422, response.json()["code"])


class TestFailures:
    async def test_dead_letters_that_failed_alike_are_listed_together(self, on_each: Api) -> None:
        made = [await on_each.die(queue=queue) for queue in "aab"]
        other = await on_each.die(type="other", queue="c")

        frequent, rare = (await on_each.good("GET", "/dead/failures"))["items"]

        assert (frequent["number"], frequent["exact"], frequent["queues"]) == (3, True, ["a", "b"])
        assert (frequent["error"]["message"], frequent["task_id"]) == ("it broke", made[-1])
        assert frequent["first_at"] <= frequent["last_at"]
        assert (rare["number"], rare["type"], rare["task_id"]) == (1, "other", other)
        assert await ids(on_each, f"?failure={frequent['id']}", "/dead") == sorted(made)
        assert (await on_each.good("GET", f"/tasks/{other}"))["failure"] == rare["id"]
        several = f"?failure={frequent['id']}&failure={rare['id']}"
        assert len(await ids(on_each, several)) == 4
        assert (await on_each.good("GET", "/dead/failures?type=other"))["items"] == [rare]
        assert (await on_each.good("GET", "/dead/failures?limit=1"))["items"] == [frequent]
        assert (await on_each.good("GET", "/dead/failures?state=ready"))["items"] == []

    async def test_they_are_replayed_and_discarded_together(self, on_each: Api) -> None:
        made = [await on_each.die() for _ in range(2)]
        other = await on_each.die(type="other")
        failures = [one["id"] for one in (await on_each.good("GET", "/dead/failures"))["items"]]

        replayed = await on_each.good("POST", "/dead/replay", {"where": {"failure": failures[:1]}})
        discard = {"where": {"failure": failures[1:]}, "why": "spam"}

        assert replayed["number"] == 2
        assert await ids(on_each, "", "/dead") == [other]
        assert set(await ids(on_each, "?state=ready")) == set(made)
        assert (await on_each.good("POST", "/dead/discard", discard))["number"] == 1

    @pytest.mark.parametrize("query", ["failure=x", "failure=0123456789ABCDEF", "limit=0", "limit=51"])
    async def test_what_is_no_failure_is_refused(self, query: str, api_of: Api) -> None:
        response = await api_of("GET", f"/dead/failures?{query}")
        problem(response, 422, response.json()["code"])


class TestDiscard:
    async def test_one(self, on_each: Api, kept: Store) -> None:
        made = await on_each.die()
        for query in ("", "?why=", "?why=%20"):
            response = await on_each("DELETE", f"/dead/{made}{query}")
            problem(response, 422, response.json()["code"])
        response = await on_each("DELETE", f"/dead/{made}?why=spam")
        assert (response.status_code, response.content) == (204, b"")
        problem(await on_each("DELETE", f"/dead/{made}?why=spam"), 404, "not-found")
        assert await audits(kept) == [("discard", "anonymous", "spam")]

    async def test_one_that_is_not_dead_is_refused_and_said_to_be_there(self, on_each: Api) -> None:
        made = await on_each.enqueue()
        told = problem(await on_each("DELETE", f"/dead/{made}?why=x"), 409, "refused")
        assert "ready" in told["detail"]
        assert (await on_each.good("GET", f"/tasks/{made}"))["state"] == "ready"

    async def test_many(self, on_each: Api, kept: Store) -> None:
        made = [await on_each.die(queue="a") for _ in range(3)]
        await on_each.enqueue(queue="a")
        body: dict[str, Any] = {"where": {"id": made}, "why": "spam"}
        assert (await on_each.good("POST", "/dead/discard", body | {"dry_run": True}))["number"] == 3
        assert (await on_each.good("POST", "/dead/discard", body | {"limit": 2}))["number"] == 2
        assert (await on_each.good("POST", "/dead/discard", body))["number"] == 1
        assert len(await ids(on_each)) == 1
        assert await audits(kept) == [("discard", "anonymous", "spam")] * 3
        for why in ({}, {"why": ""}, {"why": " "}):
            response = await on_each("POST", "/dead/discard", {"where": {}} | why)
            problem(response, 422, response.json()["code"])


@pytest.mark.parametrize("path", ["/tasks/cancel", "/dead/replay", "/dead/discard"])
@pytest.mark.parametrize("name", ["id", "state", "type", "queue", "tenant"])
async def test_a_list_that_turned_out_empty_does_not_mean_everything(
    path: str, name: str, api_of: Api
) -> None:
    dead, ready = await api_of.die(), await api_of.enqueue()
    problem(await api_of("POST", path, {"where": {name: []}, "why": "x"}), 422, "invalid-request")
    assert [(await api_of.good("GET", f"/tasks/{one}"))["state"] for one in (dead, ready)] == [
        State.DEAD,
        State.READY,
    ]


@pytest.mark.parametrize("path", ["/tasks/cancel", "/dead/replay", "/dead/discard"])
@pytest.mark.parametrize(
    "body",
    [{}, {"where": None}, {"where": {}, "limit": 0}, {"where": {}, "limit": 10_001}, {"where": {"x": 1}}, []],
)
async def test_what_says_not_which_does_nothing(path: str, body: Any, api_of: Api) -> None:
    dead = await api_of.die()
    more = {"why": "x"} if isinstance(body, dict) else []
    response = await api_of("POST", path, body | more if isinstance(body, dict) else body)
    problem(response, 422, "invalid-request")
    assert (await api_of.good("GET", f"/tasks/{dead}"))["state"] == "dead"
