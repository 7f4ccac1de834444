"""Parse and make the W3C traceparent that tasks carry."""

import re

from msgspec import Struct

from ..._model.task import Task
from ...errors import InvalidOption
from .quote import quoted

RELATIONS = ("auto", "parent", "link")  # how an attempt's span relates to the task's trace

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_KNOWN_FLAGS = 0b11  # sampled, random trace id


class Trace(Struct, frozen=True):
    """A parsed traceparent: ids in hexadecimal, and the flags."""

    trace_id: str
    span_id: str
    flags: int

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"

    @property
    def is_synthetic(self) -> bool:
        """Whether it has no real span. See `_model.task.synthetic_trace`."""
        return self.span_id == self.trace_id[:16]


def parse_trace(text: object) -> Trace | None:
    """Parse a traceparent; None if it is malformed, has version ff or an id of zeros."""
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    version, trace_id, span_id, flags = found.groups()
    if version == "ff" or not trace_id.strip("0") or not span_id.strip("0"):
        return None
    return Trace(trace_id, span_id, int(flags, 16))


def checked_trace(value: object) -> str:
    """Check the option `trace`."""
    if not isinstance(value, str) or parse_trace(value) is None:
        raise InvalidOption(
            f"the trace {quoted(value)} is not a W3C traceparent (00-<32 hex>-<16 hex>-<2 hex>)"
        )
    return value


def trace_from_header(header: str | None) -> str | None:
    """Return the option `trace` from a `traceparent` header; an invalid one is ignored, as W3C requires.

    Of a later version only the fields of version 00 are read and kept.
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


def is_child(task: Task, relation: str) -> bool:
    """Whether an attempt's span is a child of the producer's span, instead of a trace of its own with a link.

    With "auto" it is for the first attempt of a task that was due at once. A trace that ends days later,
    or has a part for each attempt or predecessor, is hard to read.
    """
    if relation != "auto":
        return relation == "parent"
    return task.attempt <= 1 and task.run_at <= task.created_at and not task.after
