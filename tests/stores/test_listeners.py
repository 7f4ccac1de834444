"""A ready task wakes a few listeners; more if they do not claim, or if there is more to claim."""

import asyncio
from collections.abc import AsyncIterator
from time import monotonic

import pytest

from tests.loops.workers import eventually
from windlass._model.lease import Claim
from windlass._model.queue import Level
from windlass._store.protocol import Wake
from windlass._stores import listeners as module
from windlass._stores.listeners import FEW, GROWTH, Listener, Listeners

NUMBER = 200


@pytest.fixture
async def listeners() -> AsyncIterator[Listeners]:
    listeners = Listeners()
    yield listeners
    listeners.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more are woken for want of a claim, unless the test is about that."""
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 3600.0)


@pytest.fixture
def crowd(listeners: Listeners) -> list[Listener]:
    crowd = [Listener(["q"]) for _ in range(NUMBER)]
    for one in crowd:
        listeners.add(one)
    return crowd


def claim(*queues: str, level: Level | None = None, types: tuple[str, ...] | None = None) -> Claim:
    return Claim(session="s", queues=queues or ("q",), limit=1, number=1, level=level, types=types)


def woken(crowd: list[Listener]) -> list[int]:
    """Which have a hint that they have not taken."""
    return [n for n, one in enumerate(crowd) if one.is_woken]


async def test_one_task_wakes_a_few_of_a_crowd(listeners: Listeners, crowd: list[Listener]) -> None:
    listeners.wake("q")

    assert len(woken(crowd)) == FEW
    assert await crowd[woken(crowd)[0]].hints() == [Wake.READY]


async def test_they_are_woken_in_turn(listeners: Listeners, crowd: list[Listener]) -> None:
    for _ in range(NUMBER // FEW):
        listeners.wake("q")
        listeners.note_claim(claim(), 0, monotonic())

    assert woken(crowd) == list(range(NUMBER))


async def test_a_claim_that_got_all_it_asked_for_wakes_more(
    listeners: Listeners, crowd: list[Listener]
) -> None:
    listeners.wake("q")
    listeners.note_claim(claim(), 1, monotonic())

    assert len(woken(crowd)) == FEW + FEW * GROWTH


async def test_many_tasks_wake_everyone(listeners: Listeners, crowd: list[Listener]) -> None:
    listeners.wake("q")
    for _ in range(10):
        listeners.note_claim(claim(), 1, monotonic())

    assert len(woken(crowd)) == NUMBER


async def test_a_claim_that_got_less_ends_it(listeners: Listeners, crowd: list[Listener]) -> None:
    listeners.wake("q")
    listeners.note_claim(claim(), 0, monotonic())
    listeners.note_claim(claim(), 1, monotonic())

    assert len(woken(crowd)) == FEW


@pytest.mark.parametrize(
    "why", ["it began before", "another queue", "one level of priority only", "some types only"]
)
async def test_a_claim_that_may_have_missed_the_task_does_not_end_it(
    listeners: Listeners, crowd: list[Listener], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.001)
    before = monotonic()
    listeners.wake("q")
    if why == "it began before":
        listeners.note_claim(claim(), 0, before)
    elif why == "another queue":
        listeners.note_claim(claim("other"), 0, monotonic())
    elif why == "some types only":
        listeners.note_claim(claim(types=("mine",)), 0, monotonic())
    else:
        listeners.note_claim(claim(level=Level.HIGH), 0, monotonic())

    await eventually(lambda: len(woken(crowd)) == NUMBER)


async def test_without_a_claim_everyone_is_woken_in_the_end(
    listeners: Listeners, crowd: list[Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.001)
    listeners.wake("q")
    assert len(woken(crowd)) == FEW

    await eventually(lambda: len(woken(crowd)) == NUMBER)


async def test_those_of_other_queues_sleep_on(listeners: Listeners, crowd: list[Listener]) -> None:
    other, keeper = Listener(["other"]), Listener([])
    listeners.add(other)
    listeners.add(keeper)

    listeners.wake("q")
    assert woken([other, keeper]) == []
    listeners.wake("other")
    assert woken([other, keeper]) == [0]
    listeners.wake_keepers()
    assert await keeper.hints() == [Wake.SCHEDULED]
    assert len(woken(crowd)) == FEW


async def test_a_listener_that_left_is_not_woken(listeners: Listeners, crowd: list[Listener]) -> None:
    for one in crowd[1:]:
        listeners.remove(one)
    assert len(listeners) == 1
    listeners.wake("q")
    assert woken(crowd) == [0]
    listeners.remove(crowd[0])
    listeners.wake("q")

    assert list(listeners.queues) == []


async def test_a_crowd_that_leaves_during_a_wave_ends_it(
    listeners: Listeners, crowd: list[Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.0)
    listeners.wake("q")
    for one in crowd:
        listeners.remove(one)
    for _ in range(3):  # a timer that is still set would fail here
        await asyncio.sleep(0)

    assert len(woken(crowd)) == FEW


async def test_after_lost_hints_a_few_of_each_queue_and_the_keepers_are_woken(
    listeners: Listeners, crowd: list[Listener]
) -> None:
    other, keeper = Listener(["other"]), Listener([])
    listeners.add(other)
    listeners.add(keeper)

    listeners.wake_every_queue()

    assert woken([other, keeper]) == [0, 1]
    assert len(woken(crowd)) == FEW
