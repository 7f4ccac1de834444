"""Parsers of option values. A wrong value is a usage error before any store is opened.

Each function is a click type; the help shows its name in capitals.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

import click

from .._model.task import is_task_id
from .._policy.input import options
from .._policy.input.new_task import NOW
from .._policy.input.quote import quoted
from .._policy.order.limit_options import parse_rate
from .._policy.order.window_options import format_window, parse_window
from .._policy.quota import parse_size
from ..errors import InvalidOption

F = TypeVar("F", bound=Callable[..., Any])

MAX_LISTED = 10_000
STRICT = "strict"
ALWAYS = "always"

MIN_PREFIX = 8

_ID_LENGTH = 36
_ID_PREFIX = re.compile(rf"[0-9a-f-]{{{MIN_PREFIX},{_ID_LENGTH}}}", re.ASCII)
_NUMBER = re.compile(r"\d{1,12}(\.\d{1,6})?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d{1,9}", re.ASCII)
_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(?:/([smh]))?", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def task_id(value: str) -> str:
    """A task id, in lower case."""
    if not is_task_id(value.lower()):
        raise click.BadParameter(
            f"{quoted(value)} is not a task id such as 0198c0de-0000-7000-8000-00000000abcd; "
            f"`windlass tasks list` shows them"
        )
    return value.lower()


def task_id_or_prefix(value: str) -> str:
    """A task id, or the first characters of one, in lower case; see task_ids.py."""
    text = value.lower()
    if not _ID_PREFIX.fullmatch(text) or (len(text) == _ID_LENGTH and not is_task_id(text)):
        raise click.BadParameter(
            f"{quoted(value)} is not a task id such as 0198c0de-0000-7000-8000-00000000abcd, nor the first "
            f"{MIN_PREFIX} or more characters of one; `windlass tasks list` shows them"
        )
    return text


task_id_or_prefix.__name__ = "id"


def duration(value: str) -> timedelta:
    """A number of seconds, or text such as 5m or 1h30m."""
    try:
        return options.parse_duration(float(value) if _NUMBER.fullmatch(value) else value, "duration")
    except InvalidOption:
        raise click.BadParameter(
            f"{quoted(value)} is not a duration: a number of seconds, or text such as 5m or 1h30m, "
            f"up to ten years"
        ) from None


def option_text(value: timedelta) -> str:
    """A duration as one writes it in an option: "30s", "5m"."""
    seconds = value.total_seconds()
    return f"{seconds / 60:g}m" if seconds >= 60 and seconds % 60 == 0 else f"{seconds:g}s"


def ageing(value: str) -> timedelta | str:
    """A duration, or "strict" for none."""
    return STRICT if value == STRICT else duration(value)


def window(value: str) -> str:
    """A window such as "mon-fri 22:00-06:00 Europe/Berlin", or "always" for none."""
    try:
        return ALWAYS if value == ALWAYS else format_window(parse_window(value))
    except InvalidOption as error:
        raise click.BadParameter(str(error)) from None


def instant(value: str) -> datetime:
    """An instant in ISO 8601 with a time zone."""
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise click.BadParameter(
            f"{quoted(value)} is not an instant such as 2026-11-15T08:00:00Z or 2026-11-15T08:00+01:00"
        ) from None
    if found.utcoffset() is None:
        raise click.BadParameter(
            f"{quoted(value)} has no time zone; end it with Z for UTC or with an offset such as +01:00"
        )
    try:
        return options.checked_instant(found, "instant")
    except InvalidOption as error:
        raise click.BadParameter(str(error)) from None


def run_at(value: str) -> datetime | str:
    """An instant, or "now"."""
    return NOW if value == NOW else instant(value)


def expiry(value: str) -> datetime | timedelta:
    """A duration, or an instant."""
    try:
        return options.parse_duration(value, "expires")
    except InvalidOption:
        return instant(value)


def when(value: str) -> datetime:
    """An instant, or a duration before now: 2h."""
    try:
        return datetime.now(UTC) - options.parse_duration(value, "age")
    except InvalidOption:
        return instant(value)


def rate(value: str) -> float:
    """Tasks per second, from 5/s, 300/m or 100/h."""
    found = _RATE.fullmatch(value)
    if found is None or float(found[1]) == 0:
        raise click.BadParameter(f"{quoted(value)} is not a rate such as 5/s, 300/m or 100/h")
    return float(found[1]) / _SECONDS[found[2] or "s"]


def size(value: str) -> int:
    """A number of bytes, from 4096, 500KB, 2MB or 1MiB."""
    try:
        return parse_size(value)
    except InvalidOption:
        message = f"{quoted(value)} is not a size such as 4096, 500KB, 2MB or 1MiB"
        raise click.BadParameter(message) from None


def start_rate(value: str) -> float:
    """Starts per second, from 10/s, 100/m or 5/h."""
    try:
        return parse_rate(value)
    except InvalidOption as error:
        raise click.BadParameter(str(error)) from None


def name_and_number(value: str) -> tuple[str, int | None]:
    """NAME=N, or NAME=default, which gives None."""
    key, found, number = value.rpartition("=")
    if not found or (number != "default" and not _WHOLE.fullmatch(number)):
        raise click.BadParameter(f"{quoted(value)} is not of the form NAME=3 or NAME=default")
    return key, None if number == "default" else int(number)


def priority(value: str) -> int | str:
    """A whole number as int, a name such as "high" as text; the app checks both."""
    return int(value) if _WHOLE.fullmatch(value) else value


def number_option(
    *names: str, least: int = 1, most: int, default: int | None = None, **attributes: Any
) -> Callable[[F], F]:
    """An option whose value is a whole number from `least` to `most`."""
    number, shown = click.IntRange(least, most), default is not None
    return click.option(*names, type=number, default=default, show_default=shown, metavar="N", **attributes)


def choice_option(
    *names: str,
    of: type[StrEnum],
    only: Sequence[StrEnum] | None = None,
    default: StrEnum | None = None,
    **attributes: Any,
) -> Callable[[F], F]:
    """An option whose value is one of an enum's, or of `only` these of them, as text."""
    choice, shown = click.Choice([one.value for one in (only or of)]), default is not None
    return click.option(
        *names, type=choice, default=default and str(default), show_default=shown, **attributes
    )


def stacked(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """Combine decorators into one, the first on top."""

    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate
