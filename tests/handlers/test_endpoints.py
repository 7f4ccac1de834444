"""Endpoints that responded with 410 Gone: disabled in all workers, until an operator enables them."""

import asyncio
from pathlib import Path

import pytest

from tests.handlers.http_sink import Answer, http_sink
from tests.handlers.runs import new_app, run
from windlass import App, By, NotFound, State, Task, handlers
from windlass._ids import new_id
from windlass._policy import endpoint as policy
from windlass._stores.memory import MemoryStore
from windlass.handlers import endpoints
from windlass.testing.faults import Fault, FaultyStore


def error(task: Task) -> str:
    return task.error.message if task.error else ""


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "FRESH_FOR", 0.0)


async def test_what_one_worker_learns_holds_for_all_until_it_is_enabled(tmp_path: Path) -> None:
    first, second = (new_app(store=f"sqlite:///{tmp_path}/windlass.db") for _ in range(2))
    apps = {app: app.include(handlers.Webhooks()) for app in (first, second)}
    with http_sink(Answer(410), Answer(204)) as sink:
        url = f"{sink.url}/hooks/T0K3N"
        gone = await run(apps[first], first, endpoint=url, body={})
        barred = await run(apps[second], second, endpoint=url, body={})
        elsewhere = await run(apps[second], second, endpoint=f"{sink.url}/other", body={})
        (disabled,) = await second.operator.endpoints.list()
        await second.operator.acting_as(By(who="ann", why="it is back")).endpoints.enable(disabled.name)
        sent = await run(apps[first], first, endpoint=url, body={})

    assert [one.state for one in (gone, barred, elsewhere, sent)] == [
        State.DEAD,
        State.DEAD,
        State.COMPLETED,
        State.COMPLETED,
    ]
    assert len(sink.received) == 3
    assert (disabled.endpoint, disabled.tenant, disabled.task_id) == (f"{sink.url}/\u2026", "", gone.id)
    for task in (gone, barred):
        assert f"`windlass endpoints enable {disabled.name}`" in error(task)
    assert f"410 Gone to task {gone.id}" in error(barred)
    log = [
        (one.who, one.why, one.action, one.subject)
        for one in (await first.operator.audit()).items
        if one.subject.startswith("endpoint")
    ]
    assert sorted(log) == [
        ("ann", "it is back", "remove", f"endpoint {disabled.name}"),
        ("deliver_webhook", f"410 Gone to task {gone.id}", "create", f"endpoint {disabled.name}"),
    ]
    for app in apps:
        await app.close()


async def test_other_tenants_still_send() -> None:
    app = new_app()
    deliver = app.include(handlers.Webhooks())
    with http_sink(Answer(410), Answer(204)) as sink:
        await run(deliver.using(tenant="acme"), app, endpoint=sink.url, body={})
        same = await run(deliver.using(tenant="acme"), app, endpoint=sink.url, body={})
        other = await run(deliver.using(tenant="bob"), app, endpoint=sink.url, body={})

    assert (same.state, other.state, len(sink.received)) == (State.DEAD, State.COMPLETED, 2)


async def test_tasks_that_start_together_read_once() -> None:
    reads = 0

    def plan(verb: str) -> None:
        nonlocal reads
        reads += verb == "records"

    app = App(FaultyStore(MemoryStore(), plan))
    found = endpoints.DisabledEndpoints(app)
    endpoints.FRESH_FOR = 60.0  # the fixture restores it
    made = await app.operator.endpoints.disable("https://example.org", task_id=new_id())
    before = reads
    answers = await asyncio.gather(*(found.find("https://example.org", "") for _ in range(20)))

    assert answers == [made] * 20
    assert reads == before + 1


async def test_an_outage_holds_up_no_message() -> None:
    is_down = False

    def plan(verb: str) -> Fault | None:
        return Fault.BEFORE if is_down and verb == "records" else None

    app = App(FaultyStore(MemoryStore(), plan))
    found = endpoints.DisabledEndpoints(app)
    made = await app.operator.endpoints.disable("https://example.org", task_id=new_id())
    assert await found.find("https://example.org", "") == made
    is_down = True

    assert await found.find("https://example.org", "") == made, "what it knows stays"
    assert await found.find("https://elsewhere.example", "") is None


async def test_a_store_keeps_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "MAX_DISABLED", 2)
    operator = new_app().operator
    made = [await operator.endpoints.disable(f"https://{n}.example", task_id=new_id()) for n in range(3)]
    await operator.endpoints.disable("https://2.example", task_id=made[2].task_id)

    assert {one.name for one in await operator.endpoints.list()} == {one.name for one in made[1:]}
    with pytest.raises(NotFound, match="windlass endpoints list"):
        await operator.endpoints.enable(made[0].name)
