"""Traces as tasks carry them: a W3C traceparent of version 00, and what an attempt makes of it. (O4)"""

import re

from msgspec import Struct

from ..._model.task import Task
from ...errors import InvalidOption
from .quoting import quoted

RELATIONS = ("auto", "parent", "link")  # how an attempt's span belongs to the task's trace

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_KNOWN_FLAGS = 0b11  # sampled, and the trace id is random


class Trace(Struct, frozen=True):
    """A traceparent, taken apart: hexadecimal ids and the flags."""

    trace_id: str
    span_id: str
    flags: int

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"

    @property
    def is_synthetic(self) -> bool:
        """Whether no span stands behind it: it was made up here. See `synthetic_trace`."""
        return self.span_id == self.trace_id[:16]


def parse_trace(text: object) -> Trace | None:
    """The traceparent, or None for what is none: a wrong form, version ff, an id of zeros."""
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    version, trace_id, span_id, flags = found.groups()
    if version == "ff" or not trace_id.strip("0") or not span_id.strip("0"):
        return None
    return Trace(trace_id, span_id, int(flags, 16))


def checked_trace(value: object) -> str:
    """The option `trace`: the caller's own, and so refused when it is wrong."""
    if not isinstance(value, str) or parse_trace(value) is None:
        raise InvalidOption(
            f"the trace {quoted(value)} is not a W3C traceparent (00-<32 hex>-<16 hex>-<2 hex>)"
        )
    return value


def trace_from_header(header: str | None) -> str | None:
    """The option `trace` from the text of a `traceparent` header; a wrong one is ignored, as W3C asks.

    Of a later version only what version 00 knows is read, and it is carried on as that.
    """
    if not header:
        return None
    text = header.strip(" \t")
    later = text[:2] != "00" and text[55:56] == "-"
    found = parse_trace(text[:55] if later else text)
    if found is None:
        return None
    known = _KNOWN_FLAGS if text[:2] == "00" else 1
    return str(Trace(found.trace_id, found.span_id, found.flags & known))


def synthetic_trace(number: int) -> str:
    """A trace for a request that nobody traces, from 128 bits: so that what follows from it can be told.

    It has no span. Its span id is the first half of its trace id, which shows a worker that it must not
    take the missing mark "sampled" for somebody's decision.
    """
    return f"00-{number:032x}-{number >> 64:016x}-00"


def is_child(task: Task, relation: str) -> bool:
    """Whether an attempt's span is a child of the span that the task's trace names, not only linked to it.

    By itself it is for a task that was due at once and runs for the first time. A trace that ends days
    later, or has one part for each attempt or predecessor, is hard to read: those begin a trace of their own.
    """
    if relation != "auto":
        return relation == "parent"
    return task.attempt <= 1 and task.run_at <= task.created_at and not task.after
