"""Partial answers: a page that says what is missing may leave out shards that do not answer.

Everyone else gets an error: an answer without some shards would look complete.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .outage import ShardUnavailable

_missing: ContextVar[set[str] | None] = ContextVar("windlass_missing_shards", default=None)


@contextmanager
def partial_answers() -> Iterator[set[str]]:
    """Let listings and counts in this block leave out shards that do not answer; yield their names."""
    missing: set[str] = set()
    token = _missing.set(missing)
    try:
        yield missing
    finally:
        _missing.reset(token)


@contextmanager
def complete_answers() -> Iterator[None]:
    """Let listings and counts in this block raise an error if a shard does not answer, as they usually do."""
    token = _missing.set(None)
    try:
        yield
    finally:
        _missing.reset(token)


def leave_out(shards: Iterable[str]) -> None:
    """Note that an answer lacks these shards. Raises ShardUnavailable outside of `partial_answers`."""
    names = sorted(shards)
    missing = _missing.get()
    if missing is not None:
        missing.update(names)
    elif names:
        raise ShardUnavailable(f"shard {', '.join(names)} is not available; retry", ", ".join(names))


def may_leave_out() -> bool:
    """Whether an answer may lack shards."""
    return _missing.get() is not None
