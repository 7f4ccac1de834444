"""A model of the seam: tasks, sessions and fences in a store, and the processes that use it.

Time is the store's clock alone, in ticks of one lease; what is stored is how many are left. A worker is one
session: after it has lost it, another one starts. Requests may be repeated and may arrive late, replies may
be lost, processes may die or stall for longer than their lease. All of these are faults, and their number is
bounded; everything else happens sooner or later.
"""

from collections.abc import Iterator
from enum import StrEnum
from itertools import combinations
from typing import NamedTuple

from tests.model.checker import Step
from tests.model.lease_rules import (
    MAX_ATTEMPTS,
    Beat,
    LeaseRules,
    Outcome,
    Stored,
    Task,
    Verdict,
    is_alive,
    verdict_of,
)
from windlass._model.state import ENDED, State
from windlass._model.verdict import Receipt


class Run(NamedTuple):
    """A lease as its holder knows it."""

    task: int
    fence: int
    attempt: int
    asked_to_stop: bool = False
    outcome: Outcome | None = None  # once the handler has ended; it is being settled


class Phase(StrEnum):
    NEW = "new"
    UP = "up"
    DOWN = "down"


class Process(NamedTuple):
    """A worker or a keeper; its number is that of its session."""

    is_keeper: bool
    phase: Phase = Phase.NEW
    number: int = 0  # of its last claim
    granted: Run | None = None  # in a reply that is on its way
    runs: tuple[Run, ...] = ()

    @property
    def is_up(self) -> bool:
        return self.phase is Phase.UP

    def beat(self, session: int) -> Beat:
        if self.is_keeper:
            return Beat(session, opening=True, held=(), through=-1)
        held = tuple((run.task, run.fence) for run in self.runs)
        return Beat(session, opening=False, held=held, through=self.number - (self.granted is not None))


class Settlement(NamedTuple):
    task: int
    fence: int
    outcome: Outcome
    verdict: Verdict


class World(NamedTuple):
    stored: Stored
    processes: tuple[Process, ...]
    settlements: frozenset[Settlement] = frozenset()  # ever sent: any may arrive again
    beats: frozenset[Beat] = frozenset()  # heartbeats on their way
    faults: int = 0  # that may still happen


class Bounds(NamedTuple):
    tasks: int = 1
    workers: int = 2
    keepers: int = 2
    faults: int = 2


class LeaseModel:
    """Clients, workers, keepers and an operator on a store that follows these rules."""

    def __init__(self, rules: LeaseRules, bounds: Bounds) -> None:
        self.rules, self.bounds = rules, bounds

    def start(self) -> World:
        workers, keepers = self.bounds.workers, self.bounds.keepers
        stored = Stored((Task(),) * self.bounds.tasks, (None,) * (workers + keepers))
        processes = (Process(is_keeper=False),) * workers + (Process(is_keeper=True),) * keepers
        return World(stored, processes, faults=self.bounds.faults)

    # -- steps -------------------------------------------------------------------------------------------

    def steps(self, world: World) -> Iterator[Step[World]]:
        for number in range(self.bounds.tasks):
            yield self._enqueue(world, number)
            if world.faults:
                yield self._cancel(world, number)
        yield from self._begin(world)
        for number, process in enumerate(world.processes):
            if process.is_up:
                yield from self._live(world, number, process)
                yield from self._fail(world, number, process)
        for settlement in sorted(world.settlements):
            yield from self._settle(world, settlement)
        for beat in sorted(world.beats):
            stored, reply = self.rules.heartbeat(world.stored, beat)
            text = f"a late heartbeat of {_name(world, beat.session)} arrives"
            call = ("heartbeat", *beat)
            yield Step(text, _having(world, stored), is_fault=True, call=call, reply=reply)
        yield self._promote(world)
        yield from self._tick(world)

    def _enqueue(self, world: World, task: int) -> Step[World]:
        stored, created = self.rules.enqueue(world.stored, task)
        text = f"a client enqueues task {task}" + ("" if created else " again")
        return Step(text, _having(world, stored), call=("enqueue", task), reply=created)

    def _cancel(self, world: World, task: int) -> Step[World]:
        stored, applied = self.rules.cancel(world.stored, task)
        faults = world.faults - applied
        after = _having(world, stored)._replace(faults=faults)
        return Step(
            f"an operator cancels task {task}", after, is_fault=True, call=("cancel", task), reply=applied
        )

    def _begin(self, world: World) -> Iterator[Step[World]]:
        """Start the next worker or keeper. Which one of several is which makes no difference."""
        for is_keeper in (False, True):
            session = next((n for n, one in enumerate(world.processes) if one == Process(is_keeper)), None)
            if session is not None:
                beat = Beat(session, opening=True, held=(), through=-1 if is_keeper else 0)
                stored, reply = self.rules.heartbeat(world.stored, beat)
                after = _with(_having(world, stored), session, Process(is_keeper, Phase.UP))
                yield Step(f"{_name(world, session)} starts", after, call=("heartbeat", *beat), reply=reply)

    def _live(self, world: World, number: int, process: Process) -> Iterator[Step[World]]:
        """What a process does while all is well."""
        yield self._heartbeat(world, number, process)
        for run in process.runs:
            if run.outcome is None:
                yield from self._finish(world, number, process, run)
        if process.is_keeper:
            yield self._rescue(world, number, process)
        elif process.granted is not None:
            received = process._replace(granted=None, runs=(*process.runs, process.granted))
            yield Step(
                f"{_name(world, number)} receives the task and runs it", _with(world, number, received)
            )
        elif not process.runs:
            for task in range(self.bounds.tasks):
                yield from self._claim(world, number, process, task)

    def _heartbeat(self, world: World, number: int, process: Process) -> Step[World]:
        beat = process.beat(number)
        stored, reply = self.rules.heartbeat(world.stored, beat)
        runs = tuple(
            run._replace(asked_to_stop=run.asked_to_stop or run.task in reply.cancel)
            for run in process.runs
            if (run.task, run.fence) not in reply.lost
        )
        changed = process._replace(runs=runs) if reply.alive else Process(process.is_keeper, Phase.DOWN)
        after = _with(_having(world, stored), number, changed)
        text = f"{_name(world, number)} sends a heartbeat" + (
            "" if reply.alive else " and learns that it is too late"
        )
        return Step(text, after, call=("heartbeat", *beat), reply=reply)

    def _claim(self, world: World, number: int, process: Process, task: int) -> Iterator[Step[World]]:
        claim = process.number + 1
        stored, reply = self.rules.claim(world.stored, number, task, claim)
        changed = process
        if reply:
            granted = stored.tasks[task]
            changed = process._replace(number=claim, granted=Run(task, granted.fence, granted.attempt))
        after = _with(_having(world, stored), number, changed)
        name = _name(world, number)
        text = (
            f"{name} claims task {task}: fence {stored.tasks[task].fence}"
            if reply
            else f"{name} claims nothing"
        )
        yield Step(text, after, call=("claim", number, task, claim), reply=reply)

    def _finish(self, world: World, number: int, process: Process, run: Run) -> Iterator[Step[World]]:
        if process.is_keeper:
            outcomes = [Outcome.STOPPED if run.asked_to_stop else Outcome.CRASHED]
        else:
            outcomes = [Outcome.RETURNED, Outcome.FAILED]
            outcomes += [Outcome.STOPPED] * run.asked_to_stop + [Outcome.INTERRUPTED] * bool(world.faults)
        for outcome in outcomes:
            ended = run._replace(outcome=outcome)
            verdict = verdict_of(outcome, run.attempt)
            sent = Settlement(run.task, run.fence, outcome, verdict)
            after = _with(world, number, process._replace(runs=_replaced(process.runs, run, ended)))
            after = after._replace(settlements=after.settlements | {sent})
            is_fault = outcome is Outcome.INTERRUPTED
            after = after._replace(faults=after.faults - is_fault)
            text = f"{_name(world, number)} ends its run under fence {run.fence}: {outcome}, so {verdict}"
            yield Step(text, after, is_fault=is_fault)

    def _rescue(self, world: World, number: int, process: Process) -> Step[World]:
        stored, rescued = self.rules.rescue(world.stored, number)
        runs = process.runs
        for task in rescued or ():
            taken = stored.tasks[task]
            runs = (*runs, Run(task, taken.fence, taken.attempt, asked_to_stop=taken.cancel_requested))
        after = _with(_having(world, stored), number, process._replace(runs=runs))
        names = " and ".join(f"task {task}" for task in rescued or ()) or "nothing"
        text = f"{_name(world, number)} rescues {names}"
        return Step(text, after, call=("rescue", number), reply=rescued)

    def _fail(self, world: World, number: int, process: Process) -> Iterator[Step[World]]:
        """Faults of one process. The last worker and the last keeper do not die."""
        if not world.faults:
            return
        fewer = world._replace(faults=world.faults - 1)
        name = _name(world, number)
        if not self._is_last(world, number):
            dead = Process(process.is_keeper, Phase.DOWN)
            yield Step(f"{name} dies", _with(fewer, number, dead), is_fault=True)
        if process.granted is not None:
            lost = process._replace(granted=None)
            yield Step(f"the reply to {name} is lost", _with(fewer, number, lost), is_fault=True)
        beat = process.beat(number)
        if beat not in world.beats:
            late = fewer._replace(beats=world.beats | {beat})
            yield Step(f"{name} sends a heartbeat that is delayed", late, is_fault=True)

    def _settle(self, world: World, settlement: Settlement) -> Iterator[Step[World]]:
        stored, receipt = self.rules.settle(world.stored, *settlement)
        text = f"the store gets {settlement.verdict} under fence {settlement.fence}: {receipt}"
        call = ("settle", *settlement)
        after = _having(world, stored)
        for number, process in enumerate(world.processes):
            for run in process.runs:
                if process.is_up and (run.task, run.fence, run.outcome) == settlement[:3]:
                    done = _with(after, number, process._replace(runs=_replaced(process.runs, run)))
                    yield Step(text, done, call=call, reply=receipt)
        yield Step(f"{text}; the reply is lost", after, is_fault=True, call=call, reply=receipt)

    def _promote(self, world: World) -> Step[World]:
        stored, promoted = self.rules.promote(world.stored)
        return Step("a keeper promotes", _having(world, stored), call=("promote",), reply=promoted)

    def _tick(self, world: World) -> Iterator[Step[World]]:
        """Time passes: every process that is up has sent a heartbeat meanwhile, or it has stalled."""
        up = [number for number, process in enumerate(world.processes) if process.is_up]
        mortal = [number for number in up if not self._is_last(world, number)]
        for faults in range(min(len(mortal), world.faults) + 1):
            for stalled in combinations(mortal, faults):
                renewing = [number for number in up if number not in stalled]
                after, calls, replies = world, [], []
                for number in renewing:
                    beat = self._heartbeat(after, number, after.processes[number])
                    calls.append(beat.call)
                    replies.append(beat.reply)
                    after = beat.state
                stored = self.rules.tick(after.stored, frozenset(renewing))
                after = after._replace(stored=stored, faults=world.faults - faults)
                names = " and ".join(_name(world, number) for number in stalled)
                text = "a tick passes" + (f", in which {names} stalled" if stalled else "")
                call = ("tick", tuple(calls))
                yield Step(text, after, is_fault=bool(stalled), call=call, reply=tuple(replies))

    def _is_last(self, world: World, number: int) -> bool:
        """Whether no other of its kind can start after it."""
        return number in {self.bounds.workers - 1, len(world.processes) - 1}

    # -- what must hold ----------------------------------------------------------------------------------

    def bad_state(self, world: World) -> str | None:
        leases = [(run.task, run.fence) for process in world.processes for run in _leases(process)]
        return None if len(leases) == len(set(leases)) else f"two processes hold the same lease: {leases}"

    def bad_step(self, before: World, step: Step[World]) -> str | None:
        was, stored = before.stored.tasks, step.state.stored.tasks
        for number in range(self.bounds.tasks):
            if was[number] != stored[number]:
                reason = _stale(before, number, step) or _bad_change(was[number], stored[number])
                if reason := reason or _taken_away(before, number, step):
                    return f"task {number} {reason}"
        return _bad_receipt(before, step)

    def has_ended(self, world: World) -> bool:
        return all(task.state in ENDED for task in world.stored.tasks)


def _bad_change(was: Task, task: Task) -> str | None:
    if was.state is not None and task.state is None:
        return "is lost"
    if was.state in ENDED and task.state is not was.state:
        return f"was {was.state} and is {task.state}"
    if task.fence < was.fence:
        return f"had fence {was.fence} and has {task.fence}"
    if task.attempt > MAX_ATTEMPTS:
        return f"is at attempt {task.attempt} of {MAX_ATTEMPTS}"
    if task.failed > task.attempt:
        return f"counts {task.attempt} attempts, but more runs have failed: {task.failed}"
    if len(task.settled) != len(set(task.settled)):
        return f"was settled twice under fence {task.settled[-1]}"
    return None


def _stale(before: World, number: int, step: Step[World]) -> str | None:
    """A settlement changes a task only under its newest fence."""
    if step.call is None or step.call[0] != "settle":
        return None
    fence, newest = step.call[2], before.stored.tasks[number].fence
    return None if fence == newest else f"was changed under fence {fence}, but its fence is {newest}"


def _taken_away(before: World, number: int, step: Step[World]) -> str | None:
    """A lease ends by its own settlement, or when its session has expired, or if it never arrived."""
    was, task = before.stored.tasks[number], step.state.stored.tasks[number]
    ended = was.state is State.RUNNING and (task.state, task.fence) != (was.state, was.fence)
    if not ended or was.session is None or (step.call is not None and step.call[0] == "settle"):
        return None
    holder = before.processes[was.session]
    knows = any((run.task, run.fence) == (number, was.fence) for run in _leases(holder))
    if knows and holder.is_up and is_alive(before.stored, was.session):
        return f"was taken from {_name(before, was.session)}, which is alive and holds it"
    return None


def _bad_receipt(before: World, step: Step[World]) -> str | None:
    if step.call is None or step.reply is not Receipt.REPEATED:
        return None
    _, number, fence, *_ = step.call
    if fence not in before.stored.tasks[number].settled:
        return f"a settlement under fence {fence} that had no effect was reported as applied"
    return None


def _leases(process: Process) -> tuple[Run, ...]:
    return process.runs if process.granted is None else (*process.runs, process.granted)


def _with(world: World, number: int, process: Process) -> World:
    if process == world.processes[number]:
        return world
    processes = list(world.processes)
    processes[number] = process
    return world._replace(processes=tuple(processes))


def _having(world: World, stored: Stored) -> World:
    return world if stored == world.stored else world._replace(stored=stored)


def _replaced(runs: tuple[Run, ...], run: Run, *by: Run) -> tuple[Run, ...]:
    at = runs.index(run)
    return (*runs[:at], *by, *runs[at + 1 :])


def _name(world: World, number: int) -> str:
    return f"{'keeper' if world.processes[number].is_keeper else 'worker'} {number}"
