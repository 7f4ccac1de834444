"""Run slow computations in a thread, so that the event loop goes on serving other requests.

There is one thread for all: computing threads share one interpreter lock, and each further one would make the
loop wait longer for its turn. Long computations are handed over in parts, so that requests take turns.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")

SMALL = 16 << 10
"""Bytes of JSON that are processed in the loop: handing them over would take longer."""

PART = 256 << 10
"""Bytes of JSON after which another request has its turn."""

_TURN_SECONDS = 0.001
"""Time after which the thread lets the loop go on. Python waits 5 ms, and a request takes several turns."""

_thread = ThreadPoolExecutor(1, thread_name_prefix="windlass-json")


async def off_loop(size: int, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Call the function, which processes `size` bytes: in the loop if that is little, else in a thread."""
    if size <= SMALL:
        return function(*args, **named)
    return await in_thread(partial(function, *args, **named))


async def in_thread(function: Callable[[], T]) -> T:
    """Call the function in the thread, however long it takes."""
    call = partial(copy_context().run, function)
    return await asyncio.get_running_loop().run_in_executor(_thread, _in_short_turns, call)


def _in_short_turns(call: Callable[[], T]) -> T:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(min(usual, _TURN_SECONDS))
    try:
        return call()
    finally:
        sys.setswitchinterval(usual)


async def each_off_loop(items: Sequence[A], size: Callable[[A], int], function: Callable[[A], B]) -> list[B]:
    """Call the function with each item, in parts of about `PART` bytes; `size` returns the bytes of one."""
    done: list[B] = []
    while len(done) < len(items):
        part: list[A] = []
        total = 0
        for item in items[len(done) :]:
            part.append(item)
            total += size(item)
            if total >= PART:
                break
        done += await off_loop(total, _each, function, part)
    return done


def _each(function: Callable[[A], B], items: Sequence[A]) -> list[B]:
    return [function(item) for item in items]
