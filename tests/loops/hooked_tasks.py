"""An app with hooks whose tasks run in child processes; at module level, where a child finds them.

What happens in any process is appended to the file that HOOKED_LOG names, one line each: `what pid`.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

from windlass import INJECTED, App, Backoff, Context, Depends

app = App("memory://", backoff=Backoff(base=0, jitter=0))


@dataclass
class State:
    pid: int
    loop: asyncio.AbstractEventLoop
    crash: asyncio.Event  # ends the lifespan


def log(what: str) -> None:
    with Path(os.environ["HOOKED_LOG"]).open("a") as file:
        file.write(f"{what} {os.getpid()}\n")


@app.lifespan
async def process_state(_: App) -> AsyncIterator[State]:
    in_child = str(os.getpid()) != os.environ["HOOKED_WORKER"]
    if in_child and "fails" in os.environ["HOOKED_MODE"]:
        raise ConnectionError("no database")
    if in_child and "slow" in os.environ["HOOKED_MODE"]:
        threading.Event().wait(3.5)  # longer than the timeout of `limited`
    log("enter")
    async with asyncio.TaskGroup() as group:
        state = State(os.getpid(), asyncio.get_running_loop(), asyncio.Event())
        watch = group.create_task(fail_on(state.crash))
        yield state
        watch.cancel()
    if in_child and "lingers" in os.environ["HOOKED_MODE"]:
        log("linger")
        await asyncio.Event().wait()
    log("leave")


async def fail_on(crash: asyncio.Event) -> NoReturn:
    await crash.wait()
    raise ConnectionError("the connection was closed")


@app.around
def noted(ctx: Context) -> Iterator[None]:
    log("before")
    try:
        yield
    except ValueError as error:
        log(f"failed-{error}")
        raise
    finally:
        log("after")


async def open_loop(ctx: Context[State]) -> AsyncIterator[bool]:
    log("open")
    yield ctx.state.loop is asyncio.get_running_loop()
    log("close")


def open_pid(ctx: Context[State]) -> Iterator[int]:
    log("open")
    yield ctx.state.pid
    log("close")


@app.task(process=True, timeout=3, max_attempts=1)
def limited() -> None:
    log("run")


@app.task(process=True, max_attempts=1)
def in_main_thread(ctx: Context[State] = INJECTED) -> list[int]:
    log("run")
    return [ctx.state.pid, os.getpid()]


@app.task(process=True)
async def on_its_loop(ctx: Context[State] = INJECTED) -> bool:
    log("run")
    return ctx.state.loop is asyncio.get_running_loop()


@app.task(process=True, max_attempts=1)
def fail(ctx: Context[State] = INJECTED) -> NoReturn:
    raise ValueError("boom")


@app.task(process=True)
async def depends(same_loop: Annotated[bool, Depends(open_loop)] = INJECTED) -> bool:
    log("run")
    return same_loop


@app.task(process=True)
def depends_blocking(pid: Annotated[int, Depends(open_pid)] = INJECTED) -> list[int]:
    log("run")
    return [pid, os.getpid()]


@app.task(process=True, timeout=0.3, max_attempts=1)
def hang(ctx: Context[State] = INJECTED) -> None:
    threading.Event().wait(60)


@app.task(process=True)
def note(ctx: Context[State] = INJECTED) -> dict[str, Any]:
    ctx.note(inside=os.getpid())
    return {"done": True}


@app.task(process=True)
def note_much(ctx: Context[State] = INJECTED) -> None:
    ctx.note(inside="x" * 3_000)


@app.task(process=True)
async def end_lifespan(ctx: Context[State] = INJECTED) -> None:
    ctx.state.crash.set()
