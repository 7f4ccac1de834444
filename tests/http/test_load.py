"""What one key may have in progress: requests, streams, bytes of bodies. Urgent requests pass."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest

from tests.http.problem import problem
from tests.loops.workers import eventually
from tests.servers.api import ApiServer
from windlass import App
from windlass._client.keys import Keys
from windlass._http.web import load as bounds
from windlass._http.web.load import Held, Load, LoadLimits, load_limits
from windlass._http.web.problems import Problem
from windlass._stores.memory import MemoryStore

JSON = {"content-type": "application/json"}
FEW = LoadLimits(requests_per_key=3, streams_per_key=2, streams=3)


def begun(load: Load, key: str, *, urgent: bool = False) -> Held:
    held = Held(load)
    held.begin(key, urgent=urgent)
    return held


def test_requests_of_a_key_are_bounded() -> None:
    load = Load(FEW)
    held = [begun(load, "a") for _ in range(3)]
    with pytest.raises(Problem, match="3 requests in progress") as raised:
        begun(load, "a")
    assert raised.value.status == 429
    begun(load, "b")
    held.append(begun(load, "a", urgent=True))
    for one in held:
        one.release()
    assert load.requests == {"b": 1}


def test_streams_are_bounded_for_a_key_and_in_all() -> None:
    load = Load(LoadLimits(requests_per_key=9, streams_per_key=2, streams=3))
    held = [begun(load, key) for key in ("a", "a", "b")]
    for one in held:
        one.begin_stream()
    for key, status in (("a", 429), ("b", 503)):
        refused = begun(load, key)
        with pytest.raises(Problem) as raised:
            refused.begin_stream()
        assert raised.value.status == status
        refused.release()
    held[2].release()
    begun(load, "c").begin_stream()
    assert load.streams == {"a": 2, "c": 1}


def test_a_stream_that_keeps_much_counts_as_several() -> None:
    load = Load(LoadLimits(requests_per_key=9, streams_per_key=4, streams=6))
    first, second = begun(load, "a"), begun(load, "a")
    first.begin_stream(bounds.SMALL_BODY * 2)
    assert load.streams == {"a": 3}
    with pytest.raises(Problem, match="4 streams"):
        second.begin_stream(bounds.SMALL_BODY)
    first.release()
    second.begin_stream(bounds.SMALL_BODY * 1_000)
    assert load.streams == {"a": 4}


def test_bytes_of_bodies_are_bounded_but_for_small_ones() -> None:
    load = Load()
    first, second, urgent = begun(load, "a"), begun(load, "b"), begun(load, "c", urgent=True)
    small = bounds.SMALL_BODY
    first.hold_body(1 << 20)
    first.hold_body(bounds.MAX_BODY_BYTES)
    assert load.body_bytes == bounds.MAX_BODY_BYTES - small
    second.hold_body(small)
    with pytest.raises(Problem, match="too many large bodies") as raised:
        second.hold_body(small * 2 + 1)
    assert raised.value.status == 503
    urgent.hold_body(bounds.MAX_BODY_BYTES // 2 + small)
    for one in (first, second, urgent):
        one.release()
    assert (load.body_bytes, load.requests) == (0, {})


def test_the_share_of_a_key_follows_the_connections() -> None:
    assert load_limits(1_000) == LoadLimits()
    assert load_limits(1) == LoadLimits(requests_per_key=1, streams_per_key=1, streams=1)
    assert load_limits(1_000, 900).streams_per_key == 900


@pytest.fixture
async def keyed(
    api: ApiServer, store: MemoryStore, keys: Keys, http: httpx2.AsyncClient
) -> AsyncIterator[tuple[Load, httpx2.AsyncClient]]:
    """The load of a server with few places, and a client with a key."""
    url = api.serve_app(App(store), limits=FEW)
    load = api._services[-1].load
    made = await keys.create("k", scopes=["admin"])
    headers = {"authorization": f"Bearer {made.text}"}
    async with httpx2.AsyncClient(
        base_url=url, headers=headers, trust_env=False, verify=False, timeout=30
    ) as client:
        yield load, client
    await eventually(lambda: not load.requests and not load.streams and not load.body_bytes)


async def test_every_stream_and_long_poll_counts(keyed: tuple[Load, httpx2.AsyncClient]) -> None:
    load, http = keyed
    task = (await http.post("/tasks", json={"type": "t", "delay": 1000})).json()["id"]
    worker = {"name": "w"}
    session = (await http.post("/work/sessions", json=worker)).json()["session"]
    async with AsyncExitStack() as streams:
        for _ in range(FEW.streams_per_key):
            answer = await http.send(http.build_request("GET", "/events"), stream=True)
            streams.push_async_callback(answer.aclose)
            assert answer.status_code == 200
        asked: list[tuple[str, str, Any]] = [
            ("GET", "/events", None),
            ("GET", f"/tasks/{task}/events", None),
            ("GET", f"/tasks/{task}?wait=1", None),
            ("POST", "/store/wakes", {"queues": ["q"]}),
            ("GET", "/export", None),
            ("POST", "/work/claim", {"session": session, "queues": ["q"], "number": 1, "wait": 1}),
        ]
        for method, path, body in asked:
            refused = await http.request(method, path, json=body)
            problem(refused, 429, "too-many-requests")
            assert refused.headers["retry-after"] == "1"
        lines = {"content-type": "application/x-ndjson"}
        refused = await http.post("/tasks/stream", content=b'{"type":"t"}', headers=lines)
        problem(refused, 429, "too-many-requests")
        assert (await http.get(f"/tasks/{task}")).status_code == 200
        beat = {"session": session, "worker": worker}
        assert (await http.get(f"/tasks/{task}?wait=0")).status_code == 200
        assert (await http.post("/work/heartbeat", json=beat)).status_code == 200
    await eventually(lambda: not load.streams)


async def test_a_stream_of_wakes_counts_what_its_names_take(keyed: tuple[Load, httpx2.AsyncClient]) -> None:
    load, http = keyed
    names = {"queues": [f"queue-{number:05}" for number in range(10_000)]}
    async with http.stream("POST", "/store/wakes", json=names) as heard:
        assert heard.status_code == 200
        assert sum(load.streams.values()) == FEW.streams_per_key
        refused = await http.post("/store/wakes", json={"queues": ["q"]})
        problem(refused, 429, "too-many-requests")


async def test_heartbeats_of_a_busy_key_are_served(keyed: tuple[Load, httpx2.AsyncClient]) -> None:
    load, http = keyed
    session = (await http.post("/work/sessions", json={"name": "w"})).json()["session"]
    end = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b'{"type":'
        await end.wait()
        yield b'"t"}'

    sends = [
        asyncio.ensure_future(http.post("/tasks", content=slow(), headers=JSON))
        for _ in range(FEW.requests_per_key)
    ]
    await eventually(lambda: sum(load.requests.values()) == FEW.requests_per_key)
    problem(await http.post("/tasks", json={"type": "t"}), 429, "too-many-requests")
    beat = {"session": session, "worker": {"name": "w"}}
    assert (await http.post("/work/heartbeat", json=beat)).status_code == 200
    assert (await http.get("/healthz")).status_code == 200
    end.set()
    assert {one.status_code for one in await asyncio.gather(*sends)} == {201}


async def test_large_bodies_wait_for_each_other_and_small_ones_pass(
    keyed: tuple[Load, httpx2.AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    load, http = keyed
    monkeypatch.setattr(bounds, "MAX_BODY_BYTES", 200_000)
    end = asyncio.Event()

    async def large() -> AsyncIterator[bytes]:
        yield b'{"type":"t","payload":{"x":"' + b"x" * 250_000
        await end.wait()
        yield b'"}}'

    first = asyncio.ensure_future(http.post("/tasks", content=large(), headers=JSON))
    await eventually(lambda: load.body_bytes > 150_000)
    body = {"type": "t", "payload": {"x": "x" * 150_000}}
    refused = await http.post("/tasks", json=body)
    problem(refused, 503, "busy")
    assert refused.headers["retry-after"] == "1"
    assert (await http.post("/tasks", json={"type": "t"})).status_code == 201
    end.set()
    assert (await first).status_code == 201
    assert (await http.post("/tasks", json=body)).status_code == 201
