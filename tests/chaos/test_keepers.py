"""Keepers that know different programs take turns leading; each task is treated by its own program's rules.

WINDLASS_KEEPERS_SECONDS says how long; WINDLASS_SEED makes the same plan again.
"""

import asyncio
import os
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from random import Random

import pytest

from tests.chaos.test_mutants import mutate
from tests.system.census import Census, judged, look, taken, was_lost
from tests.system.checker import Violation
from tests.system.fleet import BYSTANDER, Fleet, Member, Schedule, wait_until
from tests.system.programs import PROGRAMS, program
from windlass._model.attempt import Attempt

SECONDS = int(os.environ.get("WINDLASS_KEEPERS_SECONDS", "60"))
EACH = {"brief": 2, "lasting": 2, "custom": 2, BYSTANDER: 2}
"""Processes of each kind."""
pytestmark = pytest.mark.chaos


@pytest.fixture
def fleet(fleet_on_each: Fleet) -> Fleet:
    return fleet_on_each


def test_each_program_is_kept_by_its_own_rules(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    seed = int(os.environ.get("WINDLASS_SEED") or secrets.randbelow(10**9))
    campaign = Campaign(fleet, Random(seed))

    with taken(fleet) as census:
        campaign.run(SECONDS)
    due = prune_by_command(fleet, census)

    lines = campaign.lines(census)
    report = judged(census, campaign.enqueued, lines)
    report.violations += [Violation("not pruned", one) for one in due - census.gone.keys()]
    report.numbers.update({f"led by {kind}": number for kind, number in Counter(campaign.leads()).items()})
    report.numbers.update(campaign.faults)
    foreign = campaign.foreign(census, lines)
    report.numbers.update({f"{name}, rescued by another's keeper": foreign[name] for name in foreign})
    with capsys.disabled():
        verdict = "BROKEN" if report.violations else "every program's rules were kept"
        print(f"\nkeepers, WINDLASS_SEED={seed}\n{report.lines()}\n  verdict: {verdict}")  # noqa: T201
    assert report.violations == []
    assert report.numbers["brief, pruned"] > 0
    assert report.numbers["custom, pruned"] > 0
    assert all(foreign[name] for name in ("lasting", "custom"))


def test_a_keeper_that_does_not_know_the_types_is_noticed(fleet: Fleet) -> None:
    mutate(fleet, "a keeper does not know the types of others")
    campaign = Campaign(fleet, Random(1))

    with taken(fleet) as census:
        campaign.run(8)
    report = judged(census, campaign.enqueued, campaign.lines(census))

    print(report.lines())  # noqa: T201
    assert "another delay" in {violation.rule for violation in report.violations}


class Campaign:
    """Work of every program, and what is done to the processes, above all to the one that leads."""

    def __init__(self, fleet: Fleet, random: Random) -> None:
        self.fleet = fleet
        self.random = random
        self.schedule = Schedule()
        self.enqueued: dict[str, str] = {}  # the program of each task
        self.faults: Counter[str] = Counter()
        self._programs = {name: program(name, store_of(fleet)) for name in PROGRAMS}
        self._frozen: set[str] = set()
        self._began = False

    def run(self, seconds: int) -> None:
        """All of it, until every task has ended."""
        for member in [
            self.fleet.start_program(kind) for kind, number in EACH.items() for _ in range(number)
        ]:
            member.wait_ready()
        for second in range(seconds):
            self.schedule.at(second, self._enqueue)
            self.schedule.at(second + 0.3, self._replace_the_dead)
            if second % 2:
                fault = self.random.choices([self._kill_leader, self._stall_leader, self._kill], [4, 3, 3])[0]
                self.schedule.at(second + self.random.random(), fault)
        self.schedule.run()
        turn = 1.5 * self.fleet.settings["lease"]
        wait_until(self._all_led, 60 * turn, what="a keeper of each kind leads", every=turn)
        wait_until(self._is_over, 120, what="every task ends", every=0.5)
        self.fleet.drain(60)
        for one in self._programs.values():
            asyncio.run(one.app.close())

    def _all_led(self) -> bool:
        if EACH.keys() <= set(self.leads()):
            return True
        self._replace_the_dead()
        self._kill_leader()
        return False

    def _is_over(self) -> bool:
        self._replace_the_dead()
        return self.fleet.is_drained()

    def _enqueue(self) -> None:
        for name, one in self._programs.items():
            made = [one.nap.enqueue(seconds=round(self.random.uniform(0.1, 1.5), 2)) for _ in range(3)]
            made += [one.fail.enqueue()] if self.random.random() < 0.3 else []
            made += [one.poison.enqueue()] if not self._began or self.random.random() < 0.15 else []
            self.enqueued |= dict.fromkeys([handle.id for handle in made], name)
        self._began = True

    # -- faults ----------------------------------------------------------------------------------------

    def _replace_the_dead(self) -> None:
        for member in [one for one in self.fleet.workers if not one.alive]:
            self.fleet.bury(member)
            self.fleet.start_program(_kind(member.name))

    def _kill(self, member: Member | None = None) -> None:
        member = member or self.random.choice(self._awake())
        self.faults["fault kill"] += 1
        self.fleet.kill(member)
        self.fleet.start_program(_kind(member.name))

    def _kill_leader(self) -> None:
        leader = self._leader()
        self.faults["fault kill of the leader"] += leader is not None
        self._kill(leader)

    def _stall_leader(self) -> None:
        """For longer than its lead lasts."""
        leader = self._leader()
        if leader is None:
            return
        self.faults["fault stall of the leader"] += 1
        if self.fleet.server:
            self.fleet.freeze(leader)
        else:
            self.fleet.freeze_unlocked(leader)
        self._frozen.add(leader.name)
        self.schedule.after(
            self.random.uniform(1.2, 2.5) * self.fleet.settings["lease"], lambda: self._thaw(leader)
        )

    def _thaw(self, member: Member) -> None:
        self._frozen.discard(member.name)
        self.fleet.thaw(member)

    def _leader(self) -> Member | None:
        leader = self.fleet.leader()
        return leader if leader in self._awake() else None

    def _awake(self) -> list[Member]:
        return [one for one in self.fleet.workers if one.alive and one.name not in self._frozen]

    # -- what is found afterwards ----------------------------------------------------------------------

    def lines(self, census: Census) -> dict[str, Sequence[Attempt]]:
        """The attempts of all tasks that are still there."""
        operator = self.fleet.app.sync_operator
        return {task_id: operator.attempts(task_id) for task_id in census.seen if task_id not in census.gone}

    def leads(self) -> list[str]:
        """The kind of each that became the leader, in order."""
        return [_kind(name) for _, name in self._leaders()]

    def foreign(self, census: Census, lines: dict[str, Sequence[Attempt]]) -> Counter[str]:
        """How many crashes of each program were settled while a keeper of another one led."""
        leaders, found = self._leaders(), Counter[str]()
        for task_id, some in lines.items():
            for line in filter(was_lost, some):
                led = [_kind(name) for at, name in leaders if at <= line.finished_at]
                found[census.seen[task_id].task.queue] += (
                    bool(led) and led[-1] != census.seen[task_id].task.queue
                )
        return found

    def _leaders(self) -> list[tuple[datetime, str]]:
        return sorted(
            (datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").astimezone(), member.name)
            for member in self.fleet.gone  # everybody who was ever started
            for line in member.errors.read_text().splitlines()
            if line.endswith("leads")
        )


def prune_by_command(fleet: Fleet, census: Census) -> set[str]:
    """Let `windlass keeper`, which knows no program, prune what is left; answers with what is due."""
    look(fleet, census)
    standing = [one.task for one in census.seen.values() if one.gone_at is None]
    due = {}
    for task in standing:
        period = PROGRAMS[task.queue].kept(task.state)
        if period is not None and task.finished_at is not None:
            due[task.id] = task.finished_at + period
    wait_until(
        lambda: all(at < datetime.now().astimezone() for at in due.values()), 30, what="retention ends"
    )
    keeper = subprocess.Popen(
        [Path(sys.executable).with_name("windlass"), "keeper", "--store", store_of(fleet)],
        stderr=subprocess.PIPE,
    )

    def are_gone() -> bool:
        look(fleet, census)
        return due.keys() <= census.gone.keys()

    try:
        with suppress(AssertionError):
            wait_until(are_gone, 15, what="what is due is pruned", every=0.5)
    finally:
        keeper.terminate()
        print(keeper.communicate()[1].decode())  # noqa: T201
    return set(due)


def store_of(fleet: Fleet) -> str:
    return fleet.server or f"sqlite:///{fleet.folder.absolute()}/windlass.db"


def _kind(name: str) -> str:
    return name.rstrip("0123456789")
