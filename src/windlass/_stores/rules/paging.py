"""A page of what is all at hand."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from ..._model.filter import Page, Slice

S = TypeVar("S")


def paged(rows: Sequence[S], page: Page, name: Callable[[S], str]) -> Slice[S]:
    """The part of the rows that a page shows, by name."""
    found = sorted(rows, key=name, reverse=page.newest_first)
    if page.cursor is not None:
        cursor, newest = page.cursor, page.newest_first
        found = [row for row in found if (name(row) < cursor if newest else name(row) > cursor)]
    more = len(found) > page.limit
    items = tuple(found[: page.limit])
    return Slice(items=items, cursor=name(items[-1]) if more and items else None)
