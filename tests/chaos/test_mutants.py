"""Mutants: windlass with one mistake. The harness must notice each, or its silence proves nothing."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.system.checker import check
from tests.system.fleet import Fleet, Schedule, wait_until
from tests.system.mistakes import MISTAKES, Rewrite
from tests.system.outages import ServerFleet, ServerStorm
from tests.system.storm import Storm

pytestmark = pytest.mark.chaos

PROVOCATIONS = 3


class Mutant(NamedTuple):
    """Windlass with a mistake, and what is done to make it show."""

    mistake: str  # by its name in tests/system/mistakes.py
    provoke: Callable[[Fleet], None]


def freeze_them(fleet: Fleet) -> None:
    """Long tasks, frozen workers, and late settlements when they wake."""
    schedule = Schedule()
    storm = Storm(fleet, Random(1), schedule)
    for second in (0.0, 8.0, 16.0):
        schedule.at(second, lambda: fleet.enqueue("threaded", 40, seconds=4.0))
        schedule.at(second + 1.0, lambda: storm.freeze(1.0 + 2 * fleet.settings["lease"]))
    fleet.start_ready(4)
    schedule.run()


def kill_them(fleet: Fleet) -> None:
    """Running tasks lose their workers."""
    schedule = Schedule()
    storm = Storm(fleet, Random(1), schedule)
    for second in range(1, 6):
        schedule.at(second, storm.kill)
    fleet.start_ready(3)
    fleet.enqueue("nap", 200, seconds=0.8)
    schedule.run()


def stop_them(fleet: Fleet) -> None:
    """Workers are asked to stop with more to do than their grace allows."""
    fleet.settings["grace"] = 0.2
    fleet.start_ready(2)
    for _ in range(3):
        fleet.enqueue("nap", 40, seconds=2.0)
        wait_until(lambda: fleet.running() > 0, 20, what="something runs")
        fleet.terminate(fleet.workers[0])
        fleet.start_ready(1)


def block_them(fleet: Fleet) -> None:
    """A handler blocks the event loop for longer than a lease."""
    fleet.start_ready(2)
    fleet.enqueue("blocker", 2, seconds=2.5 * fleet.settings["lease"])


def chain_them(fleet: Fleet) -> None:
    """Whatever producers wish for."""
    fleet.start_ready(2)
    assert fleet.produce("p", seed=1, wishes=100, per_second=100).process.wait(30) == 0


def cut_them(fleet: Fleet) -> None:
    """Answers to claims and settlements are lost on the way back."""
    assert isinstance(fleet, ServerFleet)
    schedule = Schedule()
    storm = ServerStorm(fleet, Random(1), schedule)
    for second in (0.0, 2.0, 4.0):
        schedule.at(second, lambda: fleet.enqueue("nap", 150, seconds=0.05))
        schedule.at(second, lambda: storm.cut_after_commits(1.5))
    fleet.start_ready(3)
    schedule.run()


MUTANTS = [
    Mutant("a settlement is not fenced", freeze_them),
    Mutant("a rescue does not raise the fence, sqlite", freeze_them),
    Mutant("a crash does not count", kill_them),
    Mutant("an attempt is not counted at the claim", kill_them),
    Mutant("a release keeps its attempt", stop_them),
    Mutant("a stopping worker forgets what it ran", stop_them),
    Mutant("the heart beats on the event loop", block_them),
    Mutant("what follows a task is forgotten", chain_them),
]
ON_POSTGRES = [
    Mutant("a settlement is not fenced", freeze_them),
    Mutant("a rescue does not raise the fence, postgres", freeze_them),
    Mutant("what a lost claim took is not handed back", cut_them),
]


@pytest.fixture
def server_fleet(tmp_path: Path) -> Iterator[ServerFleet]:
    with ServerFleet.on_server(tmp_path) as fleet:
        yield fleet


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.mistake for mutant in MUTANTS])
def test_a_mutant_is_caught(fleet: Fleet, mutant: Mutant) -> None:
    mutate(fleet, mutant.mistake)

    complaint = survive(fleet, mutant)

    print(f"{mutant.mistake}: {complaint}")  # noqa: T201
    assert complaint, "it was not noticed"


@pytest.mark.parametrize("mutant", ON_POSTGRES, ids=[mutant.mistake for mutant in ON_POSTGRES])
def test_a_mutant_is_caught_on_postgres(server_fleet: ServerFleet, mutant: Mutant) -> None:
    test_a_mutant_is_caught(server_fleet, mutant)


@pytest.mark.parametrize("provoke", [freeze_them, kill_them, stop_them, block_them, chain_them])
def test_the_sound_one_is_not(fleet: Fleet, provoke: Callable[[Fleet], None]) -> None:
    provoke(fleet)
    fleet.drain(60)

    fleet.checked()


@pytest.mark.parametrize("provoke", [freeze_them, kill_them, stop_them, block_them, chain_them, cut_them])
def test_the_sound_one_is_not_on_postgres(
    server_fleet: ServerFleet, provoke: Callable[[Fleet], None]
) -> None:
    test_the_sound_one_is_not(server_fleet, provoke)


def mutate(fleet: Fleet, name: str) -> None:
    """Let the processes that this fleet starts make a mistake."""
    mistake = MISTAKES[name]
    if isinstance(mistake, Rewrite):
        fleet.package = fleet.folder / "mutant"
        mistake.copy_to(fleet.package)
    else:
        fleet.settings["mistake"] = name


def survive(fleet: Fleet, mutant: Mutant) -> str:
    """What was noticed: violated rules, or a fleet that did not come to an end.

    Whether a worker that wakes settles before it learns that its leases are lost is chance: on a busy machine
    a provocation may pass without a mistake.
    """
    for _ in range(PROVOCATIONS):
        mutant.provoke(fleet)
        try:
            fleet.drain(25)
        except AssertionError as error:
            return str(error).splitlines()[0]
        if violations := check(asyncio.run(fleet.history())).violations:
            return ", ".join(sorted({violation.rule for violation in violations}))
    return ""
