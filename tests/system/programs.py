"""Three programs that share a store, each with its own rules: how long to keep tasks, how soon to retry."""

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from tests.system.program import pause
from windlass import App, Backoff, Retention, State
from windlass.tasktype import TaskType


class Rules(NamedTuple):
    """What a program declares for all its task types."""

    retention: Retention
    backoff: Callable[[int, float], timedelta]
    max_attempts: int

    def delay(self, attempt: int) -> timedelta:
        """The time from the end of this attempt to the next."""
        return self.backoff(attempt, 0.5)

    def kept(self, state: State) -> timedelta | None:
        """How long a task is kept that ended in this state; None: for ever."""
        period: timedelta | None = getattr(self.retention, state.value)
        return period


def later_and_later(attempt: int, draw: float) -> timedelta:
    """A backoff that is a function, which no other program has."""
    return timedelta(seconds=2 + attempt)


def kept_for(completed: float | None, dead: float | None) -> Retention:
    ended = None if completed is None else timedelta(seconds=completed)
    return Retention(completed=ended, cancelled=ended, dead=None if dead is None else timedelta(seconds=dead))


PROGRAMS = {
    "brief": Rules(kept_for(2, 2), Backoff(base=0.3, factor=1, jitter=0), 3),
    "lasting": Rules(kept_for(None, None), Backoff(base=6, factor=1, jitter=0), 4),
    "custom": Rules(kept_for(5, None), later_and_later, 3),
}


class Program(NamedTuple):
    """A program's app and its task types."""

    app: App
    nap: TaskType[..., Any, None]
    fail: TaskType[..., Any, None]
    poison: TaskType[..., Any, None]


def program(name: str, store: str) -> Program:
    """A program on this store. Its tasks are in a queue of its own, which has its name."""
    rules = PROGRAMS[name]
    app = App(store, retention=rules.retention, backoff=rules.backoff)

    @app.task(name=f"{name}.nap", queue=name, max_attempts=rules.max_attempts)
    async def nap(seconds: float) -> None:
        await pause(seconds)

    @app.task(name=f"{name}.fail", queue=name, max_attempts=rules.max_attempts)
    async def fail() -> None:
        raise ValueError("always")

    @app.task(name=f"{name}.poison", queue=name, max_attempts=rules.max_attempts)
    async def poison() -> None:
        """Takes its worker with it."""
        os.kill(os.getpid(), signal.SIGKILL)
        await pause(10)

    return Program(app, nap, fail, poison)
