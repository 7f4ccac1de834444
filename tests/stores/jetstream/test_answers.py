"""An owner says only what stands: no answer, snapshot or deletion comes before the entry that it rests on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.loops.workers import eventually
from tests.stores.jetstream.reign_mistakes import REIGN_MISTAKES
from tests.stores.jetstream.stand_in import MemoryLog, MemorySnapshots, new_task, reigning
from windlass._model.filter import Filter, Page
from windlass._stores.jetstream.entry import Kind
from windlass._stores.jetstream.log import FencedError
from windlass.errors import IdempotencyConflict, WindlassError

Scenario = Callable[[Path], Awaitable[None]]
MOMENT = 0.1  # for what must not happen


async def is_silent(answer: "asyncio.Task[object]") -> bool:
    """Whether there is no answer although there was time for one."""
    await asyncio.wait([answer], timeout=MOMENT)
    return not answer.done()


async def change(folder: Path) -> None:
    """A change is answered when its entry stands; never if another takes the store over before."""
    log = MemoryLog()
    async with reigning(folder, log, MemorySnapshots()) as reign:
        log.hold(Kind.PAGES)
        answer = asyncio.create_task(reign._store.enqueue([new_task()]))
        await eventually(lambda: Kind.PAGES in log.held)
        assert await is_silent(answer)

        log.usurp()
        log.let_go()

        with pytest.raises(FencedError):
            await answer


async def read(folder: Path) -> None:
    """A read is not answered once another owns the store, whether the former owner knows it or not."""
    log = MemoryLog()
    async with reigning(folder, log, MemorySnapshots()) as reign:
        await reign._store.enqueue([new_task()])
        log.usurp()

        with pytest.raises(FencedError):
            await reign._store.find(Filter(), Page())


async def refusal(folder: Path) -> None:
    """A refusal rests on what the owner knows, as a read does."""
    log = MemoryLog()
    async with reigning(folder, log, MemorySnapshots()) as reign:
        await reign._store.enqueue([new_task(idempotency_key="k", idempotency_digest="1")])
        other = new_task(idempotency_key="k", idempotency_digest="2")
        with pytest.raises(IdempotencyConflict):
            await reign._store.enqueue([other])
        log.usurp()

        with pytest.raises(FencedError):
            await reign._store.enqueue([other])


async def snapshot(folder: Path) -> None:
    """A snapshot is named by the place of the last commit that it contains, which therefore stands."""
    log = MemoryLog()
    async with reigning(folder, log, MemorySnapshots()) as reign:
        log.hold(Kind.PAGES)
        change = asyncio.create_task(reign._store.enqueue([new_task()]))
        await eventually(lambda: Kind.PAGES in log.held)
        base = asyncio.create_task(reign._store.freeze("x"))
        assert await is_silent(base)
        log.stored.append(b"of somebody else")
        place = len(log.stored) + 1

        log.let_go()
        await change

        frozen = await base
        assert frozen is not None
        assert frozen.place == place


async def deletion(folder: Path) -> None:
    """The log is deleted when the entry about the snapshot stands; never if another takes the store over."""
    log, snapshots = MemoryLog(), MemorySnapshots()
    async with reigning(folder, log, snapshots) as reign:
        await reign._store.enqueue([new_task()])
        log.hold(Kind.SNAPSHOT)
        taken = asyncio.create_task(reign._snapshot())
        await eventually(lambda: Kind.SNAPSHOT in log.held or taken.done())
        assert await is_silent(taken)
        assert log.first == 1

        log.usurp()
        log.let_go()

        with pytest.raises(FencedError):
            await taken
        assert log.first == 1


SCENARIOS: list[Scenario] = [change, read, refusal, snapshot, deletion]


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_an_owner_says_only_what_stands(scenario: Scenario, folder: Path) -> None:
    await scenario(folder)


@pytest.mark.parametrize("mistake", REIGN_MISTAKES)
async def test_a_mistake_of_an_owner_is_noticed(
    mistake: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    REIGN_MISTAKES[mistake](monkeypatch)

    assert [complaint async for complaint in complaints(folder)]


async def complaints(folder: Path) -> AsyncIterator[str]:
    """What the scenarios notice."""
    for scenario in SCENARIOS:
        try:
            await scenario(folder / scenario.__name__)
        except (AssertionError, pytest.fail.Exception, WindlassError) as error:
            yield f"{scenario.__name__}: {error}"
