"""Statements and parameters as any driver takes them.

Whatever is not a number or a text travels as text, a list as the text of an array, and the statement's own
cast, or the column it is for, says how to read it: so it does not matter which adapters, codecs and styles of
dates the connection was given.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from ....errors import StoreError
from ..script import Row

_NUMBER = re.compile(r"\$(\d+)")
_CAST = re.compile(r"\$(\d+)::")
_MICROSECOND = timedelta(microseconds=1)


# -- statements --------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """A statement as a driver takes it; which parameters it takes, in turn.

    `texts` are those that it takes as text, the others as they are; None: all of them as suits any driver.
    """

    sql: str
    order: tuple[int, ...]
    texts: frozenset[int] | None = None

    def given(self, parameters: Sequence[Any]) -> list[Any]:
        """The parameters, in the statement's order."""
        if self.texts is None:
            return [plain(parameters[number]) for number in self.order]
        return [text(parameters[n]) if n in self.texts else parameters[n] for n in self.order]


@lru_cache(maxsize=256)
def percent(sql: str) -> Asked:
    """With %s in place of every $n."""
    order = [int(number) - 1 for number in _NUMBER.findall(sql)]
    return Asked(_NUMBER.sub("%s", sql.replace("%", "%%")) if order else sql, tuple(order))


@lru_cache(maxsize=256)
def dollars(sql: str) -> Asked:
    """With $n, numbered without gaps."""
    order = sorted({int(number) for number in _NUMBER.findall(sql)})
    places = {str(number): place for place, number in enumerate(order, 1)}
    return Asked(_NUMBER.sub(lambda found: f"${places[found[1]]}", sql), tuple([n - 1 for n in order]))


@lru_cache(maxsize=256)
def dollars_as_text(sql: str) -> Asked:
    """With $n, every one that has a cast read from a text: for a driver that goes by the types it is told."""
    texts = frozenset(int(number) - 1 for number in _CAST.findall(sql))
    return dollars(_CAST.sub(r"$\1::text::", sql))._replace(texts=texts)


# -- parameters --------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A parameter as None, a number or a text."""
    if isinstance(value, list | tuple):
        return array(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return text(value)


def text(value: Any) -> str | None:
    """A parameter as text, or None."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, list | tuple):
        return array(value)
    return _WRITERS[type(value)](value)


def array(values: Iterable[Any]) -> str:
    """A list as Postgres writes an array."""
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
    """Seconds and no days: a day of Postgres's is as long as it is in the connection's time zone."""
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
    """Rows as tuples, instants in UTC: what is added to one is meant to be so many seconds."""
    return [tuple([_READERS[type(v)](v) if type(v) in _READERS else v for v in row]) for row in rows]


def _instant(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise StoreError("the connection drops the time zones of what it reads; pass one that keeps them")
    return value.astimezone(UTC)


_READERS: dict[type, Callable[[Any], Any]] = {datetime: _instant, memoryview: bytes}
