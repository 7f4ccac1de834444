"""The filter bar of tasks: `queue:mail state:dead error:"timed out" since:1h`, parsed and written.

A word without a qualifier is a task id or a type. The parameters of a page's URL are the same criteria.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from msgspec import Struct

from ..._model.state import State
from ..._model.task import EARLIEST, is_task_id
from ..._policy.input.options import checked_instant, parse_duration
from ...errors import InvalidOption

Criteria: TypeAlias = Mapping[str, tuple[str, ...]]
"""The values of each qualifier."""

MAX_WORDS = 100
MAX_VALUE = 500

_ROUNDED = timedelta(seconds=10)
"""What `since:1h` is rounded down to, so that viewers of a page share what is read for it."""

_WORD = re.compile(r'(?:(?P<name>[a-z_]{1,30}):)?(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^\s"]+))(?=\s|$)')
_SPACE = re.compile(r"\s*")
_NEXT_SPACE = re.compile(r"\S*")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_FAILURE = re.compile("[0-9a-f]{16}", re.ASCII)
_BARE = re.compile(r'[^\s"]+')


class InvalidFilter(Exception):
    """A filter that cannot be read; `start` and `end` are the place in its text."""

    def __init__(self, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.start = start
        self.end = end


class Qualifier(Struct, frozen=True, kw_only=True):
    """A criterion. `field` is that of the API's filter; `check` raises ValueError with what is wrong."""

    field: str
    check: Callable[[str], object]
    several: bool = True
    empty: bool = False  # "" is a value
    help: str


def _state(text: str) -> State:
    if text not in (states := [state.value for state in State]):
        raise ValueError(f"there is no state “{text}”; states are {', '.join(states)}")
    return State(text)


def _id(text: str) -> str:
    if not is_task_id(text):
        raise ValueError(f"“{text}” is not a task id")
    return text


def _failure(text: str) -> str:
    if not _FAILURE.fullmatch(text):
        raise ValueError(f"“{text}” is not the id of a failure")
    return text


def _age_or_instant(text: str) -> timedelta | datetime:
    try:
        return parse_duration(text, "age")
    except InvalidOption:
        pass
    try:
        found = datetime.fromisoformat(text)
        return checked_instant(found if found.tzinfo else found.replace(tzinfo=UTC), "instant")
    except (ValueError, InvalidOption):
        raise ValueError(
            f"“{text}” is not an age such as 30m or 2d, nor an instant such as 2026-01-31T08:00"
        ) from None


QUALIFIERS: Mapping[str, Qualifier] = {
    "queue": Qualifier(field="queue", check=str, help="the name of a queue"),
    "type": Qualifier(field="type", check=str, help="a task type"),
    "state": Qualifier(field="state", check=_state, help="a state"),
    "tenant": Qualifier(field="tenant", check=str, empty=True, help='a tenant; tenant:"" for none'),
    "error": Qualifier(field="error", check=str, several=False, help="part of the last error"),
    "failure": Qualifier(field="failure", check=_failure, help="the id of a failure"),
    "id": Qualifier(field="id", check=_id, help="the id of a task"),
    "key": Qualifier(field="idempotency_key", check=str, several=False, help="an idempotency key"),
    "root": Qualifier(field="root", check=_id, several=False, help="the first task of a chain or group"),
    "since": Qualifier(
        field="created_after", check=_age_or_instant, several=False, help="created within this age: 1h"
    ),
    "until": Qualifier(
        field="created_before", check=_age_or_instant, several=False, help="created before: 2d, 2026-01-31"
    ),
}


def parse_filter(text: str) -> Criteria:
    """Parse the text of the filter bar; raises InvalidFilter."""
    found: dict[str, tuple[str, ...]] = {}
    at, words = 0, 0
    while True:
        space = _SPACE.match(text, at)
        at = at if space is None else space.end()
        if at == len(text):
            return found
        word = _WORD.match(text, at)
        if word is None:
            raise _unreadable(text, at)
        if (words := words + 1) > MAX_WORDS:
            raise InvalidFilter(f"a filter has at most {MAX_WORDS} words", at, len(text))
        name, value = _meaning(word)
        try:
            found[name] = _added(found, name, value)
        except ValueError as error:
            raise InvalidFilter(str(error), word.start(), word.end()) from None
        at = word.end()


def checked_criteria(given: Mapping[str, Sequence[str]]) -> Criteria:
    """Check criteria that are parameters of a URL; raises InvalidFilter, which names the parameter."""
    found: dict[str, tuple[str, ...]] = {}
    for name, values in given.items():
        for value in values:
            try:
                found[name] = _added(found, name, value)
            except ValueError as error:
                raise InvalidFilter(f"{name}: {error}", 0, 0) from None
    return found


def merged(one: Criteria, other: Criteria) -> Criteria:
    """Return the criteria of both; of a qualifier that takes one value, that of the first."""
    values = {
        name: tuple(dict.fromkeys((*one.get(name, ()), *other.get(name, ()))))
        for name in QUALIFIERS
        if name in one or name in other
    }
    return {name: some if QUALIFIERS[name].several else some[:1] for name, some in values.items()}


def format_filter(criteria: Criteria) -> str:
    """Write criteria as the text of the filter bar."""
    return " ".join(f"{name}:{_quoted(value)}" for name, values in criteria.items() for value in values)


def api_filter(criteria: Criteria, now: datetime) -> dict[str, Any]:
    """Return criteria as fields of the API's filter."""
    found: dict[str, Any] = {}
    for name, values in criteria.items():
        qualifier = QUALIFIERS[name]
        if qualifier.check is _age_or_instant:
            read = _age_or_instant(values[0])
            found[qualifier.field] = read if isinstance(read, datetime) else _ago(now, read)
        else:
            found[qualifier.field] = [*values] if qualifier.several else values[0]
    return found


def _meaning(word: re.Match[str]) -> tuple[str, str]:
    """Return the qualifier and value of a word."""
    name, bare = word["name"], word["bare"]
    value = _ESCAPED.sub(r"\1", word["quoted"]) if bare is None else bare
    if name in QUALIFIERS:
        return name, value
    if name is not None:
        known = ", ".join(QUALIFIERS)
        raise InvalidFilter(
            f"there is no qualifier “{name}”; use {known}. To search for a type, write "
            f"type:{word[0] if bare else name + ':' + value}",
            word.start(),
            word.start() + len(name),
        )
    if bare and bare.endswith(":") and bare[:-1] in QUALIFIERS:
        raise _without_value(bare[:-1], word.start(), word.end())
    return ("id", value.lower()) if is_task_id(value.lower()) else ("type", value)


def _added(found: Criteria, name: str, value: str) -> tuple[str, ...]:
    qualifier, before = QUALIFIERS[name], found.get(name, ())
    if not value and not qualifier.empty:
        raise ValueError(f"write {name}: followed by {qualifier.help}")
    if "\x00" in value:
        raise ValueError("a value cannot contain NUL")
    if len(value) > MAX_VALUE:
        raise ValueError(f"a value has at most {MAX_VALUE} characters")
    qualifier.check(value)
    if before and not qualifier.several and before != (value,):
        raise ValueError(f"{name} can be given only once")
    return tuple(dict.fromkeys((*before, value)))


def _unreadable(text: str, at: int) -> InvalidFilter:
    rest = _NEXT_SPACE.match(text, at)
    end = len(text) if rest is None else rest.end()
    if text.count('"', at) % 2:
        return InvalidFilter("a quotation mark is missing at the end", text.rindex('"'), len(text))
    return InvalidFilter('quote a value with spaces or quotation marks: error:"timed out"', at, end)


def _without_value(name: str, start: int, end: int) -> InvalidFilter:
    return InvalidFilter(f"write {name}: followed by {QUALIFIERS[name].help}, without a space", start, end)


def _quoted(value: str) -> str:
    if _BARE.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _ago(now: datetime, age: timedelta) -> datetime:
    at = now - age
    return at - (at - EARLIEST) % _ROUNDED
