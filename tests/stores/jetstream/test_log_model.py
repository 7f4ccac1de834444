"""The log does what the checked model of its protocol does, so what was checked holds for the code."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.examples import FULL
from tests.model.checker import Step
from tests.model.log_protocol import Bounds, LogModel, World
from tests.model.log_rules import ChainRule, Kind
from tests.model.real_log import RealLog
from tests.stores.jetstream.log_mistakes import LOG_MISTAKES
from windlass._stores.jetstream import entry, follower, log

ALL = (Kind.COMMIT, Kind.PART, Kind.READ, Kind.SNAPSHOT)
BOUNDS = {
    "a check that works": Bounds(reigns=3, appends=5, depth=3, kinds=ALL),
    "a check that fails": Bounds(reigns=3, appends=5, depth=4, failures=30, kinds=ALL),
}
STEPS = 50
WALKS = 400 if FULL else 30
ENOUGH = 200  # walks, to notice any mistake


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses between two tries; and parts so small that a page with noise has two."""
    monkeypatch.setattr(log, "_FIRST_PAUSE", 0)
    monkeypatch.setattr(follower, "_PAUSE", 0)
    monkeypatch.setattr(entry, "MAX_PART_BYTES", 1500)


@pytest.mark.more
@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
async def test_the_log_does_what_the_model_does(bounds: Bounds, folder: Path) -> None:
    """Random walks through the model; log, replies and readers are compared after each step."""
    for seed in range(WALKS):
        await walk(bounds, folder, seed)


@pytest.mark.parametrize("mistake", LOG_MISTAKES)
async def test_a_mistake_in_the_log_is_noticed(
    mistake: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LOG_MISTAKES[mistake](monkeypatch)

    assert await complaint(folder)


async def complaint(folder: Path) -> str:
    """What is noticed first; "" if nothing is."""
    for seed in range(ENOUGH):
        for bounds in BOUNDS.values():
            try:
                await walk(bounds, folder, seed)
            except Exception as error:  # noqa: BLE001 - damaged pages cannot be unpacked, for one
                return repr(error)
    return ""


async def walk(bounds: Bounds, folder: Path, seed: int) -> None:
    random = Random(seed)
    model = LogModel(ChainRule(), bounds)
    real = RealLog(model, folder, random)
    world = model.start()
    try:
        for _ in range(STEPS):
            steps = list(playable(model, world))
            if not steps:
                break
            world = await real.play(random.choice(steps))
    finally:
        await real.close()


def playable(model: LogModel, world: World) -> Iterator[Step[World]]:
    """The steps that the real log can take one by one: it publishes all parts of a commit together."""
    for step in model.steps(world):
        if step.call is not None and step.call[2:] == (Kind.PART,):
            whole = ("append", step.call[1], Kind.COMMIT)
            yield from (
                rest._replace(call=step.call) for rest in model.steps(step.state) if rest.call == whole
            )
        else:
            yield step
