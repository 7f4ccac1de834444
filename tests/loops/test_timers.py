"""The timer for the earliest of several instants, on asyncio's and uvloop's event loops."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from tests.loops.workers import eventually, pause
from windlass._timers import Timer

LATER = 3600.0


class Armed:
    """A timer, when it called, and how often a handle was asked of the loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.timer = Timer(lambda: self.calls.append(self.loop.time()))
        self.calls: list[float] = []

    def within(self, seconds: float) -> float:
        at = self.loop.time() + seconds
        self.timer.at(at)
        return at


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[Any]]], Any]:
    def in_new_loop(test: Callable[[], Awaitable[Any]]) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(test())  # type: ignore[arg-type]

    return in_new_loop


def test_it_calls_at_the_earliest_and_only_once(run) -> None:
    async def scenario() -> None:
        armed = Armed()
        armed.within(LATER)
        at = armed.within(0.02)
        for _ in range(100):
            armed.within(0.03)
        await eventually(lambda: armed.calls)
        await pause(0.05)

        (called,) = armed.calls
        assert called >= at - 0.002  # uvloop counts in milliseconds

    run(scenario)


def test_after_a_call_it_takes_a_later_instant(run) -> None:
    async def scenario() -> None:
        armed = Armed()
        armed.within(0.0)
        await eventually(lambda: len(armed.calls) == 1)
        armed.within(0.01)
        await eventually(lambda: len(armed.calls) == 2)

    run(scenario)


def test_it_may_be_told_the_next_instant_while_it_calls(run) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        calls: list[float] = []

        def call() -> None:
            calls.append(loop.time())
            if len(calls) < 3:
                timer.at(loop.time())

        timer = Timer(call)
        timer.at(loop.time())
        await eventually(lambda: len(calls) == 3)

    run(scenario)


def test_cancelled_it_does_not_call_and_takes_any_instant_again(run) -> None:
    async def scenario() -> None:
        armed = Armed()
        armed.timer.cancel()
        armed.within(0.01)
        armed.timer.cancel()
        await pause(0.03)
        assert armed.calls == []

        armed.within(0.0)
        await eventually(lambda: armed.calls)

    run(scenario)


def test_an_instant_that_its_loop_did_not_live_to_see_is_forgotten(run) -> None:
    calls: list[str] = []
    timer = Timer(lambda: calls.append("called"))

    async def leave() -> None:
        timer.at(asyncio.get_running_loop().time() + 0.01)

    async def come_back() -> None:
        timer.at(asyncio.get_running_loop().time() + 0.02)
        await eventually(lambda: calls)

    run(leave)
    run(come_back)

    assert calls == ["called"]
