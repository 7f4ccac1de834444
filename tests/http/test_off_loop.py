"""Slow computations of requests: in a thread, in parts, so that the event loop serves others meanwhile."""

import asyncio
import json
import sys
import threading

import httpx2
import pytest

from tests.http.api_client import Api
from windlass._http.web.off_loop import PART, SMALL, each_off_loop, off_loop


def where(_: int) -> str:
    return threading.current_thread().name


async def test_little_is_done_in_the_loop() -> None:
    assert await each_off_loop([1, 2], lambda _: SMALL // 2, where) == [where(0)] * 2
    assert await each_off_loop([], lambda _: 1, where) == []


async def test_much_is_done_in_a_thread_and_in_order() -> None:
    assert where(0) not in await each_off_loop([1, 2], lambda _: SMALL, where)
    assert await each_off_loop(range(10), lambda _: PART // 3, lambda n: n * n) == [n * n for n in range(10)]


async def test_another_has_its_turn_after_each_part() -> None:
    done: list[str] = []

    async def work(name: str) -> None:
        await each_off_loop([name] * 3, lambda _: PART, done.append)

    await asyncio.gather(work("a"), work("b"))

    assert done == ["a", "b"] * 3


async def test_the_loop_gets_its_turn_sooner_meanwhile() -> None:
    usual = sys.getswitchinterval()
    assert await off_loop(SMALL + 1, sys.getswitchinterval) == pytest.approx(0.001)
    assert sys.getswitchinterval() == usual


async def test_errors_are_raised() -> None:
    usual = sys.getswitchinterval()
    for size in (0, SMALL + 1):
        with pytest.raises(ZeroDivisionError):
            await off_loop(size, divmod, 1, 0)
        assert sys.getswitchinterval() == usual


async def test_a_page_of_large_tasks_is_shown_whole(http: httpx2.AsyncClient, open_url: str) -> None:
    """Their documents are built in the thread, several parts of them."""
    api = Api(http, open_url)
    for n in range(5):
        payload = {"n": n, "text": "x" * (PART // 2), "password": "hunter-7"}
        made = await api("POST", "/tasks", {"type": "t", "payload": payload})
        assert made.status_code == 201

    for path in ("/tasks", "/tasks?reveal=true"):
        found = json.loads((await api("GET", path)).content)["items"]
        assert [one["payload"]["n"] for one in found] == [0, 1, 2, 3, 4]
        shown = {one["payload"]["password"] for one in found}
        assert shown == ({"hunter-7"} if "reveal" in path else {"[secret]"})
