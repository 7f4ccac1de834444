"""Workers in any language: lost responses, lost leases, what is stored of outcomes."""

import asyncio
from itertools import count
from typing import Any

import httpx2
import pytest

from tests.http.problem import problem
from tests.loops.workers import eventually
from tests.servers.api import ApiServer
from windlass import App, State
from windlass._client.keys import Keys
from windlass._ids import new_id
from windlass._stores.memory import MemoryStore

WORKER = {"name": "far", "lease": 30}


class Far:
    """A worker that does what it is told and no more."""

    def __init__(self, http: httpx2.AsyncClient, url: str, store: MemoryStore) -> None:
        self.http, self.url = http, url
        self.app = App(store)
        self.session = ""

    async def ask(self, path: str, **body: Any) -> httpx2.Response:
        return await self.http.post(f"{self.url}/work/{path}", json=body)

    async def open(self) -> None:
        answer = await self.ask("sessions", **WORKER)
        assert answer.status_code == 201
        self.session = answer.json()["session"]

    async def claim(self, number: int, **more: Any) -> Any:
        answer = await self.ask("claim", session=self.session, number=number, limit=10, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()["tasks"]

    async def beat(self, *held: Any, through: int = 0) -> Any:
        leases = [{"id": one["id"], "fence": one["fence"]} for one in held]
        answer = await self.ask(
            "heartbeat", session=self.session, worker=WORKER, held=leases, through=through
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def settle(self, *ended: tuple[Any, dict[str, Any]]) -> list[str]:
        tasks = [{"id": one["id"], "fence": one["fence"], **told} for one, told in ended]
        answer = await self.ask("settle", tasks=tasks)
        assert answer.status_code == 200, answer.text
        return [one["receipt"] for one in answer.json()["tasks"]]

    async def task(self, one: Any) -> Any:
        return await self.app.operator.task(one["id"])


@pytest.fixture
async def far(http: httpx2.AsyncClient, open_url: str, store: MemoryStore) -> Far:
    far = Far(http, open_url, store)
    await far.open()
    return far


async def test_a_claim_whose_answer_was_lost_is_given_to_others(far: Far) -> None:
    await far.app.client.send("t", {})
    (lost,) = await far.claim(1)  # as if it had never arrived
    assert (await far.beat(through=0)) == {"lost": [], "cancel": []}  # it may still be under way
    assert await far.claim(2) == []
    await far.beat(through=2)

    (again,) = await far.claim(3)
    assert (again["id"], again["attempt"]) == (lost["id"], 1)  # it never ran, and is not counted
    assert again["fence"] > lost["fence"]


async def test_a_task_that_is_not_held_until_it_is_settled_is_given_to_others(far: Far) -> None:
    await far.app.client.send("t", {})
    (task,) = await far.claim(1)
    await far.beat(task, through=1)
    await far.beat(through=1)

    assert await far.settle((task, {"outcome": "returned"})) == ["lost"]


async def test_a_lost_lease_is_named_with_its_fence(far: Far) -> None:
    await far.app.client.send("t", {})
    (first,) = await far.claim(1)
    assert await far.settle((first, {"outcome": "interrupted"})) == ["applied"]
    (second,) = await far.claim(2)
    assert second["id"] == first["id"]

    lost = (await far.beat(first, second, through=2))["lost"]
    assert lost == [{"id": first["id"], "fence": first["fence"]}]


async def test_the_last_progress_is_stored_with_the_outcome(far: Far) -> None:
    await far.app.client.send("t", {})
    (task,) = await far.claim(1)
    told = {"outcome": "returned", "progress": {"fraction": 7, "message": "10 of 10"}}

    assert await far.settle((task, told)) == ["applied"]
    progress = (await far.task(task)).progress
    assert (progress.fraction, progress.message) == (1.0, "10 of 10")


async def test_notes_are_kept_with_the_attempt_without_secrets(far: Far) -> None:
    await far.app.client.send("t", {"password": "sesame-open"})
    (task,) = await far.claim(1)
    notes = {"response_code": 200, "token": "t", "url": "/?p=sesame-open"}

    assert await far.settle((task, {"outcome": "returned", "notes": notes})) == ["applied"]

    (attempt,) = (await far.http.get(f"{far.url}/tasks/{task['id']}/attempts")).json()["items"]
    assert attempt["notes"] == {"response_code": 200, "token": "[secret]", "url": "/?p=[secret]"}


@pytest.mark.parametrize("notes", [[1], "text", {"text": "x" * 5000}])
async def test_notes_that_are_no_small_object_are_refused(far: Far, notes: object) -> None:
    await far.app.client.send("t", {})
    (task,) = await far.claim(1)
    ended = {"id": task["id"], "fence": task["fence"], "outcome": "returned", "notes": notes}

    answer = await far.ask("settle", tasks=[ended])

    assert answer.status_code == 422
    assert (await far.task(task)).state is State.RUNNING
    unknown = {**ended, "id": new_id()}
    assert (await far.ask("settle", tasks=[unknown])).status_code == 422


async def test_a_result_that_cannot_be_kept_buries_its_task_alone(far: Far) -> None:
    await far.app.client.send("t", {})
    await far.app.client.send("t", {})
    large, good = await far.claim(1)
    told = ((large, {"outcome": "returned", "result": "x" * 2**20}), (good, {"outcome": "returned"}))
    assert await far.settle(*told) == ["applied", "applied"]

    dead, done = await far.task(large), await far.task(good)
    assert (dead.state, done.state) == (State.DEAD, State.COMPLETED)
    assert dead.error.type == "Fatal"
    assert dead.error.message.startswith("the handler ran, but the result")
    assert await far.settle(*told) == ["repeated", "repeated"]


async def test_an_error_of_any_length_is_kept_in_part(far: Far) -> None:
    await far.app.client.send("t", {})
    (task,) = await far.claim(1)
    error = {"type": "E" * 300, "message": "m" * 200_000, "traceback": "t" * 2_000_000}
    assert await far.settle((task, {"outcome": "failed", "error": error})) == ["applied"]

    kept = (await far.task(task)).error
    assert (len(kept.type) <= 200, len(kept.message) <= 2_000, len(kept.traceback) <= 16_000) == (True,) * 3


async def test_a_sign_of_life_is_not_refused_for_its_progress(far: Far) -> None:
    await far.app.client.send("t", {})
    (task,) = await far.claim(1)
    held = {
        "id": task["id"],
        "fence": task["fence"],
        "progress": {"fraction": 1.0001, "message": "m" * 9_000},
    }
    answer = await far.ask("heartbeat", session=far.session, worker=WORKER, held=[held], through=1)
    assert answer.status_code == 200

    kept = (await far.task(task)).progress
    assert (kept.fraction, kept.message) == (1.0, "m" * 500)


async def test_who_waits_is_answered_as_soon_as_there_is_a_task(far: Far) -> None:
    waiting = asyncio.create_task(far.claim(1, wait=20))
    await asyncio.wait([waiting], timeout=0.1)
    handle = await far.app.client.send("t", {})

    assert [one["id"] for one in await asyncio.wait_for(waiting, 10)] == [handle.id]


async def test_who_waits_is_answered_when_the_server_stops(
    far: Far, store: MemoryStore, api: ApiServer, open_url: str
) -> None:
    waiting = asyncio.create_task(far.claim(1, wait=20))
    await eventually(lambda: store._tables.listeners)
    api.closes(open_url)

    assert await asyncio.wait_for(waiting, 10) == []


async def test_who_waits_is_refused_once_the_key_is_revoked(
    http: httpx2.AsyncClient, url: str, store: MemoryStore, keys: Keys
) -> None:
    made = await keys.create("far", scopes=["work"])
    http.headers["authorization"] = f"Bearer {made.text}"
    far = Far(http, url, store)
    await far.open()
    waiting = asyncio.create_task(far.ask("claim", session=far.session, number=1, wait=20))
    await eventually(lambda: store._tables.listeners)
    await keys.revoke(made.key.name)

    problem(await asyncio.wait_for(waiting, 10), 401, "unauthorized")


async def test_a_task_for_who_has_gone_while_waiting_comes_back(far: Far) -> None:
    waiting = {"session": far.session, "number": 1, "wait": 20}
    with pytest.raises(httpx2.ReadTimeout):
        await far.http.post(f"{far.url}/work/claim", json=waiting, timeout=0.2)
    handle = await far.app.client.send("t", {})
    numbers = count(2)

    async def claimed() -> Any:
        number = next(numbers)
        await far.beat(through=number - 1)
        return await far.claim(number)

    (task,) = await eventually(claimed)
    assert (task["id"], task["attempt"]) == (handle.id, 1)


async def test_a_session_that_is_over_is_gone(far: Far) -> None:
    ended = await far.http.delete(f"{far.url}/work/sessions/{far.session}")
    assert ended.status_code == 204
    problem(await far.ask("claim", session=far.session, number=1), 410, "session-lost")
    problem(await far.ask("heartbeat", session=far.session, worker=WORKER), 410, "session-lost")
    problem(await far.http.delete(f"{far.url}/work/sessions/{far.session}"), 410, "session-lost")
