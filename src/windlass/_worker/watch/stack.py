"""Stacks of running handlers: of a thread, or of a coroutine and what it awaits; and the line to name."""

import asyncio
import selectors
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from traceback import StackSummary, walk_stack
from types import CodeType, FrameType
from typing import Any

from ..._model.record import MAX_PLACE
from ..run import Run

_MAX_FRAMES = 40
_FRAMES = (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await"))
_NOT_THE_PROGRAM = (str(Path(__file__).parents[2]), sysconfig.get_path("stdlib"))
_HERE = _NOT_THE_PROGRAM[0]
_IDLE = (str(Path(asyncio.__file__).parent), selectors.__file__)  # where a loop waits for something to do


def thread_frames(thread_id: int) -> list[FrameType]:
    """Return the frames of a thread, innermost first; none if it has ended.

    Do not keep frames: they hold their local variables.
    """
    innermost = sys._current_frames().get(thread_id)  # noqa: SLF001 - there is no other way
    return [] if innermost is None else [frame for frame, _ in walk_stack(innermost)]


def coroutine_frames(awaited: Any) -> list[FrameType]:
    """Return the frames of a suspended coroutine and of what it awaits, innermost first."""
    frames: list[FrameType] = []
    while awaited is not None and len(frames) < _MAX_FRAMES:
        for frame, inner in _FRAMES:
            if hasattr(awaited, frame):
                frames.append(getattr(awaited, frame))
                awaited = getattr(awaited, inner)
                break
        else:
            break  # a future, or an iterator that does not tell what it waits for
    return [frame for frame in reversed(frames) if frame is not None]


def run_frames(run: Run) -> list[FrameType]:
    """Return the frames of a run that is not on its event loop right now; none if they cannot be seen."""
    if (thread := run.thread) is None:
        return coroutine_frames(run.coroutine)
    frames = thread_frames(thread)
    return frames if run.thread == thread else []  # else they may be those of its next handler


def place_of(run: Run | None, frames: Iterable[FrameType]) -> str:
    """Name the line where the handler itself is, or else the innermost of the program's own; "" if none."""
    code = None if run is None else _code(run.spec.handler)
    frames = list(frames)
    if not frames:
        return ""
    own = (frame for frame in frames if not frame.f_code.co_filename.startswith(_NOT_THE_PROGRAM))
    frame = next((one for one in frames if one.f_code is code), None) or next(own, frames[0])
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"[-MAX_PLACE:]


def stack_of(run: Run, frames: Iterable[FrameType]) -> str:
    """Format the frames from the handler's own inwards, as a traceback does; "" if there are none."""
    code, inner = _code(run.spec.handler), list[FrameType]()
    for frame in frames:
        inner.append(frame)
        if frame.f_code is code:
            break
    while inner and inner[-1].f_code.co_filename.startswith(_HERE) and len(inner) > 1:
        inner.pop()  # what the worker does around handlers that are not plain functions
    pairs = [(frame, frame.f_lineno) for frame in reversed(inner[:_MAX_FRAMES])]
    lines = StackSummary.extract(iter(pairs), lookup_lines=False).format()
    return f"Stack (innermost call last):\n{''.join(lines)}".rstrip() if lines else ""


def is_idle(frame: FrameType) -> bool:
    """Whether an event loop is where it waits for something to do."""
    return frame.f_code.co_filename.startswith(_IDLE)


def _code(handler: Any) -> CodeType | None:
    return getattr(handler, "__code__", None)
