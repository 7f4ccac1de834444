"""Mutants: windlass with one mistake put in. The harness must catch each, or its silence proves nothing."""

import asyncio
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

import windlass
from tests.system.checker import check
from tests.system.fleet import Fleet, Schedule, wait_until
from tests.system.outages import ServerFleet, ServerStorm
from tests.system.storm import Storm

pytestmark = pytest.mark.chaos
SOURCE = Path(windlass.__file__).parent


class Mutant(NamedTuple):
    """A mistake: in these files, what matches this expression becomes that."""

    name: str
    changes: tuple[tuple[str, str, str], ...]
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
    fleet.enqueue("nap", 60, seconds=1.0)
    for _ in range(3):
        wait_until(lambda: fleet.running() > 0, 20, what="something runs")
        fleet.terminate(fleet.workers[0])
        fleet.start_ready(1)


def block_them(fleet: Fleet) -> None:
    """A handler blocks the event loop for longer than a lease."""
    fleet.start_ready(2)
    fleet.enqueue("blocker", 2, seconds=2.5 * fleet.settings["lease"])
    wait_until(fleet.is_drained, 40, what="they end")


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
    Mutant(
        "a settlement is not fenced",
        (
            ("_stores/sqlite/sql/complete.sql", r"(windlass_task\.)?fence = (\?|given\.fence)", r"\2 > 0"),
            ("_stores/rules/settlement.py", "if task.fence != lease.fence:", "if False:"),
        ),
        freeze_them,
    ),
    Mutant(
        "a rescue does not raise the fence",
        (("_stores/sqlite/sql/rescue.sql", re.escape("fence = fence + 1"), "fence = fence"),),
        freeze_them,
    ),
    Mutant(
        "a crash does not count",
        (
            (
                "_keeper/keeper.py",
                re.escape('Crashed(error=Error(type="WorkerLost", message=message))'),
                "Interrupted()",
            ),
            ("_keeper/keeper.py", "import Crashed, Outcome", "import Crashed, Interrupted, Outcome"),
        ),
        kill_them,
    ),
    Mutant(
        "an attempt is counted late",
        (("_stores/sqlite/sql/claim.sql", re.escape("attempt = attempt + 1"), "attempt = attempt"),),
        kill_them,
    ),
    Mutant(
        "a release keeps its attempt",
        (("_stores/rules/settlement.py", "else task.attempt - 1,", "else task.attempt,"),),
        stop_them,
    ),
    Mutant(
        "a stopping worker forgets what it ran",
        (
            (
                "_worker/worker.py",
                re.escape("self._slots.stop_all(Stop.SHUTDOWN)"),
                "self._slots.stop_all(Stop.FENCED)",
            ),
        ),
        stop_them,
    ),
    Mutant(
        "the heart beats on the event loop",
        (
            ("_worker/heartbeat.py", re.escape("self._thread.start()"), "pass"),
            (
                "_worker/heartbeat.py",
                r"self\._thread = threading\.Thread\(.*\)",
                "self._beating = asyncio.get_running_loop().create_task(self._send_all())",
            ),
        ),
        block_them,
    ),
    Mutant(
        "what follows a task is forgotten",
        (("_stores/rules/settlement.py", re.escape("yield from admit(changes, successors)"), "pass"),),
        chain_them,
    ),
]


ON_POSTGRES = [
    Mutant(
        "a settlement is not fenced",
        (
            ("_stores/postgres/sql/settle.sql", re.escape("t.fence = g.fence"), "g.fence > 0"),
            ("_stores/rules/settlement.py", "if task.fence != lease.fence:", "if False:"),
        ),
        freeze_them,
    ),
    Mutant(
        "a rescue does not raise the fence",
        (("_stores/postgres/sql/rescue.sql", re.escape("fence = t.fence + 1"), "fence = t.fence"),),
        freeze_them,
    ),
    Mutant(
        "what a lost claim took is not handed back",
        (("_stores/postgres/store.py", re.escape("if unacknowledged:"), "if False:"),),
        cut_them,
    ),
]


@pytest.fixture
def server_fleet(tmp_path: Path) -> Iterator[ServerFleet]:
    with ServerFleet.on_server(tmp_path) as fleet:
        yield fleet


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_is_caught(fleet: Fleet, tmp_path: Path, mutant: Mutant) -> None:
    fleet.package = tmp_path / "mutant"
    mutate(mutant, fleet.package)

    complaint = survive(fleet, mutant)

    print(f"{mutant.name}: {complaint}")  # noqa: T201
    assert complaint, "it was not noticed"


@pytest.mark.parametrize("mutant", ON_POSTGRES, ids=[mutant.name for mutant in ON_POSTGRES])
def test_a_mutant_is_caught_on_postgres(server_fleet: ServerFleet, tmp_path: Path, mutant: Mutant) -> None:
    test_a_mutant_is_caught(server_fleet, tmp_path, mutant)


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


def mutate(mutant: Mutant, folder: Path) -> None:
    """A copy of the package with the mistake in it."""
    shutil.copytree(SOURCE, folder / "windlass", ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in mutant.changes:
        path = folder / "windlass" / name
        text = path.read_text()
        changed, number = re.subn(old, new, text)
        assert number, f"{name} has changed: {old!r} is not in it any more"
        path.write_text(changed)


def survive(fleet: Fleet, mutant: Mutant) -> str:
    """What was noticed: violated rules, or a fleet that did not come to an end."""
    try:
        mutant.provoke(fleet)
        fleet.drain(25)
    except AssertionError as error:
        return str(error).splitlines()[0]
    report = check(asyncio.run(fleet.history()))
    return ", ".join(sorted({violation.rule for violation in report.violations}))
