"""Scripts: generators that yield statements and are sent their rows.

Who plays a script decides on which connection it runs, and whether by awaiting or by blocking: the store's
own connections, or one of any driver whose transactions can be joined. So the code is the same for all of
them.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from .connection.address import Address
from .rows import Row
from .statements import statement

Q = TypeVar("Q")
T = TypeVar("T")


class Query(NamedTuple):
    """A statement, by the name of its file or as text, and its parameters."""

    name: str
    parameters: tuple[Any, ...] = ()
    sql: str | None = None

    def text(self, schema: str) -> str:
        """Return the SQL for a schema."""
        return self.sql or statement(self.name, schema)


Script: TypeAlias = Generator[Query, Sequence[Row], T]


class Source(Protocol):
    """What runs single statements: a store, or its connections."""

    address: Address

    async def fetch(self, query: Query) -> Sequence[Row]: ...


def fetch(name: str, *parameters: Any) -> Script[Sequence[Row]]:
    """Return all rows of a statement."""
    rows: Sequence[Row] = yield Query(name, parameters)
    return rows


def pairs(name: str, *parameters: Any) -> Script[dict[str, Any]]:
    """Return the rows of a statement with two columns, as a mapping from the first to the second."""
    rows = yield from fetch(name, *parameters)
    return {row[0]: row[1] for row in rows}


def value(name: str, *parameters: Any) -> Script[Any]:
    """Return the first column of the first row; None if there is no row."""
    rows = yield from fetch(name, *parameters)
    return rows[0][0] if rows else None


async def play(script: Script[T], fetch: Callable[[Query], Awaitable[Sequence[Row]]]) -> T:
    """Run a script to its end; errors are raised within it, so that it can undo what it has done."""
    try:
        wanted = next(script)
        while True:
            try:
                rows = await fetch(wanted)
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001 - the script raises it again
                wanted = script.throw(error)
            else:
                wanted = script.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result


def play_blocking(script: Script[T], fetch: Callable[[Query], Sequence[Row]]) -> T:
    """Run a script like `play`, in this thread: a coroutine that awaits nothing ends in its first step."""

    async def fetch_at_once(query: Query) -> Sequence[Row]:
        return fetch(query)

    try:
        play(script, fetch_at_once).send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a blocking script was suspended")


def answered(rule: Generator[Q, Any, T], answer: Callable[[Q], Script[Any]]) -> Script[T]:
    """Run a rule to its end, within a script that answers its questions by statements."""
    try:
        question = next(rule)
        while True:
            question = rule.send((yield from answer(question)))
    except StopIteration as end:
        result: T = end.value
        return result
