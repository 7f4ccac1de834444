"""The power goes at any moment: what was acknowledged is there when it is back. (D1, S1)

The real store writes through a watched file system; a model of a disk then forgets what was not synced,
in part, out of order and torn, and the store is opened on what is left.
"""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.examples import FULL
from tests.power.cuts import cuts, judge
from tests.power.record import Acknowledged, Event, read_trace

ROOT = Path(__file__).parent.parent.parent
SEED = int(os.environ.get("WINDLASS_SEED", "1"))
pytestmark = pytest.mark.system


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: the model loses power, so real syncs would only cost time."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory, prefix="windlass-power-") as name:
        yield Path(name)


def recorded(folder: Path, seed: int, *, steps: int, synchronous: str = "EXTRA") -> list[Event]:
    """The trace of one life of a store, in a process of its own."""
    folder.mkdir()
    told = [sys.executable, "-m", "tests.power.record", str(folder), str(seed), str(steps), synchronous]
    subprocess.run(told, cwd=ROOT, check=True, timeout=120)
    return read_trace(folder)


def verdicts(
    folder: Path, *, seeds: range, number: int, steps: int, synchronous: str = "EXTRA"
) -> Counter[str]:
    """What `number` cuts found, over several lives: "sound", or the first word of what was wrong."""
    found: Counter[str] = Counter()
    for seed in seeds:
        trace = recorded(folder / f"life{seed}", seed, steps=steps, synchronous=synchronous)
        for cut in cuts(trace, number // len(seeds), Random(seed)):
            wrong = judge(cut, folder / "after")
            found[wrong[0].partition(":")[0] if wrong else "sound"] += 1
            if wrong and synchronous == "EXTRA":
                found[f"seed {seed}, after event {cut.after}: {wrong}"] += 1
    return found


@pytest.mark.more
def test_nothing_acknowledged_is_lost_when_the_power_goes(folder: Path) -> None:
    lives = 5 if FULL else 3

    found = verdicts(folder, seeds=range(SEED, SEED + lives), number=60 * lives, steps=60)

    assert found == {"sound": 60 * lives}


@pytest.mark.parametrize("synchronous", ["NORMAL", "OFF"])
def test_a_store_that_syncs_less_is_caught(folder: Path, synchronous: str) -> None:
    found = verdicts(folder, seeds=range(SEED, SEED + 1), number=60, steps=60, synchronous=synchronous)

    assert found["sound"] < 60, "the simulator has no teeth"
    assert found["undone"] + found["lost"] + found["half done"] > 0, found
    if synchronous == "OFF":
        assert found["damaged"] > 0, found


def test_a_life_has_every_kind_of_write_in_it(folder: Path) -> None:
    told = {
        event.what
        for seed in range(SEED, SEED + 2)
        for event in recorded(folder / str(seed), seed, steps=150)
        if isinstance(event, Acknowledged)
    }

    assert told >= {
        "open",
        "enqueue",
        "group",
        "claim",
        "settle",
        "heartbeat",
        "promote",
        "rescue",
        "together",
    }


@pytest.mark.chaos
def test_nothing_acknowledged_is_lost_in_many_more_cuts(folder: Path) -> None:
    number = int(os.environ.get("WINDLASS_CUTS", "5000"))

    found = verdicts(folder, seeds=range(1000, 1000 + number // 100), number=number, steps=100)

    assert found == {"sound": sum(found.values())}
