"""What an option's text means. Wrong ones are refused before anything is opened.

Each function is a click type: its name is what the help shows.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click

from .._model.task import is_task_id
from .._policy.input import options
from .._policy.input.quoting import quoted
from .._policy.order import rates
from ..errors import InvalidOption

F = TypeVar("F", bound=Callable[..., Any])

MOST = 10_000
LIMIT = click.IntRange(1, MOST)
STRICT = "strict"

_NUMBER = re.compile(r"\d{1,12}(\.\d{1,6})?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d{1,9}", re.ASCII)
_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(?:/([smh]))?", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def task_id(value: str) -> str:
    """A task's id in its usual spelling."""
    if not is_task_id(value.lower()):
        raise click.BadParameter(
            f"{quoted(value)} is not a task id; they look like 0198c0de-0000-7000-8000-00000000abcd, "
            f"and `windlass tasks list` shows them"
        )
    return value.lower()


def duration(value: str) -> timedelta:
    """A number of seconds, or text like 5m or 1h30m."""
    try:
        return options.parse_duration(float(value) if _NUMBER.fullmatch(value) else value, "duration")
    except InvalidOption:
        raise click.BadParameter(
            f"a duration is a count of seconds or text like 5m or 1h30m, up to ten years, not {quoted(value)}"
        ) from None


def ageing(value: str) -> timedelta | str:
    """A duration, or the word for none."""
    return STRICT if value == STRICT else duration(value)


def instant(value: str) -> datetime:
    """An instant in ISO 8601, with its time zone."""
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            f"{quoted(value)} is not an instant such as 2026-11-15T08:00:00Z or 2026-11-15T08:00+01:00"
        ) from None
    if found.utcoffset() is None:
        raise click.BadParameter(
            f"{quoted(value)} is naive: nobody can know which instant it means; "
            f"end it with Z for UTC, or with an offset such as +01:00"
        )
    try:
        return options.checked_instant(found, "instant")
    except InvalidOption as error:
        raise click.BadParameter(str(error)) from None


def when(value: str) -> datetime:
    """An instant, or how long ago: 2h."""
    try:
        return datetime.now(UTC) - options.parse_duration(value, "age")
    except InvalidOption:
        return instant(value)


def rate(value: str) -> float:
    """Tasks a second, from 5/s, 300/m or 100/h."""
    found = _RATE.fullmatch(value)
    if found is None or float(found[1]) == 0:
        raise click.BadParameter(
            f"a rate is so many tasks in a time, as in 5/s or 300/m, not {quoted(value)}"
        )
    return float(found[1]) / _SECONDS[found[2] or "s"]


def start_rate(value: str) -> float:
    """Starts a second, from 10/s, 100/m or 5/h."""
    try:
        return rates.parse_rate(value)
    except InvalidOption as error:
        raise click.BadParameter(str(error)) from None


def numbered(value: str) -> tuple[str, int | None]:
    """NAME=N; NAME=default takes it away."""
    key, found, number = value.rpartition("=")
    if not found or (number != "default" and not _WHOLE.fullmatch(number)):
        raise click.BadParameter(f"{quoted(value)} is not like NAME=3 or NAME=default")
    return key, None if number == "default" else int(number)


def priority(value: str) -> int | str:
    """A whole number as one; anything else is for the core to judge."""
    return int(value) if _WHOLE.fullmatch(value) else value


def stacked(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """Several decorators as one, the first on top."""

    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate
