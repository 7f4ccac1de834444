"""A store that holds damaged tasks, served: every page, export, claim and settlement works for the others."""

import msgspec
import pytest

from tests.http.api_client import Api
from tests.servers.api import ApiServer
from windlass._model.filter import Filter, Page
from windlass._model.state import State
from windlass._model.task import DAMAGED
from windlass._store.protocol import Store
from windlass._stores.http import HttpStore
from windlass.testing.conformance.steps import a_task, bury, complete, worker_on
from windlass.testing.conformance.work.damage import BAD


@pytest.mark.parametrize("number", range(len(BAD)))
async def test_everything_works_for_the_others(number: int, kept: Store, on_each: Api) -> None:
    await kept.enqueue([good := a_task(), bad := a_task(**BAD[number])])

    listed = {one["id"]: one for one in (await on_each.good("GET", "/tasks"))["items"]}
    shown = await on_each.good("GET", f"/tasks/{bad.id}")
    assert listed.keys() == {good.id, bad.id}
    assert (listed[good.id]["error"], shown["error"]["type"]) == (None, DAMAGED)
    session = await on_each.session()
    claimed = {one["id"]: one for one in await on_each.claim(session, 1, limit=10)}
    assert good.id in claimed
    receipts = await on_each.settle(
        *({"id": one["id"], "fence": one["fence"], "outcome": "returned"} for one in claimed.values())
    )
    assert set(receipts) == {"applied"}
    states = {one["id"]: one["state"] for one in (await on_each.good("GET", "/tasks"))["items"]}
    assert states == {good.id: "completed", bad.id: "dead"}
    dead = await on_each.good("GET", "/dead")
    assert [one["error"]["type"] in (DAMAGED, "Fatal") for one in dead["items"]] == [True]
    await on_each.good("DELETE", f"/dead/{bad.id}?why=damaged")
    assert [one["id"] for one in (await on_each.good("GET", "/tasks"))["items"]] == [good.id]


@pytest.mark.parametrize("number", range(len(BAD)))
async def test_a_python_worker_over_http(number: int, kept: Store, api: ApiServer) -> None:
    """Its store gets what can be read of it; one damaged task does not spoil the response."""
    served = kept.another()
    far = HttpStore(api.serve(served, open_to_all=True))
    await far.open()
    await kept.enqueue([good := a_task(), bad := a_task(**BAD[number])])
    found = (await far.find(Filter(), Page())).items
    claimed = await (await worker_on(far)).claim(10)
    settled = await far.settle([bury(one) if one.task.id == bad.id else complete(one) for one in claimed])
    assert ([task.id for task in found], len(claimed), len(settled.receipts)) == ([good.id, bad.id], 2, 2)
    assert found[1].as_dict()["error"]["type"] == DAMAGED
    await far.close()
    api.close(served)


async def test_an_export(kept: Store, on_each: Api) -> None:
    await kept.enqueue([a_task(**one) for one in BAD])
    claimed = await (await worker_on(kept)).claim(100)
    await kept.settle([complete(one, b"boo") for one in claimed])
    found = (await kept.find(Filter(states=(State.COMPLETED,)), Page())).items
    ended = max(task.finished_at for task in found if task.finished_at is not None)
    assert len(found) == len(BAD)
    response = await on_each("GET", "/export")
    lines = [msgspec.json.decode(line) for line in response.content.splitlines()]
    assert response.status_code == 200
    assert all(one["error"]["type"] == DAMAGED for one in lines)
    assert ended is not None
