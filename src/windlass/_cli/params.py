"""What an option's text means: ids, durations, instants, rates. Wrong ones are refused before anything is opened."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click

from .._policy.options import duration, instant
from .._policy.shown import shown
from ..errors import InvalidOption

F = TypeVar("F", bound=Callable[..., Any])

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,12}(\.\d{1,6})?", re.ASCII)
_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(?:/([smh]))?", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600}
MOST = 10_000


class IdType(click.ParamType):
    """A task's id."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The id in its usual spelling."""
        if not isinstance(value, str) or not _ID.fullmatch(value.lower()):
            raise InvalidOption(
                f"{shown(value)} is not a task id; ids look like 0198c0de-0000-7000-8000-00000000abcd, "
                f"and `windlass tasks list` shows them"
            )
        return value.lower()


class DurationType(click.ParamType):
    """A duration: a number of seconds, or text like 5m or 1h30m."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """The duration."""
        what = param.name.replace("_", " ") if param is not None and param.name else self.name
        return duration(float(value) if _is_number(value) else value, what)


class InstantType(click.ParamType):
    """An instant in ISO 8601, with its time zone."""

    name = "instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """The instant in UTC."""
        what = param.name.replace("_", " ") if param is not None and param.name else self.name
        return _instant(value, what)


class MomentType(click.ParamType):
    """An instant in the past: ISO 8601 with its time zone, or how long ago (2h)."""

    name = "when"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """The instant in UTC."""
        what = param.name.replace("_", " ") if param is not None and param.name else self.name
        try:
            return datetime.now(UTC) - duration(value, what)
        except InvalidOption:
            return _instant(value, what)


class RateType(click.ParamType):
    """Tasks in a time: 5/s, 300/m, 100/h."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Tasks a second."""
        found = _RATE.fullmatch(value) if isinstance(value, str) else None
        if found is None or float(found[1]) == 0:
            raise InvalidOption(f"a rate is a number of tasks in a time, as in 5/s or 300/m, not {shown(value)}")
        return float(found[1]) / _SECONDS[found[2] or "s"]


class PriorityType(click.ParamType):
    """An integer, higher first, or one of high, medium, low."""

    name = "priority"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """A whole number as one; anything else is for the core to judge."""
        is_whole = isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,9}", value, re.ASCII)
        return int(value) if is_whole else value


ID = IdType()
DURATION = DurationType()
INSTANT = InstantType()
MOMENT = MomentType()
RATE = RateType()
PRIORITY = PriorityType()
LIMIT = click.IntRange(1, MOST)


def stacked(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """Several decorators as one, the first on top."""

    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def _is_number(value: object) -> bool:
    return isinstance(value, str) and _NUMBER.fullmatch(value) is not None


def _instant(value: Any, what: str) -> datetime:
    try:
        found = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise InvalidOption(
            f"{what} is an instant such as 2026-11-15T08:00:00Z or 2026-11-15T08:00+01:00, not {shown(value)}"
        ) from None
    if found.utcoffset() is None:
        raise InvalidOption(
            f"{what} {value} is naive: nobody can know which instant it means; "
            f"end it with Z for UTC, or with an offset such as +01:00"
        )
    return instant(found, what)
