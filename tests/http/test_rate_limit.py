"""Rate limits of API keys."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import httpx2
import msgspec
import pytest
from msgspec.structs import replace

from tests.http.api_client import Api
from tests.http.problem import problem
from tests.servers.api import ApiServer
from windlass._client.keys import Keys
from windlass._http.bounds.rate_limit import _MAX_BUCKETS, RateLimiter
from windlass._http.web.problems import Problem
from windlass._ids import new_id
from windlass._model.filter import Filter
from windlass._model.key import ApiKey, Scope
from windlass._model.task import NewTask
from windlass._store.json_codec import encode
from windlass._store.messages import EnqueueRequest
from windlass._stores.memory import MemoryStore


class Clock:
    """Seconds that pass when they are told to."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def key(rate: float | None, name: str = "k") -> ApiKey:
    return ApiKey(name=name, label=name, hash="", scopes=(), created_at=datetime.now(UTC), rate=rate)


def allowed(limiter: RateLimiter, kept: ApiKey, times: int) -> int:
    """How many of so many requests are let in."""
    number = 0
    for _ in range(times):
        try:
            limiter.take_request(kept)
        except Problem:
            continue
        number += 1
    return number


class TestPacing:
    @pytest.mark.parametrize(
        ("rate", "burst"), [(0.1, 1), (0.5, 1), (1, 1), (1.5, 1), (3, 3), (10, 10), (1000, 1000)]
    )
    def test_a_seconds_worth_at_once_and_then_no_faster_than_the_rate(self, rate: float, burst: int) -> None:
        clock = Clock()
        limiter = RateLimiter(clock=clock)
        assert allowed(limiter, key(rate), burst + 5) == burst
        number = 0
        for _ in range(200):
            clock.now += 0.25 / rate
            number += allowed(limiter, key(rate), 3)
        assert number in (49, 50, 51)
        clock.now += 1e6
        assert allowed(limiter, key(rate), burst + 5) == burst

    def test_each_key_by_itself_and_one_without_a_rate_at_will(self) -> None:
        limiter = RateLimiter(clock=Clock())
        assert allowed(limiter, key(2, "a"), 10) == 2
        assert allowed(limiter, key(2, "b"), 10) == 2
        assert allowed(limiter, key(None, "c"), 1000) == 1000
        limiter.take_request(None)
        assert limiter.headers(None) == limiter.headers(key(None)) == {}

    def test_what_it_says(self) -> None:
        clock = Clock()
        limiter = RateLimiter(clock=clock)
        assert allowed(limiter, key(3), 1) == 1
        assert limiter.headers(key(3)) == {
            "RateLimit-Policy": '"requests";q=3;w=1',
            "RateLimit": '"requests";r=2;t=1',
        }
        assert allowed(limiter, key(3), 5) == 2
        assert limiter.headers(key(3))["RateLimit"] == '"requests";r=0;t=1'
        limiter = RateLimiter(clock=clock)
        assert allowed(limiter, key(0.1), 5) == 1
        assert limiter.headers(key(0.1)) == {
            "RateLimit-Policy": '"requests";q=1;w=10',
            "RateLimit": '"requests";r=0;t=10',
        }
        both = replace(key(None), task_rate=10, byte_rate=5000)
        assert limiter.headers(both) == {
            "RateLimit-Policy": '"tasks";q=10;w=1, "bytes";q=5000;w=1',
            "RateLimit": '"tasks";r=10;t=0, "bytes";r=5000;t=0',
        }

    def test_who_waits_as_told_is_let_in(self) -> None:
        clock = Clock()
        limiter = RateLimiter(clock=clock)
        limiter.take_request(key(0.3))
        with pytest.raises(Problem) as refused:
            limiter.take_request(key(0.3))
        assert (refused.value.status, refused.value.code) == (429, "too-many-requests")
        assert refused.value.headers["Retry-After"] == "4"
        clock.now += 4
        limiter.take_request(key(0.3))

    def test_a_rate_that_is_changed_holds_at_once(self) -> None:
        clock = Clock()
        limiter = RateLimiter(clock=clock)
        assert allowed(limiter, key(0.001), 5) == 1
        assert allowed(limiter, key(100), 5) == 0
        clock.now += 1
        assert allowed(limiter, key(100), 500) == 100
        assert allowed(limiter, key(0.5), 5) == 0

    def test_keys_that_are_used_no_more_are_forgotten(self) -> None:
        clock = Clock()
        limiter = RateLimiter(clock=clock)
        for number in range(5 * _MAX_BUCKETS):
            limiter.take_request(key(10, str(number)))
            clock.now += 0.01
        assert len(limiter._buckets._buckets) <= _MAX_BUCKETS


async def test_a_key_that_asks_too_often_is_told_when_to_come_again(
    http: httpx2.AsyncClient, url: str, keys: Keys
) -> None:
    slow = Api(http, url, (await keys.create("slow", scopes=[Scope.READ], rate=0.01)).text)
    other = slow.by((await keys.create("other", scopes=[Scope.READ])).text)
    first = await slow("GET", "/tasks")
    assert first.status_code == 200
    assert first.headers["ratelimit-policy"] == '"requests";q=1;w=100'
    assert first.headers["ratelimit"] == '"requests";r=0;t=100'
    for method, path in (("GET", "/tasks"), ("POST", "/tasks"), ("POST", "/store/about")):
        again = await slow(method, path, {})
        told = problem(again, 429, "too-many-requests")
        assert set(told) == {"type", "title", "status", "detail", "code"}
        assert int(again.headers["retry-after"]) in (99, 100)
        assert again.headers["ratelimit"].startswith('"requests";r=0;t=')
    for _ in range(5):
        response = await other("GET", "/tasks")
        assert (response.status_code, response.headers.get("ratelimit")) == (200, None)
    assert (await slow("GET", "/healthz")).status_code == 200


async def test_what_is_refused_counts_and_who_has_no_key_does_not(
    http: httpx2.AsyncClient, url: str, keys: Keys
) -> None:
    made = await keys.create("slow", scopes=[Scope.READ], rate=0.01)
    slow = Api(http, url, made.text)
    for _ in range(5):
        problem(await slow.by(made.text[:-1] + "!")("GET", "/tasks"), 401, "unauthorized")
    problem(await slow("POST", "/tasks", {"type": "t"}), 403, "forbidden")
    problem(await slow("GET", "/tasks"), 429, "too-many-requests")


async def test_no_key_with_a_rate_that_is_none_gets_in(
    http: httpx2.AsyncClient, url: str, keys: Keys
) -> None:
    admin = Api(http, url, (await keys.create("k", scopes=[Scope.ADMIN])).text)
    record = {"name": "0" * 12, "label": "x", "scopes": ["read"], "created_at": "2026-01-01T00:00:00Z"}
    for rate in (0, -1, 1e9):
        message = {"kind": "key", "record": {**record, "hash": "0" * 64, "rate": rate}}
        problem(await admin("POST", "/store/put", message), 422, "invalid-option")


def new_task() -> dict[str, Any]:
    """A task as Python clients send it."""
    made = NewTask(id=(task_id := new_id()), root=task_id, type="t", payload=b"{}")
    found: dict[str, Any] = msgspec.json.decode(encode(EnqueueRequest(batch=(made,))))["batch"][0]
    return found


TASK = b'{"type": "t"}\n'


@pytest.fixture
def slow(http: httpx2.AsyncClient, url: str, keys: Keys) -> Callable[..., Awaitable[Api]]:
    """A caller whose key has these rates."""

    async def made(**rates: float) -> Api:
        scopes = [Scope.ENQUEUE, Scope.READ, Scope.OPERATE]
        return Api(http, url, (await keys.create("slow", scopes=scopes, **rates)).text)

    return made


class TestWork:
    """Tasks and bytes, however many come in one request."""

    async def test_a_stream_stores_no_faster_than_the_task_rate(
        self, slow: Callable[..., Awaitable[Api]], store: MemoryStore
    ) -> None:
        api = await slow(rate=2, task_rate=20)
        began, lines = monotonic(), 0
        headers = api.headers | {"content-type": "application/x-ndjson"}
        async with api.http.stream(
            "POST", f"{api.url}/tasks/stream", content=TASK * 3_000, headers=headers
        ) as response:
            async for _ in response.aiter_lines():
                lines += 1
                if lines == 30:
                    break
        elapsed = monotonic() - began
        stored = await store.count(Filter(), ())
        assert 30 <= sum(one.number for one in stored) <= 20 + 20 * elapsed
        assert elapsed >= 0.4

    async def test_a_line_that_had_to_wait_too_long_ends_the_stream(
        self, slow: Callable[..., Awaitable[Api]]
    ) -> None:
        api = await slow(task_rate=0.01)
        response = await api("POST", "/tasks/stream", TASK * 3, content_type="application/x-ndjson")
        first, second = [msgspec.json.decode(line) for line in response.content.splitlines()]
        assert first["created"]
        assert (second["line"], second["problem"]["status"]) == (2, 429)
        assert "0.01 tasks a second; retry in 100 s" in second["problem"]["detail"]

    async def test_a_stream_that_waits_ends_when_the_server_stops(
        self, slow: Callable[..., Awaitable[Api]], api: ApiServer, url: str
    ) -> None:
        caller = await slow(task_rate=0.1)
        headers = caller.headers | {"content-type": "application/x-ndjson"}
        async with caller.http.stream(
            "POST", f"{url}/tasks/stream", content=TASK * 2, headers=headers
        ) as response:
            lines = response.aiter_lines()
            assert "id" in await anext(lines)
            api.closes(url)
            assert '"code":"busy"' in await anext(lines)

    async def test_a_batch_is_stored_whole_or_refused_whole(
        self, slow: Callable[..., Awaitable[Api]], store: MemoryStore
    ) -> None:
        api = await slow(task_rate=10)
        await api.good("POST", "/tasks/batch", {"tasks": [{"type": "t"}] * 8})
        refused = await api("POST", "/tasks/batch", {"tasks": [{"type": "t"}] * 8})
        told = problem(refused, 429, "too-many-requests")
        assert "10 tasks a second" in told["detail"]
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["ratelimit-policy"] == '"tasks";q=10;w=1'
        never = problem(await api("POST", "/tasks/batch", {"tasks": [{"type": "t"}] * 11}), 413, "too-large")
        assert "has 11 tasks, and this key may enqueue at most 10 at once" in never["detail"]
        assert [one.number for one in await store.count(Filter(), ())] == [8]

    async def test_every_way_in_draws_from_one_bucket(
        self, slow: Callable[..., Awaitable[Api]], store: MemoryStore
    ) -> None:
        api = await slow(task_rate=0.001)
        ways: dict[str, tuple[str, str, Any, dict[str, str]]] = {
            "one": ("POST", "/tasks", {"type": "t"}, {}),
            "batch": ("POST", "/tasks/batch", {"tasks": [{"type": "t"}]}, {}),
            "stream": ("POST", "/tasks/stream", TASK, {"content_type": "application/x-ndjson"}),
            "store": ("POST", "/store/enqueue", {"batch": [new_task()]}, {}),
            "schedule": ("POST", "/schedules/s/trigger", None, {}),
        }
        await api.good("PUT", "/schedules/s", {"type": "t", "rule": "1d"})
        assert (await api("POST", "/tasks", {"type": "t"})).status_code == 201
        for name, (method, path, body, headers) in ways.items():
            response = await api(method, path, body, **headers)
            assert b"too-many-requests" in response.content, (name, response.text)
        assert [one.number for one in await store.count(Filter(), ())] == [1]

    async def test_the_steps_of_a_chain_count_and_so_do_their_bytes(
        self, slow: Callable[..., Awaitable[Api]]
    ) -> None:
        chain = {"type": "t", "next": [{"type": "t", "next": [{"type": "t"}]}, {"type": "t"}]}
        api, less, small = await slow(task_rate=4), await slow(task_rate=3), await slow(byte_rate=1500)
        assert (await api("POST", "/tasks", chain)).headers["ratelimit"].startswith('"tasks";r=0;')
        problem(await less("POST", "/tasks", chain), 413, "too-large")
        big = {"type": "t", "next": [{"type": "t", "payload": {"x": "x" * 1500}}]}
        told = problem(await small("POST", "/tasks", big), 413, "too-large")
        assert "bytes, and this key may enqueue at most 1,500 at once" in told["detail"]

    async def test_bytes_are_limited_and_a_refusal_costs_nothing(
        self, slow: Callable[..., Awaitable[Api]]
    ) -> None:
        api = await slow(task_rate=100, byte_rate=1000)
        body = {"type": "t", "payload": {"x": "x" * 600}}
        first = await api("POST", "/tasks", body)
        assert first.headers["ratelimit"].startswith('"tasks";r=99;t=1, "bytes";r=39')
        refused = await api("POST", "/tasks", body)
        assert "1,000 bytes a second" in problem(refused, 429, "too-many-requests")["detail"]
        assert '"tasks";r=99;t=1' in refused.headers["ratelimit"] or "r=100" in refused.headers["ratelimit"]

    async def test_refusals_are_counted(self, slow: Callable[..., Awaitable[Api]]) -> None:
        api = await slow(task_rate=0.001)
        for _ in range(3):
            await api("POST", "/tasks", {"type": "t"})
        assert 'windlass_rate_limited_total{rate="tasks"} 2.0' in (await api("GET", "/metrics")).text
