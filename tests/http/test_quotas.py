"""Quotas of tenants over HTTP: enforced for every way in, and shown to those they concern."""

import json
from typing import Any
from urllib.parse import quote

import pytest

from tests.http.api_client import Api, lease
from tests.http.problem import problem
from tests.loops.workers import eventually
from tests.servers.api import ApiServer
from windlass import App
from windlass._client.keys import Keys
from windlass._client.quotas import Quotas
from windlass._http.bounds import quotas
from windlass._ids import new_id
from windlass._keeper.schedules import Ticker
from windlass._model.filter import Dimension, Filter, Page
from windlass._model.key import Scope
from windlass._model.record import Audit
from windlass._observe import cached_reads
from windlass._stores.http import HttpStore
from windlass._stores.memory import MemoryStore
from windlass.errors import QuotaExceeded
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import a_task

TASK = {"type": "t", "tenant": "acme"}


async def stored(store: MemoryStore) -> int:
    return sum(count.number for count in await store.count(Filter(), ()))


async def single(api: Api, number: int) -> int:
    statuses = [(await api("POST", "/tasks", TASK)).status_code for _ in range(number)]
    return statuses[-1]


async def batch(api: Api, number: int) -> int:
    return (await api("POST", "/tasks/batch", {"tasks": [TASK] * number})).status_code


async def chain(api: Api, number: int) -> int:
    steps: list[dict[str, Any]] = []
    for _ in range(number - 1):
        steps = [{"type": "t", "next": steps}]
    return (await api("POST", "/tasks", {**TASK, "next": steps})).status_code


async def group(api: Api, number: int) -> int:
    body = {"tasks": [TASK] * max(number - 1, 1), "then": TASK}
    return (await api("POST", "/tasks/batch", body)).status_code


async def stream(api: Api, number: int) -> int:
    lines = b"".join(json.dumps(TASK).encode() + b"\n" for _ in range(number))
    response = await api("POST", "/tasks/stream", lines, content_type="application/x-ndjson")
    last = json.loads(response.text.splitlines()[-1])
    return 201 if last["problem"] is None else int(last["problem"]["status"])


async def seam(api: Api, number: int) -> int:
    new = []
    for _ in range(number):
        task_id = new_id()
        new.append({"id": task_id, "root": task_id, "type": "t", "payload": {}, "tenant": "acme"})
    return (await api("POST", "/store/enqueue", {"batch": new})).status_code


async def trigger(api: Api, number: int) -> int:
    await api.good("PUT", "/schedules/nightly", {**TASK, "rule": "1d"})
    statuses = [(await api("POST", "/schedules/nightly/trigger")).status_code for _ in range(number)]
    return statuses[-1]


@pytest.mark.parametrize(
    "way", [single, batch, chain, group, stream, seam, trigger], ids=lambda way: way.__name__
)
async def test_no_way_leads_past_a_quota(way: Any, api_of: Api, store: MemoryStore) -> None:
    await Quotas(store).set("acme", tasks=5)

    assert await way(api_of, 5) in (200, 201)
    assert await way(api_of, 1) == 507

    assert await stored(store) == (1 if way is chain else 5)


# -- what is refused ---------------------------------------------------------------------------------


async def test_a_refusal_says_what_is_used_and_when_to_ask_again(api_of: Api, store: MemoryStore) -> None:
    await api_of.good("PUT", "/quotas/acme", {"tasks": 2, "bytes": 1_000})
    await batch(api_of, 2)

    response = await api_of("POST", "/tasks", TASK)

    refused = problem(response, 507, "quota-exceeded")
    assert refused["title"] == "insufficient storage"
    assert "the tenant 'acme' has stored 2 of 2 tasks and 4 B of 1.0 kB" in refused["detail"]
    assert refused["quota"] == {
        "tenant": "acme", "tasks": 2, "bytes": 1_000, "used_tasks": 2, "used_bytes": 4,
    }  # fmt: skip
    assert 1 <= int(response.headers["retry-after"]) <= quotas.COUNT_EVERY


async def test_a_batch_is_refused_whole_and_a_stream_at_the_line(api_of: Api, store: MemoryStore) -> None:
    await Quotas(store).set("acme", tasks=3)
    problem(await api_of("POST", "/tasks/batch", {"tasks": [TASK] * 4}), 507, "quota-exceeded")
    assert await stored(store) == 0

    lines = b"".join(json.dumps(TASK).encode() + b"\n" for _ in range(5))
    response = await api_of("POST", "/tasks/stream", lines, content_type="application/x-ndjson")

    told = [json.loads(line) for line in response.text.splitlines()]
    assert [line["problem"] and line["problem"]["code"] for line in told] == [
        None, None, None, "quota-exceeded",
    ]  # fmt: skip
    assert await stored(store) == 3


async def test_bytes_are_counted_with_the_steps_that_follow(api_of: Api, store: MemoryStore) -> None:
    await Quotas(store).set("acme", bytes=1_000)
    large = {"text": "x" * 950}
    step = {"type": "t", "payload": large}
    problem(await api_of("POST", "/tasks", {**TASK, "next": [step]}), 507, "quota-exceeded")
    await api_of.good("POST", "/tasks", {**TASK, "payload": large})
    problem(await api_of("POST", "/tasks", {**TASK, "payload": large}), 507, "quota-exceeded")
    await api_of.good("POST", "/tasks", TASK)


async def test_a_step_counts_for_the_tenant_it_will_have(api_of: Api, store: MemoryStore) -> None:
    await Quotas(store).set("bob", tasks=1)
    steps = [{"type": "t", "tenant": "bob", "next": [{"type": "t"}]}]
    refused = problem(await api_of("POST", "/tasks", {**TASK, "next": steps}), 507, "quota-exceeded")
    assert refused["quota"]["tenant"] == "bob"


async def test_the_quota_of_the_others_is_for_each_of_them(api_of: Api, store: MemoryStore) -> None:
    await Quotas(store).set("*", tasks=1)
    await Quotas(store).set("acme", tasks=2)
    for tenant, room in (("acme", 2), ("bob", 1), ("cy", 1), (None, 1)):
        task = {"type": "t"} if tenant is None else {"type": "t", "tenant": tenant}
        for _ in range(room):
            await api_of.good("POST", "/tasks", task)
        problem(await api_of("POST", "/tasks", task), 507, "quota-exceeded")


async def test_a_repeat_is_free(api_of: Api, store: MemoryStore) -> None:
    await Quotas(store).set("acme", tasks=3)
    keyed = {**TASK, "idempotency_key": "k1"}
    first = await api_of.good("POST", "/tasks", keyed)
    both = {"tasks": [TASK, TASK]}
    await api_of.good("POST", "/tasks/batch", both, idempotency_key="request 1")

    assert (await api_of.good("POST", "/tasks", keyed))["id"] == first["id"]
    again = await api_of("POST", "/tasks/batch", both, idempotency_key="request 1")
    assert (again.status_code, again.headers["idempotency-replayed"]) == (201, "true")
    mixed = {"tasks": [keyed, {**TASK, "idempotency_key": "k2"}]}
    problem(await api_of("POST", "/tasks/batch", mixed), 507, "quota-exceeded")
    assert await stored(store) == 3


async def test_what_was_stored_by_a_lost_call_may_be_sent_again(api: ApiServer, store: MemoryStore) -> None:
    """A client over HTTP repeats a call without a reply, with the same ids."""
    await Quotas(store).set("acme", tasks=1)
    remote = HttpStore(api.serve(store, open_to_all=True))
    new = a_task(tenant="acme")
    assert [one.created for one in await remote.enqueue([new])] == [True]
    assert [one.created for one in await remote.enqueue([new])] == [False]
    with pytest.raises(QuotaExceeded, match="does not fit"):
        await remote.enqueue([a_task(tenant="acme")])
    await remote.close()


async def test_a_keeper_over_http_logs_what_a_quota_refuses_and_fires_the_rest(
    api: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    await Quotas(store).set("acme", tasks=0)
    schedules = App(store).operator.schedules
    for name, tenant in (("full", "acme"), ("free", "bob")):
        await schedules.put(await schedules.make(name, "t", "1h", b"{}", tenant=tenant, missed="once"))
    remote = HttpStore(api.serve(store, open_to_all=True))
    ticker = Ticker(remote)
    await ticker.fire_due()
    clock.advance(3_600)
    await ticker.fire_due()

    assert [count.values for count in await store.count(Filter(), (Dimension.TENANT,))] == [("bob",)]
    assert "cannot fire schedule full: QuotaExceeded" in caplog.text
    assert "Traceback" not in caplog.text
    await Quotas(remote).remove("acme")
    clock.advance(61)
    await ticker.fire_due()
    assert await stored(store) == 2
    await remote.close()


async def test_what_is_refused_for_another_reason_takes_no_room(api_of: Api, store: MemoryStore) -> None:
    await Quotas(store).set("acme", tasks=2)
    unique = {**TASK, "unique": True}
    await api_of.good("POST", "/tasks", unique)
    for _ in range(3):
        problem(await api_of("POST", "/tasks", unique), 409, "duplicate-task")
    await api_of.good("POST", "/tasks", TASK)


async def test_what_is_stored_already_stays_and_can_be_worked(api_of: Api, store: MemoryStore) -> None:
    """Workers settle results and successors whatever the quota; only new tasks are refused."""
    await api_of.good("POST", "/tasks", {**TASK, "next": [{"type": "t"}]})
    await api_of.good("PUT", "/quotas/acme", {"tasks": 0})
    problem(await api_of("POST", "/tasks", TASK), 507, "quota-exceeded")
    (claimed,) = await api_of.claim(await api_of.session(), 1)
    assert await api_of.settle({**lease(claimed), "outcome": "returned", "result": "x" * 100}) == ["applied"]
    assert await stored(store) == 2


async def test_every_store_is_counted_as_its_tasks_come_and_go(
    on_each: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "COUNT_EVERY", 0.0)

    async def three_are_counted() -> bool:
        """Not at once if one was stored while a count was under way, which counts it twice."""
        (found,) = (await on_each.good("GET", "/quotas/acme"))["in_use"]
        return bool(found["tasks"] == 3)

    async def result_is_counted() -> bool:
        (found,) = (await on_each.good("GET", "/quotas/acme"))["in_use"]
        return bool(found["tasks"] == 3 and found["bytes"] >= 3 * len("{}") + 100)

    async def there_is_room() -> bool:
        return (await on_each("POST", "/tasks", TASK)).status_code == 201

    async def there_is_room_for_two() -> bool:
        """Not at once if the dead task was stored while a count was under way, which counts it twice."""
        chain = {**TASK, "queue": "other", "next": [{"type": "t", "queue": "last"}]}
        return (await on_each("POST", "/tasks", chain)).status_code == 201

    await on_each.good("PUT", "/quotas/acme", {"tasks": 3})
    dead = await on_each.die(tenant="acme")
    await eventually(there_is_room_for_two)
    problem(await on_each("POST", "/tasks", TASK), 507, "quota-exceeded")
    (claimed,) = await on_each.claim(await on_each.session("other"), 1, "other")
    await on_each.settle({**lease(claimed), "outcome": "returned", "result": "x" * 98})
    await eventually(result_is_counted)
    problem(await on_each("POST", "/tasks", TASK), 507, "quota-exceeded")

    await on_each.good("DELETE", f"/dead/{dead}?why=x")

    await eventually(there_is_room)
    await eventually(three_are_counted)
    problem(await on_each("POST", "/tasks", TASK), 507, "quota-exceeded")


async def test_a_quota_can_be_removed(api_of: Api, store: MemoryStore) -> None:
    await api_of.good("PUT", "/quotas/acme", {"tasks": 0})
    problem(await api_of("POST", "/tasks", TASK), 507, "quota-exceeded")
    await api_of.good("DELETE", "/quotas/acme?why=paid")
    await api_of.good("POST", "/tasks", TASK)
    problem(await api_of("DELETE", "/quotas/acme"), 404, "not-found")
    assert [audit.subject for audit in (await store.records(Audit, Page())).items] == ["quota acme"] * 2


# -- what is shown -----------------------------------------------------------------------------------


async def test_a_tenant_sees_its_own_quota_and_no_others(
    api_of: Api, store: MemoryStore, keys: Keys, api: ApiServer
) -> None:
    for tenant, number in (("acme", 10), ("bob", 20), ("*", 30)):
        await Quotas(store).set(tenant, tasks=number)
    for tenant in ("acme", "bob", "cy"):
        await api_of.enqueue(tenant=tenant)

    async def seen(tenant: str) -> Any:
        key = await keys.create("k", scopes=[Scope.READ], tenant=tenant)
        bound = Api(api_of.http, api.serve(store), key.text)
        return (await bound.good("GET", "/quotas"))["items"], bound

    (acme,), as_acme = await seen("acme")
    assert acme == {
        "tenant": "acme", "tasks": 10, "bytes": None,
        "in_use": [{"tenant": "acme", "tasks": 1, "bytes": 2, "share": 0.1}],
    }  # fmt: skip
    assert await as_acme.good("GET", "/quotas/acme") == acme
    for other in ("bob", "*", "cy", "nobody"):
        problem(await as_acme("GET", f"/quotas/{other}"), 404, "not-found")
    (others,), as_cy = await seen("cy")
    assert (others["tenant"], others["tasks"], [one["tenant"] for one in others["in_use"]]) == (
        "*",
        30,
        ["cy"],
    )
    assert await as_cy.good("GET", "/quotas/cy") == await as_cy.good("GET", "/quotas/*") == others


async def test_a_key_of_some_queues_learns_nothing_of_the_others(
    api_of: Api, store: MemoryStore, keys: Keys, api: ApiServer
) -> None:
    await Quotas(store).set("acme", tasks=7)
    await api_of.good("POST", "/tasks/batch", {"tasks": [TASK] * 7})
    key = await keys.create("k", scopes=[Scope.ENQUEUE, Scope.READ], queues=["mail"])
    bound = Api(api_of.http, api.serve(store), key.text)
    problem(await bound("GET", "/quotas"), 403, "forbidden")
    refused = await bound("POST", "/tasks", {**TASK, "queue": "mail"})
    assert problem(refused, 507, "quota-exceeded")["detail"] == "the quota of a tenant is used up"
    assert "7" not in refused.text.replace("507", "")
    assert "retry-after" in refused.headers


async def test_what_is_set_is_what_is_seen(on_each: Api) -> None:
    assert await on_each.good("GET", "/quotas") == {"items": []}
    made = await on_each.good("PUT", "/quotas/acme", {"tasks": 10, "bytes": 100})
    assert made["in_use"] == [{"tenant": "acme", "tasks": 0, "bytes": 0, "share": 0.0}]
    others = await on_each.good("PUT", "/quotas/*", {"tasks": 4})
    assert others == {"tenant": "*", "tasks": 4, "bytes": None, "in_use": []}
    await on_each.enqueue(tenant="acme", payload={"a": 1}, next=[{"type": "t", "tenant": "bob"}])
    await on_each.enqueue(tenant="cy")
    all_of_them = (await on_each.good("GET", "/quotas"))["items"]
    assert [one["tenant"] for one in all_of_them] == ["*", "acme"]
    assert [(one["tenant"], one["tasks"], one["share"]) for one in all_of_them[0]["in_use"]] == [
        ("bob", 1, 0.25), ("cy", 1, 0.25),
    ]  # fmt: skip
    assert all_of_them[1]["in_use"][0]["tasks"] == 1


@pytest.mark.parametrize(
    ("tenant", "body"),
    [("acme", {}), ("acme", {"tasks": None}), ("acme", {"tasks": -1}), ("acme", {"bytes": 10**15 + 1}),
     ("acme", {"tasks": 1.5}), ("acme", {"tasks": True}), ("acme", {"bytes": "1MB"}), ("acme", {"more": 1}),
     ("a b", {"tasks": 1}), ("**", {"tasks": 1})],
)  # fmt: skip
async def test_what_is_no_quota(tenant: str, body: dict[str, Any], api_of: Api, store: MemoryStore) -> None:
    refused = await api_of("PUT", f"/quotas/{quote(tenant)}", body)
    problem(refused, 422, refused.json()["code"])
    assert await Quotas(store).list() == []


# -- metrics -----------------------------------------------------------------------------------------


async def test_metrics_of_tenants_with_an_own_quota(
    api_of: Api, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached_reads, "_SHARE", 1)  # metrics are made for each scrape

    def quota_lines(text: str) -> list[str]:
        return [line for line in text.splitlines() if "tenant=" in line]

    assert quota_lines((await api_of("GET", "/metrics")).text) == []
    await api_of.good("PUT", "/quotas/acme", {"tasks": 4, "bytes": 1_000})
    await api_of.good("PUT", "/quotas/*", {"tasks": 1})
    await batch(api_of, 3)
    await api_of.enqueue(tenant="bob")
    assert await batch(api_of, 2) == 507
    problem(await api_of("POST", "/tasks", {"type": "t", "tenant": "bob"}), 507, "quota-exceeded")

    assert sorted(quota_lines((await api_of("GET", "/metrics")).text)) == [
        'windlass_quota_refusals_total{tenant="*"} 1.0',
        'windlass_quota_refusals_total{tenant="acme"} 1.0',
        'windlass_quota_used_ratio{tenant="*"} 1.0',
        'windlass_quota_used_ratio{tenant="acme"} 0.75',
        'windlass_tenant_stored_bytes{tenant="acme"} 6.0',
        'windlass_tenant_stored_tasks{tenant="acme"} 3.0',
    ]


async def test_keys_are_listed_with_the_quota_of_their_tenant(
    api_of: Api, store: MemoryStore, keys: Keys
) -> None:
    await keys.create("a", scopes=[Scope.ENQUEUE], tenant="acme")
    await keys.create("b", scopes=[Scope.ENQUEUE], tenant="bob")
    await keys.create("c", scopes=[Scope.ENQUEUE])
    await api_of.enqueue(tenant="acme")
    await api_of.good("PUT", "/quotas/acme", {"tasks": 4})

    listed = {key["label"]: key["quota"] for key in (await api_of.good("GET", "/keys"))["items"]}

    assert listed == {
        "a": {
            "tenant": "acme", "tasks": 4, "bytes": None,
            "in_use": [{"tenant": "acme", "tasks": 1, "bytes": 2, "share": 0.25}],
        },
        "b": None,
        "c": None,
    }  # fmt: skip
