"""Merge what shards answer: pages in one order, counts, sessions and the use of limits."""

from collections.abc import Callable, Iterable, Sequence
from heapq import merge
from typing import Any, TypeVar

from msgspec.structs import replace

from ..._model.filter import Count, Page, Slice
from ..._model.limit import Usage
from ..._model.record import Audit, Record, Session

T = TypeVar("T")


def merge_slices(slices: Sequence[Slice[T]], page: Page, name: Callable[[T], str]) -> Slice[T]:
    """Merge the same page of several shards: of equal names one stays, combined if they differ.

    The cursor is the last name, which is a position in every shard.
    """
    ordered = merge(*(one.items for one in slices), key=name, reverse=page.newest_first)
    found: list[T] = []
    for item in ordered:
        if found and name(found[-1]) == name(item):
            found[-1] = _combined(found[-1], item)
        elif len(found) == page.limit:
            return _sliced(found, name)
        else:
            found.append(item)
    more = any(one.cursor is not None for one in slices)
    return _sliced(found, name) if more else Slice(items=tuple(found))


def _sliced(found: Sequence[T], name: Callable[[T], str]) -> Slice[T]:
    return Slice(items=tuple(found), cursor=name(found[-1]) if found else None)


def _combined(one: Any, other: Any) -> Any:
    """Return one record for two of the same name: a session is on each shard that its worker uses."""
    match one, other:
        case Session(), Session():
            newest = max(one, other, key=lambda session: session.beat_at)
            return replace(newest, started_at=min(one.started_at, other.started_at))
        case Usage(), Usage():
            tokens = [use.tokens for use in (one, other) if use.tokens is not None]
            return replace(one, running=one.running + other.running, tokens=min(tokens, default=None))
        case _:
            return one


def record_name(record: Record) -> str:
    """Return what records of a kind are ordered by."""
    return record.id if isinstance(record, Session | Audit) else record.name


def merge_counts(counts: Iterable[Sequence[Count]]) -> Sequence[Count]:
    """Add up the counts of several shards."""
    total: dict[tuple[str, ...], Count] = {}
    for one in (count for part in counts for count in part):
        so_far = total.get(one.values)
        total[one.values] = one if so_far is None else _sum(so_far, one)
    return [total[values] for values in sorted(total)]


def _sum(one: Count, other: Count) -> Count:
    oldest = [at for at in (one.oldest_at, other.oldest_at) if at is not None]
    return Count(
        values=one.values,
        number=one.number + other.number,
        exact=one.exact and other.exact,
        oldest_at=min(oldest, default=None),
        steps=one.steps + other.steps,
        bytes=one.bytes + other.bytes,
    )
