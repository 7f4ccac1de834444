"""Rate limits of API keys."""

from datetime import UTC, datetime

import httpx2
import pytest

from tests.http.api_client import Api
from tests.http.problem import problem
from windlass._client.keys import Keys
from windlass._http.rate_limit import _MAX_BUCKETS, RateLimiter
from windlass._http.web.problems import Problem
from windlass._model.key import ApiKey, Scope


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
            limiter.take(kept)
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
        limiter = RateLimiter(clock)
        assert allowed(limiter, key(rate), burst + 5) == burst
        number = 0
        for _ in range(200):
            clock.now += 0.25 / rate
            number += allowed(limiter, key(rate), 3)
        assert number in (49, 50, 51)
        clock.now += 1e6
        assert allowed(limiter, key(rate), burst + 5) == burst

    def test_each_key_by_itself_and_one_without_a_rate_at_will(self) -> None:
        limiter = RateLimiter(Clock())
        assert allowed(limiter, key(2, "a"), 10) == 2
        assert allowed(limiter, key(2, "b"), 10) == 2
        assert allowed(limiter, key(None, "c"), 1000) == 1000
        assert limiter.take(None) == {}

    def test_what_it_says(self) -> None:
        clock = Clock()
        limiter = RateLimiter(clock)
        assert limiter.take(key(3)) == {"RateLimit-Policy": '"key";q=3;w=1', "RateLimit": '"key";r=2;t=1'}
        limiter.take(key(3))
        assert limiter.take(key(3))["RateLimit"] == '"key";r=0;t=1'
        assert RateLimiter(clock).take(key(0.1)) == {
            "RateLimit-Policy": '"key";q=1;w=10',
            "RateLimit": '"key";r=0;t=10',
        }

    def test_who_waits_as_told_is_let_in(self) -> None:
        clock = Clock()
        limiter = RateLimiter(clock)
        limiter.take(key(0.3))
        with pytest.raises(Problem) as refused:
            limiter.take(key(0.3))
        assert (refused.value.status, refused.value.code) == (429, "too-many-requests")
        assert refused.value.headers["Retry-After"] == "4"
        clock.now += 4
        limiter.take(key(0.3))

    def test_a_rate_that_is_changed_holds_at_once(self) -> None:
        clock = Clock()
        limiter = RateLimiter(clock)
        assert allowed(limiter, key(0.001), 5) == 1
        assert allowed(limiter, key(100), 5) == 0
        clock.now += 1
        assert allowed(limiter, key(100), 500) == 100
        assert allowed(limiter, key(0.5), 5) == 0

    def test_keys_that_are_used_no_more_are_forgotten(self) -> None:
        clock = Clock()
        limiter = RateLimiter(clock)
        for number in range(5 * _MAX_BUCKETS):
            limiter.take(key(10, str(number)))
            clock.now += 0.01
        assert len(limiter._buckets) <= _MAX_BUCKETS


async def test_a_key_that_asks_too_often_is_told_when_to_come_again(
    http: httpx2.AsyncClient, url: str, keys: Keys
) -> None:
    slow = Api(http, url, (await keys.create("slow", scopes=[Scope.READ], rate=0.01)).text)
    other = slow.by((await keys.create("other", scopes=[Scope.READ])).text)
    first = await slow("GET", "/tasks")
    assert first.status_code == 200
    assert first.headers["ratelimit-policy"] == '"key";q=1;w=100'
    assert first.headers["ratelimit"] == '"key";r=0;t=100'
    for method, path in (("GET", "/tasks"), ("POST", "/tasks"), ("POST", "/store/about")):
        again = await slow(method, path, {})
        told = problem(again, 429, "too-many-requests")
        assert set(told) == {"type", "title", "status", "detail", "code"}
        assert int(again.headers["retry-after"]) in (99, 100)
        assert again.headers["ratelimit"].startswith('"key";r=0;t=')
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
