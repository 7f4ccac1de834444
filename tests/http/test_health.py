"""Health and readiness need no key and reveal nothing else."""

import asyncio
from pathlib import Path

import httpx2
import pytest

from tests.http.problem import assert_safe, problem
from tests.loops.workers import eventually
from tests.servers.api import ApiServer
from windlass import App
from windlass._http.resources import health as about
from windlass._ids import new_id
from windlass._model.task import NewTask
from windlass._stores.memory import MemoryStore
from windlass._stores.sqlite import SQLiteStore
from windlass.testing.faults import Fault, FaultyStore, Hold, scripted


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_anybody_may_ask_and_learns_nothing_of_tasks(
    path: str, http: httpx2.AsyncClient, url: str, store: MemoryStore
) -> None:
    before = await http.get(f"{url}{path}")
    task_id = new_id()
    await store.enqueue(
        [NewTask(id=task_id, type="hidden.type", payload=b'{"a":"hidden"}', root=task_id, queue="hidden")]
    )
    after = await http.get(f"{url}{path}")
    for answer in (before, after):
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert_safe(answer)
        assert "hidden" not in answer.text
    assert set(after.json()) == set(before.json()) <= {"status", "durability", "why", "keeper", "now"}
    assert {key: one for key, one in after.json().items() if key != "now"} == {
        key: one for key, one in before.json().items() if key != "now"
    }


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_a_head_is_enough(path: str, http: httpx2.AsyncClient, url: str) -> None:
    answer = await http.head(f"{url}{path}")
    assert (answer.status_code, answer.content) == (200, b"")
    assert_safe(answer)


async def test_not_ready_while_the_store_is_away(api: ApiServer, http: httpx2.AsyncClient) -> None:
    url = api.serve(FaultyStore(MemoryStore(), scripted(records=[Fault.BEFORE])))
    assert (await http.get(f"{url}/healthz")).status_code == 200
    away = await http.get(f"{url}/readyz")
    problem(away, 503, "store-unavailable")
    assert away.headers["retry-after"] == "1"
    assert (await http.get(f"{url}/readyz")).status_code == 200


async def test_it_says_whether_a_keeper_leads(
    http: httpx2.AsyncClient, open_url: str, store: MemoryStore
) -> None:
    async def keeper() -> bool:
        return (await http.get(f"{open_url}/readyz")).json()["keeper"] is True

    assert not await keeper()
    keeping = asyncio.ensure_future(App(store).keeper(name="k").run())
    await eventually(keeper)
    keeping.cancel()
    await asyncio.wait([keeping])
    assert not await keeper()


async def test_not_ready_without_its_file(api: ApiServer, http: httpx2.AsyncClient, tmp_path: Path) -> None:
    url = api.serve(SQLiteStore(tmp_path / "nowhere" / "windlass.db"))
    away = await http.get(f"{url}/readyz")
    assert away.status_code == 503
    assert str(tmp_path) not in away.text
    assert (await http.get(f"{url}/healthz")).status_code == 200


async def test_a_store_that_hangs_is_not_waited_for(
    api: ApiServer, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(about, "TIMEOUT_SECONDS", 0.1)
    hold = Hold()
    url = api.serve(FaultyStore(MemoryStore(), scripted(records=[hold])))
    async with asyncio.timeout(10):
        assert (await http.get(f"{url}/readyz")).status_code == 503
    hold.let_go()
