"""Workers over HTTP: sessions, claims, heartbeats and settlements, each under its fence."""

import asyncio
from datetime import datetime
from time import monotonic
from typing import Any

import httpx2
import pytest

from tests.http.api_client import Api, lease
from tests.http.problem import problem
from tests.servers.api import ApiServer
from windlass import App, Backoff
from windlass._client.keys import Keys
from windlass._http import auth as access
from windlass._ids import new_id
from windlass._model.filter import Filter, Page
from windlass._model.key import Scope
from windlass._model.options import DeclaredType, Defaults
from windlass._model.record import Session
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass.testing.clock import ManualClock


async def task_of(store: Store, task_id: str) -> Any:
    return (await store.find(Filter(ids=(task_id,)), Page(limit=1))).items[0]


async def begun(api: Api, *queues: str, **task: Any) -> tuple[str, dict[str, Any]]:
    """A session, and the one task that it has claimed."""
    made = await api.enqueue(**task)
    session = await api.session(*queues)
    (claimed,) = await api.claim(session, 1, *queues)
    assert claimed["id"] == made
    return session, claimed


class TestSession:
    async def test_is_opened_and_ended(self, on_each: Api, kept: Store) -> None:
        said = {"name": "far", "queues": ["a", "b"], "slots": 3, "lease": 9, "host": "h", "pid": 7}
        response = await on_each("POST", "/work/sessions", said)
        opened = response.json()
        assert response.status_code == 201
        assert (opened["lease"], opened["heartbeat"]) == (9, 3)
        assert datetime.fromisoformat(opened["now"]).utcoffset() is not None
        (session,) = (await kept.records(Session, Page())).items
        assert (session.id, session.worker.name, session.worker.slots) == (opened["session"], "far", 3)
        path = f"/work/sessions/{opened['session']}"
        assert (await on_each("DELETE", path)).status_code == 204
        problem(await on_each("DELETE", path), 410, "session-lost")
        problem(await on_each.beat(opened["session"]), 410, "session-lost")
        wanted = {"session": opened["session"], "number": 1}
        problem(await on_each("POST", "/work/claim", wanted), 410, "session-lost")

    async def test_what_it_held_is_rescued(self, on_each: Api, kept: Store) -> None:
        session, claimed = await begun(on_each)
        await on_each.good("DELETE", f"/work/sessions/{session}")
        other = await on_each.session()
        (rescued,) = await kept.rescue(other, 10)
        assert rescued.task.fence > claimed["fence"]
        assert await on_each.settle(lease(claimed) | {"outcome": "returned"}) == ["lost"]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"name": ""},
            {"name": "w\0"},
            {"name": "w" * 201},
            {"queues": []},
            {"queues": ["q"] * 10_001},
            {"queues": [""]},
            {"slots": 0},
            {"lease": 0.5},
            {"lease": 3601},
            {"pid": -1},
            {"session": "mine"},
        ],
    )
    async def test_what_is_no_worker(self, wrong: dict[str, Any], api_of: Api, store: MemoryStore) -> None:
        problem(await api_of("POST", "/work/sessions", {"name": "w"} | wrong), 422, "invalid-request")
        assert (await store.records(Session, Page())).items == ()

    @pytest.mark.parametrize("name", ["x", "%00", "a%2fb", "%ff", "s" * 5000, ""])
    async def test_that_never_was(self, name: str, on_each: Api) -> None:
        response = await on_each("DELETE", f"/work/sessions/{name}")
        assert response.status_code in (404, 410, 422)
        problem(response, response.status_code, response.json()["code"])


class TestClaim:
    async def test_brings_all_that_a_worker_needs(self, on_each: Api) -> None:
        trace = f"00-{'1' * 32}-{'2' * 16}-01"
        made = await on_each.enqueue(
            payload={"password": "hush"}, tenant="acme", priority=7, timeout=2.5, max_attempts=3, trace=trace
        )
        (claimed,) = await on_each.claim(await on_each.session(), 1)
        assert datetime.fromisoformat(claimed.pop("run_at"))
        assert datetime.fromisoformat(claimed.pop("created_at"))
        assert claimed == {
            "id": made,
            "fence": 1,
            "type": "t",
            "payload": {"password": "hush"},
            "queue": "default",
            "tenant": "acme",
            "priority": 7,
            "attempt": 1,
            "max_attempts": 3,
            "timeout": 2.5,
            "cancel_requested": False,
            "root": made,
            "trace": trace,
        }

    async def test_brings_the_types_that_are_named_and_no_others(self, on_each: Api) -> None:
        others, mine = await on_each.enqueue(type="other"), await on_each.enqueue(type="mine")
        session = await on_each.session()
        assert [one["id"] for one in await on_each.claim(session, 1, limit=9, types=["mine"])] == [mine]
        assert await on_each.claim(session, 2, limit=9, types=["mine"], wait=0.1) == []
        shown = await on_each.good("GET", f"/tasks/{others}")
        assert (shown["state"], shown["attempt"]) == ("ready", 0)
        assert [one["id"] for one in await on_each.claim(session, 3, limit=9)] == [others]

    async def test_brings_the_types_that_are_named_of_every_queue(self, on_each: Api) -> None:
        others = await on_each.enqueue(type="other", queue="q1")
        mine = await on_each.enqueue(type="mine", queue="q1")
        session = await on_each.session()
        wanted = {"session": session, "all_queues": True, "limit": 9}
        for number, (types, found) in enumerate([(["mine"], [mine]), (["mine"], []), (None, [others])], 1):
            claimed = await on_each.good("POST", "/work/claim", {**wanted, "number": number, "types": types})
            assert [one["id"] for one in claimed["tasks"]] == found

    async def test_waits_for_what_comes(self, on_each: Api) -> None:
        session = await on_each.session()
        waiting = asyncio.ensure_future(on_each.claim(session, 1, wait=30, limit=10))
        await asyncio.wait([waiting], timeout=0.1)
        assert not waiting.done()
        began = monotonic()
        made = await on_each.enqueue()
        assert [one["id"] for one in await waiting] == [made]
        assert monotonic() - began < 10

    async def test_waits_for_thousands_of_queues(self, api_of: Api) -> None:
        queues = [f"customer-{number:05}" for number in range(5_000)]
        session = await api_of.session(*queues)
        waiting = asyncio.ensure_future(api_of.claim(session, 1, *queues, wait=30))
        await asyncio.wait([waiting], timeout=0.1)
        assert not waiting.done()
        made = await api_of.enqueue(queue=queues[-1])
        assert [one["id"] for one in await waiting] == [made]

    async def test_does_not_wait_longer(self, on_each: Api) -> None:
        assert await on_each.claim(await on_each.session(), 1, wait=0.1) == []

    @pytest.mark.usefixtures("lives_on")
    async def test_who_has_gone_takes_nothing_along(self, api_of: Api, store: MemoryStore) -> None:
        session = await api_of.session()
        waiting = asyncio.ensure_future(api_of.claim(session, 1, wait=30))
        await asyncio.wait([waiting], timeout=0.2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        made = await api_of.enqueue()
        other = await api_of.session()
        (claimed,) = await api_of.claim(other, 1, wait=5)
        assert claimed["id"] == made

    @pytest.mark.parametrize(
        "wrong",
        [
            {"limit": 0},
            {"limit": 1001},
            {"number": 0},
            {"number": 1 << 54},
            {"wait": 31},
            {"wait": -1},
            {"queues": []},
            {"session": ""},
            {"session": "s\0"},
            {"types": [""]},
            {"types": ["t\0"]},
            {"types": ["t"] * 1001},
        ],
    )
    async def test_what_is_no_claim(self, wrong: dict[str, Any], api_of: Api) -> None:
        wanted = {"session": "s", "number": 1} | wrong
        problem(await api_of("POST", "/work/claim", wanted), 422, "invalid-request")


class TestHeartbeat:
    async def test_hands_back_what_got_lost_on_the_way(self, on_each: Api) -> None:
        made = await on_each.enqueue()
        session = await on_each.session()
        await on_each.claim(session, 1)  # whose answer never came
        assert (await on_each.beat(session)).json() == {"lost": [], "cancel": []}
        assert (await on_each.good("GET", f"/tasks/{made}"))["state"] == "running"
        await on_each.beat(session, through=1)
        shown = await on_each.good("GET", f"/tasks/{made}")
        assert (shown["state"], shown["attempt"]) == ("ready", 0)

    async def test_says_what_is_lost_and_takes_no_progress_of_it(self, on_each: Api, kept: Store) -> None:
        session, claimed = await begun(on_each)
        said = {"fraction": 0.5, "message": "half\0way"}
        stale = {"id": claimed["id"], "fence": claimed["fence"] - 1, "progress": {"fraction": 1}}
        never = {"id": new_id(), "fence": 1, "progress": said}
        held = [lease(claimed) | {"progress": said}, stale, never]
        pulse = (await on_each.beat(session, held=held, through=1)).json()
        assert sorted(one["id"] for one in pulse["lost"]) == sorted([claimed["id"], never["id"]])
        task = await task_of(kept, claimed["id"])
        assert (task.progress.fraction, task.progress.message) == (0.5, "halfway")

    async def test_keeps_the_session(self, api: ApiServer, http: httpx2.AsyncClient) -> None:
        clock = ManualClock()
        own = Api(http, api.serve(MemoryStore(clock=clock), open_to_all=True))
        session = await own.session(lease=10)
        for _ in range(3):
            clock.advance(9)
            assert (await own.beat(session)).status_code == 200


ENDS: list[tuple[dict[str, Any], str, int]] = [
    ({"outcome": "returned", "result": {"n": 1}}, "completed", 1),
    ({"outcome": "returned", "result": None}, "completed", 1),
    ({"outcome": "returned"}, "completed", 1),
    ({"outcome": "failed", "error": {"type": "E", "message": "m"}}, "scheduled", 1),
    ({"outcome": "failed"}, "scheduled", 1),
    ({"outcome": "failed", "retry_after": 0}, "ready", 1),
    ({"outcome": "failed", "fatal": True}, "dead", 1),
    ({"outcome": "timedout"}, "scheduled", 1),
    ({"outcome": "snoozed", "delay": 60}, "scheduled", 0),
    ({"outcome": "snoozed"}, "ready", 0),
    ({"outcome": "interrupted"}, "ready", 0),
    ({"outcome": "stopped"}, "cancelled", 1),
]


class TestSettle:
    @pytest.mark.parametrize(("said", "state", "attempt"), ENDS)
    async def test_each_outcome_has_its_verdict_and_its_line(
        self, said: dict[str, Any], state: str, attempt: int, on_each: Api
    ) -> None:
        _, claimed = await begun(on_each)
        ended = lease(claimed) | {"duration": 1.5} | said
        assert await on_each.settle(ended) == ["applied"]
        assert await on_each.settle(ended) == ["repeated"]
        shown = await on_each.good("GET", f"/tasks/{claimed['id']}")
        assert (shown["state"], shown["attempt"]) == (state, attempt)
        assert shown["result"] == said.get("result")
        (line,) = (await on_each.good("GET", f"/tasks/{claimed['id']}/attempts"))["items"]
        assert (line["outcome"], line["duration"]) == (said["outcome"], 1.5)

    async def test_a_type_that_the_worker_does_not_know(self, on_each: Api) -> None:
        _, claimed = await begun(on_each)
        assert await on_each.settle(lease(claimed) | {"outcome": "unhandled"}) == ["applied"]
        shown = await on_each.good("GET", f"/tasks/{claimed['id']}")
        assert (shown["state"], shown["attempt"], shown["error"]["type"]) == (
            "scheduled",
            0,
            "UnknownTaskType",
        )

    async def test_attempts_run_out(self, on_each: Api) -> None:
        _, claimed = await begun(on_each, max_attempts=1)
        await on_each.settle(lease(claimed) | {"outcome": "failed"})
        assert (await on_each.good("GET", f"/tasks/{claimed['id']}"))["state"] == "dead"

    async def test_a_stale_fence_changes_nothing(self, on_each: Api, kept: Store) -> None:
        _, claimed = await begun(on_each)
        before = await task_of(kept, claimed["id"])
        for fence in (0, claimed["fence"] + 1, (1 << 63) - 1):
            ended = {"id": claimed["id"], "fence": fence, "outcome": "returned"}
            assert await on_each.settle(ended) == ["lost"]
        assert await task_of(kept, claimed["id"]) == before
        assert await on_each.settle({"id": new_id(), "fence": 1, "outcome": "returned"}) == ["lost"]

    async def test_many_at_once_each_by_its_own_lease(self, on_each: Api) -> None:
        for _ in range(3):
            await on_each.enqueue()
        claimed = await on_each.claim(await on_each.session(), 1, limit=3)
        first, second, third = (lease(one) for one in claimed)
        receipts = await on_each.settle(
            first | {"outcome": "returned"},
            {"id": new_id(), "fence": 1, "outcome": "returned"},
            second | {"fence": 9, "outcome": "failed"},
            first | {"outcome": "failed", "fatal": True},
            third | {"outcome": "failed", "fatal": True},
        )
        assert receipts[1:3] == ["lost", "lost"]
        assert (receipts[0], receipts[4]) == ("applied", "applied")
        assert receipts[3] in ("repeated", "lost")
        states = [(await on_each.good("GET", f"/tasks/{one['id']}"))["state"] for one in claimed]
        assert states == ["completed", "running", "dead"]

    @pytest.mark.parametrize(
        "result", ["[" * 65 + "]" * 65, '"\\u0000"', '"' + "x" * (1 << 20) + '"', "1e999"]
    )
    async def test_a_bad_result_does_not_hold_up_the_others(self, result: str, api_of: Api) -> None:
        await api_of.enqueue()
        await api_of.enqueue()
        first, second = await api_of.claim(await api_of.session(), 1, limit=2)
        body = b'{"tasks":[{"id":"%b","fence":1,"outcome":"returned","result":%b},{"id":"%b",'
        body += b'"fence":1,"outcome":"returned"}]}'
        sent = body % (first["id"].encode(), result.encode(), second["id"].encode())
        response = await api_of("POST", "/work/settle", sent)
        assert [one["receipt"] for one in response.json()["tasks"]] == ["applied", "applied"]
        shown = await api_of.good("GET", f"/tasks/{first['id']}")
        assert (shown["state"], shown["error"]["type"]) == ("dead", "Fatal")
        assert shown["error"]["message"].startswith("the handler ran, but ")
        assert (await api_of.good("GET", f"/tasks/{second['id']}"))["state"] == "completed"

    async def test_an_error_has_no_secrets_of_the_results_that_its_task_took(
        self, api_of: Api, store: MemoryStore
    ) -> None:
        await store.put(DeclaredType(name="open", defaults=Defaults(secret=("iban",))))
        group = {"tasks": [{"type": "open"}], "then": {"type": "merge", "result_into": "accounts"}}
        await api_of.good("POST", "/tasks/batch", group)
        session = await api_of.session()
        (first,) = await api_of.claim(session, 1)
        await api_of.settle(lease(first) | {"outcome": "returned", "result": {"iban": "CH9300762"}})
        (last,) = await api_of.claim(session, 1)
        assert last["payload"] == {"accounts": [{"iban": "CH9300762"}]}
        failure = {"type": "ValueError", "message": "cannot merge CH9300762"}
        await api_of.settle(lease(last) | {"outcome": "failed", "fatal": True, "error": failure})
        shown = await api_of.good("GET", f"/tasks/{last['id']}")
        assert shown["error"]["message"] == "cannot merge [secret]"

    async def test_an_error_is_bounded_and_without_secrets(self, api_of: Api) -> None:
        _, claimed = await begun(api_of, payload={"password": "correct-horse"})
        error = {"type": "E", "message": "x" * 99_000 + "\0correct-horse", "traceback": "correct-horse\0"}
        await api_of.settle(lease(claimed) | {"outcome": "failed", "error": error})
        response = await api_of("GET", f"/tasks/{claimed['id']}")
        assert "correct-horse" not in response.text
        assert len(response.text) < 10_000

    async def test_the_rules_are_the_types_own(
        self, api: ApiServer, http: httpx2.AsyncClient, store: MemoryStore
    ) -> None:
        app = App(store, backoff=Backoff(base=5, jitter=0))

        @app.task(name="t", backoff=Backoff(base=1000, jitter=0, max_attempts=2))
        def t() -> None: ...

        own = Api(http, api.serve_app(app, open_to_all=True))
        for kind, seconds in (("t", 1000), ("other", 5)):
            _, claimed = await begun(own, type=kind)
            await own.settle(lease(claimed) | {"outcome": "failed"})
            task = await task_of(store, claimed["id"])
            late = (task.run_at - await store.now()).total_seconds()
            assert seconds - 5 < late <= seconds

    async def test_a_chain_goes_on(self, on_each: Api) -> None:
        session, claimed = await begun(on_each, next=[{"type": "u", "result_into": "before"}])
        await on_each.settle(lease(claimed) | {"outcome": "returned", "result": 7})
        (following,) = await on_each.claim(session, 2)
        assert (following["type"], following["payload"], following["root"]) == (
            "u",
            {"before": 7},
            claimed["id"],
        )

    @pytest.mark.parametrize(
        "wrong",
        [
            {"fence": -1},
            {"fence": 1 << 63},
            {"id": "x"},
            {"id": new_id() + "\n"},
            {"outcome": "done"},
            {"duration": -1},
            {"delay": 1e12},
            {"retry_after": -1},
            {"error": {"type": "", "message": ""}},
            {"verdict": "complete"},
        ],
    )
    async def test_what_is_no_settlement(self, wrong: dict[str, Any], api_of: Api) -> None:
        ended = {"id": new_id(), "fence": 1, "outcome": "returned"} | wrong
        problem(await api_of("POST", "/work/settle", {"tasks": [ended]}), 422, "invalid-request")

    @pytest.mark.parametrize("number", [0, 1001])
    async def test_how_many_are_not_settled_at_once(self, number: int, api_of: Api) -> None:
        ended = [{"id": new_id(), "fence": 1, "outcome": "returned"}] * number
        problem(await api_of("POST", "/work/settle", {"tasks": ended}), 422, "invalid-request")


async def test_what_waited_for_results_that_are_gone_is_buried(
    api: ApiServer, http: httpx2.AsyncClient
) -> None:
    store = MemoryStore()
    own = Api(http, api.serve(store, open_to_all=True))
    group = {"tasks": [{"type": "a"}], "then": {"type": "sum", "result_into": "parts"}}
    made = (await own.good("POST", "/tasks/batch", group))["tasks"]
    session = await own.session(lease=3600)
    (claimed,) = await own.claim(session, 1)
    await own.settle(lease(claimed) | {"outcome": "returned", "result": 1})
    store._tables.forget(await task_of(store, made[0]["id"]))  # No prune does that: somebody deleted the row.
    assert await own.claim(session, 2) == []
    buried = await own.good("GET", f"/tasks/{made[1]['id']}")
    assert (buried["state"], buried["error"]["type"]) == ("dead", "Fatal")
    assert made[0]["id"] in buried["error"]["message"]


class TestKeys:
    """A key that is bound to queues works on these, with its own sessions and leases alone."""

    @pytest.fixture
    async def whole(
        self, http: httpx2.AsyncClient, url: str, keys: Keys, monkeypatch: pytest.MonkeyPatch
    ) -> Api:
        monkeypatch.setattr(access, "FRESH_FOR", 0.0)  # Keys are known as soon as they are made.
        return Api(http, url, (await keys.create("all", scopes=[Scope.ADMIN])).text)

    async def bound(self, whole: Api, keys: Keys, **bounds: Any) -> Api:
        return whole.by((await keys.create("k", scopes=[Scope.WORK], **bounds)).text)

    async def test_others_queues_are_refused(self, whole: Api, keys: Keys) -> None:
        own = await self.bound(whole, keys, queues=["a"])
        session = await own.session("a")
        worker = {"name": "w", "queues": ["a", "b"]}
        problem(await own("POST", "/work/sessions", worker), 403, "forbidden")
        problem(
            await own("POST", "/work/heartbeat", {"session": session, "worker": worker}), 403, "forbidden"
        )
        wanted = {"session": session, "queues": ["b"], "number": 1}
        problem(await own("POST", "/work/claim", wanted), 403, "forbidden")

    async def test_one_tenants_key_does_not_work(self, whole: Api, keys: Keys) -> None:
        for bounds in ({"tenant": "acme"}, {"tenant": "acme", "queues": ["a"]}):
            own = await self.bound(whole, keys, **bounds)
            worker = {"name": "w", "queues": ["a"]}
            for path, body in (
                ("/work/sessions", worker),
                ("/work/heartbeat", {"session": "s", "worker": worker}),
                ("/work/claim", {"session": "s", "queues": ["a"], "number": 1}),
                ("/work/settle", {"tasks": [{"id": new_id(), "fence": 1, "outcome": "returned"}]}),
            ):
                problem(await own("POST", path, body), 403, "forbidden")

    async def test_others_sessions_are_not_there(self, whole: Api, keys: Keys, store: MemoryStore) -> None:
        own, other = [await self.bound(whole, keys, queues=["a"]) for _ in range(2)]
        theirs = [await other.session("a"), await whole.session("a")]
        before = (await store.records(Session, Page())).items
        for session in (*theirs, "unheard-of", f"{theirs[0]}x"):
            told = [
                await own("DELETE", f"/work/sessions/{session}"),
                await own.beat(session, "a"),
                await own("POST", "/work/claim", {"session": session, "queues": ["a"], "number": 1}),
            ]
            for response in told:
                assert session not in problem(response, 410, "session-lost")["detail"]
        assert (await store.records(Session, Page())).items == before

    async def test_others_leases_are_lost(self, whole: Api, keys: Keys, store: MemoryStore) -> None:
        own, other = [await self.bound(whole, keys, queues=["a"]) for _ in range(2)]
        made = [await whole.enqueue(queue="a"), await whole.enqueue(queue="b")]
        claimed = [
            *(await other.claim(await other.session("a"), 1, "a")),
            *(await whole.claim(await whole.session("b"), 1, "b")),
        ]
        await whole.good("DELETE", f"/tasks/{made[0]}")
        before = [await task_of(store, one) for one in made]
        mine = await own.session("a")
        for one in claimed:
            assert await own.settle(lease(one) | {"outcome": "returned"}) == ["lost"]
            held = [lease(one) | {"progress": {"fraction": 1}}]
            assert (await own.beat(mine, "a", held=held)).json() == {"lost": [lease(one)], "cancel": []}
        assert [await task_of(store, one) for one in made] == before
        assert await other.settle(lease(claimed[0]) | {"outcome": "stopped"}) == ["applied"]

    async def test_it_does_its_own_work(self, whole: Api, keys: Keys) -> None:
        own = await self.bound(whole, keys, queues=["a", "b"])
        made = await whole.enqueue(queue="a", delay=0, max_attempts=2)
        session = await own.session("a", "b")
        (claimed,) = await own.claim(session, 1, "b", "a", wait=1)
        held = [lease(claimed) | {"progress": {"fraction": 0.5}}]
        assert (await own.beat(session, "a", held=held, through=1)).json() == {"lost": [], "cancel": []}
        assert (await whole.good("GET", f"/tasks/{made}"))["progress"]["fraction"] == 0.5
        assert await own.settle(lease(claimed) | {"outcome": "returned"}) == ["applied"]
        assert await own.settle(lease(claimed) | {"outcome": "returned"}) == ["repeated"]
        assert (await own("DELETE", f"/work/sessions/{session}")).status_code == 204


class TestAnotherKey:
    """What a worker's key has opened and claimed is its own, also without bounds."""

    @pytest.fixture
    async def workers(
        self, http: httpx2.AsyncClient, url: str, keys: Keys, monkeypatch: pytest.MonkeyPatch
    ) -> tuple[Api, Api]:
        monkeypatch.setattr(access, "FRESH_FOR", 0.0)  # Keys are known as soon as they are made.
        scopes = [Scope.ENQUEUE, Scope.READ, Scope.WORK, Scope.OPERATE]
        own, other = [Api(http, url, (await keys.create("w", scopes=scopes)).text) for _ in range(2)]
        return own, other

    async def test_neither_renews_nor_claims_in_a_session_nor_ends_it(
        self, workers: tuple[Api, Api], store: MemoryStore
    ) -> None:
        own, other = workers
        theirs = await other.session()
        before = (await store.records(Session, Page())).items

        for response in (
            await own.beat(theirs),
            await own("POST", "/work/claim", {"session": theirs, "number": 1}),
            await own("DELETE", f"/work/sessions/{theirs}"),
        ):
            problem(response, 410, "session-lost")

        assert (await store.records(Session, Page())).items == before

    async def test_settles_nothing_of_it(self, workers: tuple[Api, Api], store: MemoryStore) -> None:
        own, other = workers
        _, claimed = await begun(other, "default")
        before = await task_of(store, claimed["id"])
        forged = lease(claimed) | {"outcome": "returned", "result": "forged"}
        next_one = {**forged, "fence": claimed["fence"] + 1}

        assert await own.settle(forged, next_one, forged) == ["lost"] * 3
        held = [lease(claimed) | {"progress": {"fraction": 1}}]
        beat = await own.beat(await own.session(), held=held)

        assert beat.json()["lost"] == [lease(claimed)]
        assert await task_of(store, claimed["id"]) == before
        assert await other.settle(lease(claimed) | {"outcome": "returned"}) == ["applied"]
        assert await own.settle(forged) == ["repeated"]

    async def test_settles_nothing_that_nobody_has_claimed_yet(self, workers: tuple[Api, Api]) -> None:
        own, other = workers
        made = await other.enqueue()

        assert await own.settle({"id": made, "fence": 1, "outcome": "returned"}) == ["lost"]

        (claimed,) = await other.claim(await other.session(), 1)
        assert await other.settle(lease(claimed) | {"outcome": "returned"}) == ["applied"]

    async def test_gets_nothing_of_it_by_the_store_protocol(
        self, workers: tuple[Api, Api], store: MemoryStore
    ) -> None:
        own, other = workers
        beat = {"session": "s", "worker": {"name": "w"}, "lease_for": 30, "opening": True}
        claim = {"session": "s", "queues": ["default"], "limit": 1, "number": 1}
        await other.enqueue()
        await other.good("POST", "/store/heartbeat", {"beat": beat})
        ((claimed,),) = [await other.good("POST", "/store/claim", {"claim": claim})]
        task = claimed["task"]
        held = {"task_id": task["id"], "fence": task["fence"]}
        before = await task_of(store, task["id"])
        complete = {"lease": held, "verdict": {"kind": "complete", "result": "forged"}, "outcome": "returned"}

        settled = await own.good("POST", "/store/settle", {"batch": [complete], "claim": None})
        await own.good("POST", "/store/heartbeat", {"beat": {**beat, "opening": False}})
        reported = {"lease": held, "progress": {"fraction": 1.0, "message": "forged"}}
        mine = {**beat, "session": "mine", "progress": [reported]}
        await own.good("POST", "/store/heartbeat", {"beat": mine})
        await own("POST", "/store/remove", {"kind": "session", "name": "s"})
        once = await own("POST", "/store/once", {"lease": held, "key": "k"})

        assert settled["receipts"] == ["lost"]
        assert once.status_code == 409, once.text
        assert await task_of(store, task["id"]) == before
        settled = await other.good("POST", "/store/settle", {"batch": [complete]})
        assert settled["receipts"] == ["applied"]

    async def test_does_not_lead_in_its_name(self, workers: tuple[Api, Api]) -> None:
        own, other = workers
        lead = {"holder": "keeper", "lease_for": 30}

        assert await other.good("POST", "/store/lead", lead) is True
        assert await own.good("POST", "/store/lead", lead) is False
        assert await other.good("POST", "/store/lead", lead) is True


async def test_a_server_that_has_not_granted_a_lease_settles_it_for_its_key(
    api: ApiServer, http: httpx2.AsyncClient, keys: Keys, store: MemoryStore
) -> None:
    made = (await keys.create("w", scopes=[Scope.ENQUEUE, Scope.WORK])).text
    first, second = Api(http, api.serve(store), made), Api(http, api.serve(store), made)
    session, claimed = await begun(first, "default")

    assert (await second.beat(session, held=[lease(claimed)])).json()["lost"] == []
    assert await second.settle(lease(claimed) | {"outcome": "returned"}) == ["applied"]
