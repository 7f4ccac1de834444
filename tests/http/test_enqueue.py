"""Enqueue over HTTP: one task, batches (all or nothing), idempotency."""

import asyncio
from datetime import timedelta
from typing import Any, ClassVar

import httpx2
import pytest

from tests.examples import FULL
from tests.http.api_client import Api, lease
from tests.http.problem import problem
from tests.servers.api import ApiServer
from windlass import App, Retention
from windlass._client.keys import Keys
from windlass._http.resources.enqueue import MAX_BATCH
from windlass._ids import new_id
from windlass._model.filter import Filter, Page
from windlass._model.key import Scope
from windlass._model.options import DeclaredType, Defaults
from windlass._policy.input.chain import MAX_LEVELS, MAX_STEPS, decode_steps
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore


async def all_of(store: Store) -> tuple[Any, ...]:
    return (await store.find(Filter(), Page(limit=1000))).items


def chain(levels: int) -> bytes:
    """A task with so many that follow it, one below another."""
    return b'{"type":"t","next":[' * levels + b'{"type":"t"}' + b"]}" * levels


class TestPublishedTypes:
    """A server without the app, in front of a store that the app has published its types to."""

    @pytest.fixture
    async def published(self, store: MemoryStore) -> None:
        defaults = Defaults(queue="bank", max_attempts=3, timeout=timedelta(seconds=30), secret=("iban",))
        backoff = {"base": 3600.0, "jitter": 0.0}
        await store.put(DeclaredType(name="pay", aliases=("charge",), defaults=defaults, backoff=backoff))

    @pytest.mark.usefixtures("published")
    @pytest.mark.parametrize("name", ["pay", "charge"])
    async def test_their_options_are_the_defaults(self, api_of: Api, store: MemoryStore, name: str) -> None:
        then = {"type": name, "payload": {"iban": "CH93"}}
        await api_of.enqueue(type=name, payload={"iban": "CH93"}, next=[then])
        await api_of.enqueue(type=name, queue="other", timeout=None)
        first, second = await all_of(store)
        (step,) = decode_steps(first.next)
        for one in (first, step):
            assert (one.queue, one.max_attempts, one.timeout) == ("bank", 3, timedelta(seconds=30))
        assert (second.queue, second.max_attempts, second.timeout) == ("other", 3, None)
        assert (await api_of.good("GET", f"/tasks/{first.id}"))["payload"] == {"iban": "[secret]"}

    @pytest.mark.usefixtures("published")
    async def test_failures_that_workers_report_are_retried_by_their_backoff(
        self, api_of: Api, store: MemoryStore
    ) -> None:
        await api_of.enqueue(type="pay")
        (claimed,) = await api_of.claim(await api_of.session(), 1, queues=["bank"])
        await api_of.settle(lease(claimed) | {"outcome": "failed"})
        (task,) = await all_of(store)
        assert round((task.run_at - await store.now()).total_seconds(), -1) == 3600


class TestOne:
    async def test_is_answered_with_where_it_is(self, api_of: Api, store: MemoryStore) -> None:
        response = await api_of("POST", "/tasks", {"type": "t", "payload": {"a": 1}})
        assert response.status_code == 201
        made = response.json()
        assert response.headers["location"] == f"/tasks/{made['id']}"
        assert made == {"id": made["id"], "created": True, "following": []}
        (task,) = await all_of(store)
        assert (task.id, task.payload, task.enqueued_by) == (made["id"], b'{"a":1}', "anonymous")

    async def test_expires_by_a_duration_or_an_instant(self, api_of: Api, store: MemoryStore) -> None:
        now = await store.now()
        at = (now + timedelta(minutes=5)).isoformat()
        for said in ({"expires": 60}, {"expires_at": at}, {"expires": None}):
            await api_of.enqueue(**said, next=[{"type": "u", "expires": 30}])

        found = [task.expires_at for task in await all_of(store)]
        assert found[1:] == [now + timedelta(minutes=5), None]
        assert timedelta(seconds=60) <= found[0] - now < timedelta(seconds=70)

    @pytest.mark.parametrize(
        ("said", "why"),
        [
            ({"expires": 0}, "expires"),
            ({"expires": 4e8}, "expires"),
            ({"expires": 60, "expires_at": "2030-01-01T00:00:00Z"}, "exclude each other"),
            ({"delay": 7200, "expires_at": "1999-01-01T00:00:00Z"}, "would never start"),
            ({"expires_at": "2030-01-01T00:00:00"}, "expires_at"),
            ({"next": [{"type": "u", "expires_at": "2030-01-01T00:00:00Z"}]}, "expires_at"),
        ],
    )
    async def test_an_expiry_that_makes_no_sense_is_refused(
        self, api_of: Api, store: MemoryStore, said: dict[str, Any], why: str
    ) -> None:
        response = await api_of("POST", "/tasks", {"type": "t", **said})

        assert response.status_code in (400, 422)
        assert why in response.json()["detail"]
        assert await all_of(store) == ()

    async def test_keeps_all_that_was_said(self, api_of: Api, store: MemoryStore) -> None:
        trace = f"00-{'1' * 32}-{'2' * 16}-01"
        said = {"queue": "mail", "tenant": "acme", "priority": "high", "max_attempts": 3, "timeout": 2.5}
        await api_of.enqueue(**said, delay=60, trace=trace, idempotency_key="k", next=[{"type": "u"}])
        (task,) = await all_of(store)
        shown = await api_of.good("GET", f"/tasks/{task.id}")
        assert {name: shown[name] for name in said} == said | {"priority": task.priority}
        assert (shown["state"], shown["trace"], shown["idempotency_key"]) == ("scheduled", trace, "k")
        assert [one["type"] for one in shown["next"]] == ["u"]

    @pytest.mark.parametrize(
        "wrong",
        [
            {"type": "t\n"},
            {"type": ""},
            {},
            {"type": "t", "state": "completed"},
            {"type": "t", "fence": 7},
            {"type": "t", "payload": []},
            {"type": "t", "payload": {"a": "\0"}},
            {"type": "t", "queue": "q\n"},
            {"type": "t", "priority": 1e9},
            {"type": "t", "run_at": "2026-01-01T00:00:00"},
            {"type": "t", "run_at": "9999-12-31T23:59:59-14:00"},
            {"type": "t", "run_at": "2026-01-01T00:00:00Z", "delay": 1},
            {"type": "t", "run_at": "now", "delay": 1},
            {"type": "t", "run_at": "soon"},
            {"type": "t", "after": ["x"]},
            {"type": "t", "after": [new_id()] * 1_001},
            {"type": "t", "result_into": "x"},
            {"type": "t", "run_at": 1},
            {"type": "t", "delay": -1},
            {"type": "t", "timeout": 0},
            {"type": "t", "max_attempts": 0},
            {"type": "t", "idempotency_key": ""},
            {"type": "t", "idempotency_key": "k" * 256},
            {"type": "t", "idempotency_for": 1},
            {"type": "t", "trace": "x"},
            {"type": "t", "next": [{"type": "u", "idempotency_key": "k"}]},
            [],
        ],
    )
    async def test_what_is_wrong_is_refused_and_not_kept(
        self, wrong: Any, api_of: Api, store: MemoryStore
    ) -> None:
        response = await api_of("POST", "/tasks", wrong)
        problem(response, 422, response.json()["code"])
        assert await all_of(store) == ()

    @pytest.mark.parametrize("levels", [MAX_LEVELS + 1, 400, 480, 60_000])
    async def test_a_chain_that_is_too_deep(self, levels: int, api_of: Api, store: MemoryStore) -> None:
        response = await api_of("POST", "/tasks", chain(levels))
        problem(response, 422, response.json()["code"])
        group = b'{"tasks":[{"type":"t"}],"then":%b}' % chain(levels)
        response = await api_of("POST", "/tasks/batch", group)
        problem(response, 422, response.json()["code"])
        assert await all_of(store) == ()

    async def test_a_chain_that_is_just_not_too_deep(self, api_of: Api) -> None:
        first = await api_of("POST", "/tasks", chain(MAX_LEVELS), idempotency_key="k")
        assert len(first.json()["following"]) == MAX_LEVELS
        assert (await api_of("POST", "/tasks", chain(MAX_LEVELS), idempotency_key="k")).content == (
            first.content
        )
        assert (await api_of("GET", first.headers["location"])).status_code == 200

    async def test_now_is_an_instant(self, api_of: Api, store: MemoryStore) -> None:
        await api_of.enqueue(run_at="now")
        (task,) = await all_of(store)
        assert (task.state, task.run_at) == ("ready", task.created_at)

    @pytest.mark.parametrize(
        "run_at", ["9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z", "2099-01-01T00:00:00Z"]
    )
    @pytest.mark.parametrize("number", [1, 1500])
    async def test_a_run_at_out_of_bounds(self, run_at: str, number: int, on_each: Api, kept: Store) -> None:
        tasks = [{"type": "t", "run_at": run_at}] * number
        told = problem(await on_each("POST", "/tasks/batch", {"tasks": tasks}), 422, "invalid-option")
        assert "run_at must be from 1970 to ten years from now" in told["detail"]
        assert await all_of(kept) == ()

    async def test_waits_for_others_and_takes_their_results(self, on_each: Api) -> None:
        one, two = await on_each.enqueue(), await on_each.enqueue()
        last = await on_each.enqueue(type="u", after=[one, two], result_into="results", queue="last")
        assert (await on_each.good("GET", f"/tasks/{last}"))["after"] == [one, two]
        session = await on_each.session("default", "last")
        claimed = await on_each.claim(session, 1, limit=5)
        assert {task["id"] for task in claimed} == {one, two}
        results = {one: 1, two: 2}
        ended = [lease(task) | {"outcome": "returned", "result": results[task["id"]]} for task in claimed]
        await on_each.good("POST", "/work/settle", {"tasks": ended})
        (task,) = await on_each.claim(session, 2, "last")
        assert (task["id"], task["payload"]) == (last, {"results": [1, 2]})

    async def test_a_task_to_wait_for_that_does_not_exist(self, api_of: Api, store: MemoryStore) -> None:
        for path, body in (
            ("/tasks", {"type": "t", "after": [new_id()]}),
            ("/tasks/batch", {"tasks": [{"type": "t"}, {"type": "t", "after": [new_id()]}]}),
        ):
            assert "to wait for" in problem(await api_of("POST", path, body), 404, "not-found")["detail"]
        assert await all_of(store) == ()

    async def test_a_chain_that_is_too_large(self, api_of: Api, store: MemoryStore) -> None:
        large = {"type": "u", "payload": {"x": "x" * 1_000_000}}
        many = [{"type": "u"}] * (MAX_STEPS + 1)
        for following in ([large] * 5, many):
            response = await api_of("POST", "/tasks/batch", {"tasks": [{"type": "t", "next": following}]})
            problem(response, 422, "invalid-option")
        problem(await api_of("POST", "/tasks", {"type": "t", "next": [large] * 3}), 413, "too-large")
        assert await all_of(store) == ()

    async def test_a_declared_type_is_checked(
        self, api: ApiServer, http: httpx2.AsyncClient, store: MemoryStore
    ) -> None:
        app = App(store)

        @app.task(name="mail", queue="post", max_attempts=2)
        def mail(to: str) -> None: ...

        asked = Api(http, api.serve_app(app, open_to_all=True))
        told = problem(await asked("POST", "/tasks", {"type": "mail"}), 422, "invalid-payload")
        assert "to" in told["detail"]
        made = await asked.enqueue(type="mail", payload={"to": "ada"})
        shown = await asked.good("GET", f"/tasks/{made}")
        assert (shown["queue"], shown["max_attempts"]) == ("post", 2)


class TestUnique:
    async def test_a_duplicate_is_refused_and_names_the_task_that_stands(self, on_each: Api) -> None:
        first = await on_each.enqueue(payload={"a": 1, "b": 2}, unique=True)
        again = await on_each("POST", "/tasks", b'{"type":"t","payload":{"b":2,"a":1},"unique":true}')
        assert problem(again, 409, "duplicate-task")["standing"] == first
        assert await on_each.enqueue(payload={"a": 1, "b": 2}, unique=True, tenant="acme") != first
        await on_each.good("DELETE", f"/tasks/{first}")
        assert await on_each.enqueue(payload={"a": 1, "b": 2}, unique=True) != first

    async def test_by_fields_and_for_a_period_after_its_record(self, on_each: Api, kept: Store) -> None:
        unique = {"unique": ["a"], "unique_for": 3600}
        first = await on_each.enqueue(payload={"a": 1, "b": 2}, **unique)
        await on_each.good("DELETE", f"/tasks/{first}")
        await kept.prune(Retention(cancelled=timedelta(0)), 10)
        assert await all_of(kept) == ()
        again = await on_each("POST", "/tasks", {"type": "t", "payload": {"a": 1}, **unique})
        assert problem(again, 409, "duplicate-task")["standing"] == first
        await on_each.enqueue(payload={"a": 2}, **unique)

    async def test_a_step_that_is_equal_is_cancelled(self, on_each: Api) -> None:
        step = {"type": "u", "queue": "later", "payload": {"a": 1}, "unique": ["a"]}
        chains = [(await on_each.good("POST", "/tasks", {"type": "t", "next": [step]})) for _ in range(2)]
        session = await on_each.session()
        claimed = await on_each.claim(session, 1, limit=10)
        ended = [lease(one) | {"outcome": "returned"} for one in claimed]
        assert await on_each.settle(*ended) == ["applied", "applied"]
        steps = [await on_each.good("GET", f"/tasks/{one['following'][0]}") for one in chains]
        assert sorted(one["state"] for one in steps) == ["cancelled", "ready"]
        (error,) = [one["error"] for one in steps if one["state"] == "cancelled"]
        assert error["type"] == "Duplicate"

    @pytest.mark.parametrize("wrong", [{"unique": []}, {"unique": ["b"]}, {"unique": 1}, {"unique_for": 0}])
    async def test_what_makes_no_sense_is_refused(self, wrong: Any, api_of: Api, store: MemoryStore) -> None:
        response = await api_of("POST", "/tasks", {"type": "t", "payload": {"a": 1}, **wrong})
        assert response.status_code == 422, response.text
        assert await all_of(store) == ()


class TestRepeat:
    """With a key the same request has the same answer, whatever has become of the task."""

    BODY: ClassVar[dict[str, Any]] = {
        "type": "t",
        "payload": {"n": 1},
        "next": [{"type": "u", "next": [{"type": "v"}]}, {"type": "w"}],
    }

    async def test_has_the_same_status_and_body(self, on_each: Api, kept: Store) -> None:
        first = await on_each("POST", "/tasks", self.BODY, idempotency_key="k")
        assert first.status_code == 201
        assert len(first.json()["following"]) == 3
        assert "idempotency-replayed" not in first.headers
        for _ in range(2):
            again = await on_each("POST", "/tasks", self.BODY, idempotency_key='"k"')
            assert (again.status_code, again.content) == (201, first.content)
            assert again.headers["location"] == first.headers["location"]
            assert again.headers["idempotency-replayed"] == "true"
        assert len(await all_of(kept)) == 1

    async def test_of_a_batch_enqueues_nothing_though_some_records_were_pruned(
        self, on_each: Api, kept: Store
    ) -> None:
        body = {"tasks": [{"type": "t", "queue": queue} for queue in ("a", "b", "a")]}
        first = await on_each("POST", "/tasks/batch", body, idempotency_key="k")
        made = [one["id"] for one in first.json()["tasks"]]
        for gone in (made[0], made[2]):
            await on_each.good("DELETE", f"/tasks/{gone}")
        await kept.prune(Retention(cancelled=timedelta(0)), 10)
        assert [task.id for task in await all_of(kept)] == [made[1]]

        again = await on_each("POST", "/tasks/batch", body, idempotency_key="k")

        assert (again.status_code, again.content) == (201, first.content)
        assert [task.id for task in await all_of(kept)] == [made[1]]

    async def test_a_key_that_only_windlass_makes_is_refused(self, on_each: Api, kept: Store) -> None:
        body = {"type": "t", "idempotency_key": "\x1fschedule:s:2026-01-01T00:00:00+00:00"}
        problem(await on_each("POST", "/tasks", body), 422, "invalid-option")
        assert await all_of(kept) == ()

    async def test_another_body_is_refused(self, on_each: Api, kept: Store) -> None:
        first = await on_each("POST", "/tasks", self.BODY, idempotency_key="k")
        for body in ({"type": "t", "payload": {"n": 2}}, self.BODY | {"priority": 5}, {"type": "x"}):
            told = problem(
                await on_each("POST", "/tasks", body, idempotency_key="k"), 422, "idempotency-conflict"
            )
            assert told["standing"] == first.json()["id"]
        assert len(await all_of(kept)) == 1

    @pytest.mark.parametrize("number", [1, 2, 3])
    async def test_another_number_of_tasks_is_another_body(self, number: int, on_each: Api) -> None:
        task = {"type": "t"}
        await on_each.good("POST", "/tasks/batch", {"tasks": [task, task]}, idempotency_key="k")
        again = await on_each("POST", "/tasks/batch", {"tasks": [task] * number}, idempotency_key="k")
        assert again.status_code == (201 if number == 2 else 422)
        assert (await on_each("POST", "/tasks", task, idempotency_key="k")).status_code == 422
        assert len((await on_each.good("GET", "/tasks"))["items"]) == 2

    async def test_it_holds_after_the_task_has_ended(self, on_each: Api) -> None:
        first = await on_each("POST", "/tasks", self.BODY, idempotency_key="k")
        session = await on_each.session()
        (claimed,) = await on_each.claim(session, 1)
        assert await on_each.settle(lease(claimed) | {"outcome": "returned"}) == ["applied"]
        again = await on_each("POST", "/tasks", self.BODY, idempotency_key="k")
        assert (again.status_code, again.content) == (201, first.content)
        found = await on_each.good("GET", f"/tasks?root={first.json()['id']}")
        assert sorted(one["id"] for one in found["items"])[1:] == sorted(
            one for one in first.json()["following"] if one in {i["id"] for i in found["items"]}
        )

    async def test_tenants_do_not_meet(self, on_each: Api) -> None:
        made = {
            (await on_each.good("POST", "/tasks", {"type": "t", "tenant": t}, idempotency_key="k"))["id"]
            for t in ("acme", "bob")
        }
        made.add((await on_each.good("POST", "/tasks", {"type": "t"}, idempotency_key="k"))["id"])
        assert len(made) == 3

    async def test_of_a_batch(self, on_each: Api, kept: Store) -> None:
        body = {"tasks": [self.BODY, {"type": "x", "tenant": "acme"}], "then": {"type": "last"}}
        first = await on_each("POST", "/tasks/batch", body, idempotency_key="k")
        again = await on_each("POST", "/tasks/batch", body, idempotency_key="k")
        assert (again.status_code, again.content) == (201, first.content)
        assert again.headers["idempotency-replayed"] == "true"
        assert len(await all_of(kept)) == 3
        body["tasks"].append({"type": "y"})
        again = await on_each("POST", "/tasks/batch", body, idempotency_key="k")
        problem(again, 422, "idempotency-conflict")
        assert len(await all_of(kept)) == 3

    async def test_by_the_bodys_own_key(self, on_each: Api) -> None:
        body = self.BODY | {"idempotency_key": "k"}
        first = await on_each("POST", "/tasks", body)
        again = await on_each("POST", "/tasks", body)
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.json() == first.json() | {"created": False}
        other = await on_each("POST", "/tasks", body | {"payload": {}})
        assert problem(other, 422, "idempotency-conflict")["standing"] == first.json()["id"]

    @pytest.mark.parametrize(
        ("key", "body"),
        [("k", {"type": "t", "idempotency_key": "k"}), ("", {"type": "t"}), ("k" * 241, {"type": "t"})],
    )
    async def test_what_is_no_key(self, key: str, body: Any, api_of: Api) -> None:
        problem(await api_of("POST", "/tasks", body, idempotency_key=key), 422, "invalid-option")

    async def test_two_keys_are_none(self, api_of: Api) -> None:
        headers = [("idempotency-key", "a"), ("idempotency-key", "b")]
        response = await api_of.http.post(f"{api_of.url}/tasks", json={"type": "t"}, headers=headers)
        problem(response, 422, "invalid-option")

    async def test_over_a_restart_mounted_elsewhere(
        self, api: ApiServer, http: httpx2.AsyncClient, on_each: Api, kept: Store
    ) -> None:
        first = await on_each("POST", "/tasks", self.BODY, idempotency_key="k")
        served = kept.another()
        other = Api(http, api.serve(served, at="/mounted/below", open_to_all=True))
        again = await other("POST", "/tasks", self.BODY, idempotency_key="k")
        assert (again.status_code, again.content) == (201, first.content)
        assert again.headers["location"] == f"/mounted/below/tasks/{first.json()['id']}"
        api.close(served)

    @pytest.mark.more
    async def test_many_at_once_make_one(self, on_each: Api, kept: Store) -> None:
        async def asked() -> tuple[int, bytes]:
            response = await on_each("POST", "/tasks", self.BODY, idempotency_key="k")
            return response.status_code, response.content

        answers = {await one for one in asyncio.as_completed([asked() for _ in range(300 if FULL else 100)])}
        assert len(answers) == 1
        assert len(await all_of(kept)) == 1


class TestBatch:
    async def test_all_or_none(self, on_each: Api, kept: Store) -> None:
        good = {"type": "t"}
        for bad, status in (
            ({"type": "t", "payload": {"a": "\0"}}, 422),
            ({"type": "t", "run_at": "2026-01-01T00:00:00Z", "delay": 1}, 422),
            ({"type": ""}, 422),
        ):
            response = await on_each("POST", "/tasks/batch", {"tasks": [good, bad, good]})
            told = problem(response, status, response.json()["code"])
            assert "1" in told["detail"], told
        twice = {"type": "t", "unique": True}
        problem(await on_each("POST", "/tasks/batch", {"tasks": [good, twice, twice]}), 409, "duplicate-task")
        assert await all_of(kept) == ()

    async def test_some_may_stand_already(self, on_each: Api) -> None:
        keyed = {"type": "t", "idempotency_key": "k"}
        stands = (await on_each.good("POST", "/tasks", keyed))["id"]
        made = (await on_each.good("POST", "/tasks/batch", {"tasks": [keyed, {"type": "t"}]}))["tasks"]
        assert (made[0]["id"], made[0]["created"], made[1]["created"]) == (stands, False, True)

    async def test_one_may_wait_for_all_and_take_their_results(self, on_each: Api) -> None:
        body = {"tasks": [{"type": "a"}, {"type": "b"}], "then": {"type": "sum", "result_into": "parts"}}
        made = (await on_each.good("POST", "/tasks/batch", body))["tasks"]
        assert [one["created"] for one in made] == [True] * 3
        last = await on_each.good("GET", f"/tasks/{made[2]['id']}")
        assert (last["state"], last["after"]) == ("waiting", [made[0]["id"], made[1]["id"]])
        session = await on_each.session()
        first = await on_each.claim(session, 1, limit=10)
        ended = [lease(one) | {"outcome": "returned", "result": one["type"]} for one in first]
        assert await on_each.settle(*ended) == ["applied", "applied"]
        (claimed,) = await on_each.claim(session, 2)
        assert (claimed["type"], claimed["payload"]) == ("sum", {"parts": ["a", "b"]})

    async def test_a_step_on_failure_follows_a_death(self, on_each: Api) -> None:
        step = {"type": "refund", "on_failure": True, "payload": {"order": 7}, "result_into": "failure"}
        made = await on_each.good("POST", "/tasks", {"type": "a", "max_attempts": 1, "next": [step]})
        assert made["following"] == []
        (planned,) = (await on_each.good("GET", f"/tasks/{made['id']}"))["next"]
        assert planned["on_failure"] is True
        session = await on_each.session()
        (claimed,) = await on_each.claim(session, 1)
        error = {"type": "ValueError", "message": "no"}
        assert await on_each.settle(lease(claimed) | {"outcome": "failed", "error": error}) == ["applied"]
        (refund,) = await on_each.claim(session, 2)
        failure = {"id": made["id"], "type": "a", "error": error}
        assert (refund["id"], refund["payload"]) == (planned["id"], {"order": 7, "failure": failure})

    async def test_the_last_task_of_a_group_follows_no_failure(self, api_of: Api) -> None:
        body = {"tasks": [{"type": "a"}], "then": {"type": "b", "on_failure": True}}
        response = await api_of("POST", "/tasks/batch", body)
        assert response.status_code == 422
        assert "on_failure is for steps in next" in response.text

    async def test_ten_thousand_and_not_one_more(self, on_each: Api, kept: Store) -> None:
        tasks = [{"type": "t"}] * MAX_BATCH
        made = (await on_each.good("POST", "/tasks/batch", {"tasks": tasks}))["tasks"]
        assert len({one["id"] for one in made}) == MAX_BATCH
        again = await on_each("POST", "/tasks/batch", {"tasks": [*tasks, *tasks[:1]]})
        problem(again, 422, "invalid-request")
        assert sum(one.number for one in await kept.count(Filter(), ())) == MAX_BATCH
        problem(await on_each("POST", "/tasks/batch", {"tasks": []}), 422, "invalid-request")

    async def test_others_have_their_turn_meanwhile(self, api_of: Api) -> None:
        text = "[" * 500_000  # which takes long to look through
        tasks = [{"type": "t", "payload": {"text": text}} for _ in range(30)]
        handing_in = asyncio.ensure_future(api_of("POST", "/tasks/batch", {"tasks": tasks}))
        answered = 0
        while not handing_in.done():
            answered += (await api_of("GET", "/healthz")).status_code == 200
        assert (await handing_in).status_code == 201
        assert answered > 5


class TestBounds:
    """A key that is bound enqueues within its bounds, and learns of nothing beyond them."""

    @pytest.fixture
    def asked(self, http: httpx2.AsyncClient, url: str) -> Api:
        return Api(http, url)

    async def test_the_tenant_is_the_keys(self, asked: Api, keys: Keys, store: MemoryStore) -> None:
        own = asked.by((await keys.create("k", scopes=[Scope.ENQUEUE], tenant="acme")).text)
        body = {"tasks": [{"type": "t", "next": [{"type": "u"}]}], "then": {"type": "v"}}
        await own.good("POST", "/tasks/batch", body)
        assert {task.tenant for task in await all_of(store)} == {"acme"}
        for other in (
            {"type": "t", "tenant": "bob"},
            {"type": "t", "next": [{"type": "u", "tenant": "bob"}]},
        ):
            problem(await own("POST", "/tasks", other), 403, "forbidden")
        problem(
            await own("POST", "/tasks/batch", {"tasks": [{"type": "t"}, {"type": "t", "tenant": "bob"}]}),
            403,
            "forbidden",
        )
        assert len(await all_of(store)) == 2

    async def test_following_steps_have_the_tenant_of_the_task(self, asked: Api, keys: Keys) -> None:
        """A key that is bound to the tenant sees them, though they do not name it."""
        whole = asked.by((await keys.create("all", scopes=[Scope.ENQUEUE])).text)
        own = asked.by((await keys.create("k", scopes=[Scope.READ], tenant="acme")).text)
        following = [{"type": "u", "next": [{"type": "v"}]}, {"type": "w", "tenant": "bob"}]

        task_id = await whole.enqueue(tenant="acme", next=following)

        (shown,) = (await own.good("GET", f"/tasks/{task_id}"))["next"]
        assert (shown["type"], [one["type"] for one in shown["next"]]) == ("u", ["v"])

    @pytest.mark.parametrize("bound", [{"tenant": "acme"}, {"queues": ["mail"]}])
    async def test_tasks_of_others_cannot_be_waited_for(
        self, bound: dict[str, Any], asked: Api, keys: Keys, store: MemoryStore
    ) -> None:
        """Whether they exist or not: nothing tells one from the other."""
        whole = asked.by((await keys.create("all", scopes=[Scope.ENQUEUE])).text)
        own = asked.by((await keys.create("k", scopes=[Scope.ENQUEUE], **bound)).text)
        others = await whole.enqueue(tenant="bob", queue="other")
        mine = await own.enqueue(queue="mail")
        await own.enqueue(queue="mail", after=[mine])
        before = len(await all_of(store))

        told = []
        for task_id in (others, new_id()):
            body = {"type": "t", "queue": "mail", "after": [mine, task_id]}
            for path, sent in (("/tasks", body), ("/tasks/batch", {"tasks": [body]})):
                refused = problem(await own("POST", path, sent), 404, "not-found")
                told.append(refused["detail"].replace(task_id, "…"))

        assert len({*told}) == 1
        assert len(await all_of(store)) == before

    async def test_the_queues_are_the_keys(self, asked: Api, keys: Keys, store: MemoryStore) -> None:
        own = asked.by((await keys.create("k", scopes=[Scope.ENQUEUE], queues=["mail"])).text)
        await own.enqueue(queue="mail")
        for other in (
            {"type": "t"},
            {"type": "t", "queue": "other"},
            {"type": "t", "queue": "mail", "next": [{"type": "u", "queue": "other"}]},
        ):
            problem(await own("POST", "/tasks", other), 403, "forbidden")
        group = {"tasks": [{"type": "t", "queue": "mail"}], "then": {"type": "t"}}
        problem(await own("POST", "/tasks/batch", group), 403, "forbidden")
        assert len(await all_of(store)) == 1

    async def test_an_equal_task_beyond_its_bounds_does_not_exist(
        self, asked: Api, keys: Keys, store: MemoryStore
    ) -> None:
        whole = asked.by((await keys.create("all", scopes=[Scope.ENQUEUE])).text)
        own = asked.by((await keys.create("k", scopes=[Scope.ENQUEUE], queues=["mail"])).text)
        guess = {"type": "t", "payload": {"a": 1, "b": 2}}
        for unique in (True, ["a"]):
            await whole.enqueue(**guess, unique=unique, queue="other", tenant="acme")
            mine = {**guess, "unique": unique, "queue": "mail", "tenant": "acme"}
            first = await own("POST", "/tasks", mine)
            assert first.status_code == 201
            again = problem(await own("POST", "/tasks", mine), 409, "duplicate-task")
            assert again["standing"] == first.json()["id"]
        batch = {
            "tasks": [guess | {"queue": "mail"}, guess | {"queue": "mail", "unique": True, "payload": {}}]
        }
        await whole.enqueue(type="t", payload={}, unique=True, queue="other")
        assert len((await own.good("POST", "/tasks/batch", batch))["tasks"]) == 2
        problem(await own("POST", "/tasks/batch", batch), 409, "duplicate-task")
        assert len(await all_of(store)) == 7

    async def test_an_equal_task_in_its_own_queue_does_whoever_enqueued_it(
        self, asked: Api, keys: Keys
    ) -> None:
        whole = asked.by((await keys.create("all", scopes=[Scope.ENQUEUE])).text)
        own = asked.by((await keys.create("k", scopes=[Scope.ENQUEUE], queues=["mail"])).text)
        stands = await whole.enqueue(unique=True, queue="mail")
        told = problem(
            await own("POST", "/tasks", {"type": "t", "unique": True, "queue": "mail"}), 409, "duplicate-task"
        )
        assert told["standing"] == stands

    async def test_what_stands_beyond_is_not_named_and_nothing_is_kept(
        self, asked: Api, keys: Keys, store: MemoryStore
    ) -> None:
        said = {"type": "t", "idempotency_key": "k"}
        whole = asked.by((await keys.create("all", scopes=[Scope.ENQUEUE])).text)
        own = asked.by((await keys.create("k", scopes=[Scope.ENQUEUE], queues=["mail"])).text)
        stands = await whole.enqueue(**said, queue="other")
        mine = said | {"queue": "mail"}
        for response in (
            await own("POST", "/tasks", mine),
            await own("POST", "/tasks/batch", {"tasks": [{"type": "new", "queue": "mail"}, mine]}),
        ):
            told = problem(response, 422, "idempotency-conflict")
            assert "standing" not in told
            assert stands not in response.text
        assert [task.id for task in await all_of(store)] == [stands]

    async def test_its_own_keys_it_may_repeat(self, asked: Api, keys: Keys) -> None:
        own = asked.by((await keys.create("k", scopes=[Scope.ENQUEUE], queues=["a", "b"])).text)
        body = {"type": "t", "queue": "a", "idempotency_key": "k"}
        first = await own("POST", "/tasks", body)
        again = await own("POST", "/tasks", body)
        assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
        headed = [await own("POST", "/tasks", {"type": "t", "queue": "a"}, idempotency_key="h") for _ in "12"]
        assert headed[0].content == headed[1].content

    async def test_a_key_that_outlives_its_task(self, asked: Api, keys: Keys, store: MemoryStore) -> None:
        both = [Scope.ENQUEUE, Scope.WORK, Scope.OPERATE]
        own = asked.by((await keys.create("k", scopes=both, queues=["a"])).text)
        body = {"queue": "a", "idempotency_key": "k", "idempotency_for": 3600}
        gone = await own.die(**body)
        await own.good("DELETE", f"/dead/{gone}?why=done")
        again = await own("POST", "/tasks", {"type": "t", "priority": 100, **body})
        assert (again.status_code, again.json()) == (200, {"id": gone, "created": False, "following": []})


async def test_an_id_is_not_for_the_caller_to_choose(api_of: Api) -> None:
    problem(await api_of("POST", "/tasks", {"type": "t", "id": new_id()}), 422, "invalid-request")
