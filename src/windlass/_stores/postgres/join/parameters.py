"""Convert statements and parameters to what each driver takes.

Everything but numbers and text is sent as text, a list as the text of an array, and parsed by the cast in the
statement or by the column's type. So it does not matter which adapters, codecs and date styles the caller has
set on the connection.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from ....errors import StoreError
from ..rows import Row

_NUMBER = re.compile(r"\$(\d+)")
_CAST = re.compile(r"\$(\d+)::")
_MICROSECOND = timedelta(microseconds=1)


# -- statements --------------------------------------------------------------------------------------


class Prepared(NamedTuple):
    """A statement as a driver takes it, and the order of its parameters."""

    sql: str
    order: tuple[int, ...]
    texts: frozenset[int] | None = None  # sent as text, others unchanged; None: all as any driver takes them

    def bind(self, parameters: Sequence[Any]) -> list[Any]:
        """Return the parameters, converted and in the statement's order."""
        if self.texts is None:
            return [plain(parameters[number]) for number in self.order]
        return [text(parameters[n]) if n in self.texts else parameters[n] for n in self.order]


@lru_cache(maxsize=256)
def percent(sql: str) -> Prepared:
    """Write %s in place of every $n."""
    order = [int(number) - 1 for number in _NUMBER.findall(sql)]
    return Prepared(_NUMBER.sub("%s", sql.replace("%", "%%")) if order else sql, tuple(order))


@lru_cache(maxsize=256)
def dollars(sql: str) -> Prepared:
    """Number every $n without gaps."""
    order = sorted({int(number) for number in _NUMBER.findall(sql)})
    places = {str(number): place for place, number in enumerate(order, 1)}
    return Prepared(_NUMBER.sub(lambda found: f"${places[found[1]]}", sql), tuple([n - 1 for n in order]))


@lru_cache(maxsize=256)
def dollars_as_text(sql: str) -> Prepared:
    """Number every $n, and read those with a cast from text: for a driver that infers types from casts."""
    texts = frozenset(int(number) - 1 for number in _CAST.findall(sql))
    return dollars(_CAST.sub(r"$\1::text::", sql))._replace(texts=texts)


# -- parameters --------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Convert a parameter to None, a number or text."""
    if isinstance(value, list | tuple):
        return array(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return text(value)


def text(value: Any) -> str | None:
    """Convert a parameter to text; None stays None."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, list | tuple):
        return array(value)
    return _WRITERS[type(value)](value)


def array(values: Iterable[Any]) -> str:
    """Write a list as the text of a Postgres array."""
    return "{" + ",".join(["NULL" if value is None else _element(value) for value in values]) + "}"


def _element(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return _quoted(value)
    written = _WRITERS[kind](value)
    return written if kind in _BARE else _quoted(written)


def _quoted(written: str) -> str:
    return '"' + written.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _seconds(value: timedelta) -> str:
    """Write an interval in seconds: the length of a day depends on the connection's time zone."""
    whole, rest = divmod(abs(value), timedelta(seconds=1))
    return f"{'-' if value < timedelta(0) else ''}{whole}.{rest // _MICROSECOND:06} seconds"


_BARE = frozenset({bool, int, float})
_WRITERS: dict[type, Callable[[Any], str]] = {
    str: str,
    bool: lambda value: "t" if value else "f",
    int: str,
    float: repr,
    bytes: lambda value: "\\x" + value.hex(),
    datetime: lambda value: value.astimezone(UTC).isoformat(),
    timedelta: _seconds,
}


# -- rows --------------------------------------------------------------------------------------------


def plain_rows(rows: Iterable[Sequence[Any]]) -> list[Row]:
    """Return rows as tuples with timestamps in UTC, where adding a day adds 24 hours."""
    return [tuple([_READERS[type(v)](v) if type(v) in _READERS else v for v in row]) for row in rows]


def _instant(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise StoreError("this connection drops the time zones of timestamps; use one that keeps them")
    return value.astimezone(UTC)


_READERS: dict[type, Callable[[Any], Any]] = {datetime: _instant, memoryview: bytes}
