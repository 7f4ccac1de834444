"""A piece of work as a script: it yields what it asks the database and is sent the rows.

Who plays it decides on which connection, and whether by awaiting or by blocking: our own, or one of the
drivers whose transactions can be joined. So the rules of enqueueing and settling are written once.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

Row: TypeAlias = Sequence[Any]


class Ask(NamedTuple):
    """A statement by its file's name, or as text that has been put together, and its parameters."""

    name: str
    parameters: tuple[Any, ...] = ()
    sql: str | None = None


Script: TypeAlias = Generator[Ask, Sequence[Row], T]


def ask(name: str, *parameters: Any) -> Script[Sequence[Row]]:
    """All rows of one statement."""
    rows: Sequence[Row] = yield Ask(name, parameters)
    return rows


def pairs(name: str, *parameters: Any) -> Script[dict[str, Any]]:
    """The rows of a statement with two columns, as a mapping from the first to the second."""
    rows = yield from ask(name, *parameters)
    return {row[0]: row[1] for row in rows}


def value(name: str, *parameters: Any) -> Script[Any]:
    """The first column of the first row, or None."""
    rows = yield from ask(name, *parameters)
    return rows[0][0] if rows else None


async def play(script: Script[T], fetch: Callable[[Ask], Awaitable[Sequence[Row]]]) -> T:
    """Play a script to its end, awaiting every answer."""
    try:
        wanted = next(script)
        while True:
            wanted = script.send(await fetch(wanted))
    except StopIteration as end:
        result: T = end.value
        return result


def play_blocking(script: Script[T], fetch: Callable[[Ask], Sequence[Row]]) -> T:
    """Play a script to its end in this thread."""
    try:
        wanted = next(script)
        while True:
            wanted = script.send(fetch(wanted))
    except StopIteration as end:
        result: T = end.value
        return result
