"""The program that the system tests run: handlers of many kinds that write down when they start and end."""

import asyncio
import ctypes
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from tests.system.history import Diary, Ended, Started, now
from windlass import INJECTED, App, Backoff, Context, Snooze

FOLDER = Path(os.environ.get("WINDLASS_TEST_FOLDER", "."))
WORKER = os.environ.get("WINDLASS_TEST_WORKER", "")
CAPS = (1, 2, 3, 4, 5)
STORE = os.environ.get("WINDLASS_TEST_STORE") or f"sqlite:///{FOLDER.absolute()}/windlass.db"

app = App(STORE, backoff=Backoff(base=0.1, factor=1.5, cap=0.5))


class Unlucky(Exception):
    """What the handlers raise that are meant to."""


@cache
def diary() -> Diary:
    """Where this worker writes; a child process writes into its parent's."""
    return Diary(FOLDER / f"runs-{WORKER}.jsonl")


@contextmanager
def written(ctx: Context) -> Iterator[None]:
    """Write down that a handler starts, and how it ends."""
    about = {"task_id": ctx.task_id, "fence": ctx.fence, "worker": WORKER}
    diary().write(Started(attempt=ctx.attempt, at=now(), **about))
    try:
        yield
    except BaseException as error:
        diary().write(Ended(at=now(), how=type(error).__name__, **about))
        raise
    diary().write(Ended(at=now(), how="returned", **about))


async def pause(seconds: float) -> None:
    """Take that long, letting others work."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)


@app.task
async def quick(key: str, ctx: Context = INJECTED) -> None:
    with written(ctx):
        pass


@app.task
async def nap(key: str, seconds: float, ctx: Context = INJECTED) -> float:
    with written(ctx):
        await pause(seconds)
    return seconds


@app.task
def threaded(key: str, seconds: float, ctx: Context = INJECTED) -> str:
    with written(ctx):
        threading.Event().wait(seconds)
    return key


@app.task
async def flaky(key: str, failures: int, ctx: Context = INJECTED) -> None:
    with written(ctx):
        if ctx.attempt <= failures:
            raise Unlucky(f"attempt {ctx.attempt}")


@app.task(max_attempts=3)
async def doomed(key: str, ctx: Context = INJECTED) -> None:
    with written(ctx):
        raise Unlucky("always")


@app.task
async def drowsy(key: str, ctx: Context = INJECTED) -> None:
    """Asks once to be called later."""
    with written(ctx):
        if ctx.fence == 1:
            raise Snooze(0.2)


@app.task
async def link(key: str, before: Any = None, ctx: Context = INJECTED) -> str:
    """A link of a chain, or the last task of a group."""
    with written(ctx):
        return key


@app.task(process=True)
def isolated(key: str, seconds: float = 0.0, ctx: Context = INJECTED) -> str:
    with written(ctx):
        threading.Event().wait(seconds)
        return key


@app.task(max_attempts=3)
async def poison(key: str, how: str, ctx: Context = INJECTED) -> None:
    """Takes its whole worker with it."""
    with written(ctx):
        if how == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL)
        await pause(10)


@app.task(process=True, max_attempts=3)
def isolated_poison(key: str, how: str, ctx: Context = INJECTED) -> None:
    """Takes only its own process with it."""
    with written(ctx):
        if how == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL)


@app.task
async def blocker(key: str, seconds: float, ctx: Context = INJECTED) -> None:
    """Blocks the event loop, as a careless handler does."""
    with written(ctx):
        threading.Event().wait(seconds)


@app.task(max_attempts=3)
async def hog(key: str, seconds: float, ctx: Context = INJECTED) -> None:
    """Holds the interpreter's lock, as a careless extension does: none of our threads runs meanwhile."""
    with written(ctx):
        ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
        await pause(0.3)


async def capped(key: str, account: str, seconds: float, ctx: Context = INJECTED) -> None:
    """Under several names, so that each can have a limit of its own, counted by account."""
    with written(ctx):
        await pause(seconds)


for cap in CAPS:
    app.task(name=f"{__name__}.capped{cap}")(capped)
