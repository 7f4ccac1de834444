"""Validate the options of limits; parse and format rates."""

import re
from collections.abc import Iterable
from math import isfinite
from typing import Any, Final, TypedDict

from msgspec.structs import asdict

from ..._model.limit import COLUMNS, HOST, Limit
from ..._model.options import DeclaredType
from ...errors import InvalidOption
from ..input.options import checked_name
from ..input.quote import quoted, suggestion
from ..secrets.fields import is_secret_field

_MAX_FIELD = 128
_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(?:/([smh]))?", re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class LimitOptions(TypedDict, total=False):
    """The options of a limit, as callers write them. None is the same as leaving one out."""

    queue: str | None
    type: str | None
    tenant: str | None
    by: str | None
    running: int | None
    rate: float | str | None
    burst: int | None


class LimitChanges(LimitOptions, total=False):
    """Options of a limit to change: those left out stay as they are, None removes one.

    `all`: the limit applies to all tasks; removes `queue`, `type` and `tenant`.
    """

    all: bool


_SCOPE: Final = ("queue", "type", "tenant")


def set_limit(stored: Limit | None, name: str, changes: LimitChanges) -> Limit:
    """Return the stored limit with these changes, or a new one if none is stored. Raises InvalidOption.

    A limit on tasks of any queue, type and tenant must be asked for, with `all`, unless it was one before.
    """
    options: Any = {key: value for key, value in changes.items() if key != "all"}
    everything = changes.get("all", False)
    if everything:
        if scope := next((key for key in _SCOPE if options.get(key) is not None), None):
            raise InvalidOption(
                f"limit {name!r}: all and {scope} contradict each other; leave out one of them"
            )
        options |= dict.fromkeys(_SCOPE)
    limit = new_limit(name, options) if stored is None else changed_limit(stored, options)
    if not everything and _is_of_all(limit) and not (stored is not None and _is_of_all(stored)):
        raise InvalidOption(
            f"limit {name!r} would apply to all tasks: give it a queue, type or tenant, or ask for that with "
            f"all=True (--all on the command line)"
        )
    return limit


def _is_of_all(limit: Limit) -> bool:
    return limit.queue is None and limit.type is None and limit.tenant is None


def new_limit(name: str, options: LimitOptions) -> Limit:
    """Return a validated limit. Raises InvalidOption."""
    checked_name(name, "limit")
    given = {key: value for key, value in options.items() if value is not None}
    known = tuple(LimitOptions.__annotations__)
    for key in given:
        if key not in known:
            hint = suggestion(key, known, f"the options are {', '.join(known)}")
            raise InvalidOption(f"unknown option {quoted(key)} of limit {name!r}{hint}")
    for key, value in given.items():
        _check(name, key, value)
    by, rate = options.get("by"), options.get("rate")
    if by is not None and by not in COLUMNS and is_secret_field(by.removesuffix(HOST)):
        raise _by_secret(name, by)
    if by in given:
        raise InvalidOption(
            f"limit {name!r} applies to a single {by}, so counting by {by} has no effect; "
            f"leave out by or {by}"
        )
    return Limit(
        name=name,
        queue=options.get("queue"),
        type=options.get("type"),
        tenant=options.get("tenant"),
        by=by,
        running=options.get("running"),
        rate=None if rate is None else parse_rate(rate),
        burst=options.get("burst"),
    )


def changed_limit(limit: Limit, options: LimitOptions) -> Limit:
    """Return the limit with these options changed; None removes one."""
    present = asdict(limit)
    del present["name"]
    if "rate" in options and options["rate"] is None and "burst" not in options:
        del present["burst"]  # A burst needs a rate.
    return new_limit(limit.name, LimitOptions(**{**present, **options}))  # type: ignore[typeddict-item]


def _check(name: str, key: str, value: Any) -> None:
    """Check the type of an option; `Limit` checks its range."""
    match key:
        case "queue" | "type":
            checked_name(value, key)
        case "tenant" if value != "":  # "" is the tenant of tasks that have none.
            checked_name(value, key)
        case "running" | "burst" if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidOption(f"{key} of limit {name!r} must be a whole number, got {quoted(value)}")
        case "by" if not _is_field(value):
            raise InvalidOption(
                f"by of limit {name!r} must be {', '.join(COLUMNS)}, the name of a payload field, or that "
                f"and {HOST}, got {quoted(value)}"
            )
        case _:
            pass


def _is_field(by: Any) -> bool:
    return isinstance(by, str) and by.removesuffix(HOST).isidentifier() and len(by) <= _MAX_FIELD


def check_field(limit: Limit, fields: frozenset[str] | None, secret: tuple[str, ...]) -> None:
    """Raise InvalidOption for a limit by a field that its type lacks (None: takes any) or keeps secret."""
    if limit.field is None:
        return
    if fields is not None and limit.field not in fields:
        raise InvalidOption(
            f"limit {limit.name!r} counts by {limit.field!r}, but {limit.type} has no such parameter"
            f"{suggestion(limit.field, fields)}"
        )
    if is_secret_field(limit.field, secret):
        raise _by_secret(limit.name, limit.field)


def _by_secret(name: str, by: str) -> InvalidOption:
    return InvalidOption(
        f"limit {name!r} counts by {by!r}, which is secret, and its values are shown to operators; count by "
        f"another field"
    )


def check_encrypted_field(limit: Limit, types: Iterable[DeclaredType]) -> None:
    """Raise InvalidOption for a limit by a field that one of these types encrypts: no values are equal."""
    for one in types:
        if one.encrypted and limit.type in (None, one.name, *one.aliases):
            check_field(limit, None, one.defaults.secret)


def parse_rate(value: float | str) -> float:
    """Parse a rate in starts a second: a number, or text such as "10/s", "100/m", "5/h"."""
    match value:
        case str() if found := _RATE.fullmatch(value):
            rate = float(found[1]) / _SECONDS[found[2] or "s"]
        case int() | float() if not isinstance(value, bool) and isfinite(value):
            rate = float(value)
        case _:
            rate = 0.0
    if rate <= 0:
        raise InvalidOption(
            f'rate must be greater than 0: a number of starts a second or text such as "10/s" or "100/m", '
            f"got {quoted(value)}"
        )
    return rate


def format_rate(rate: float) -> str:
    """Format a rate in the first unit that makes it a whole number, or else at least 1."""
    for unit, seconds in _SECONDS.items():
        whole = round(rate * seconds)
        if whole and abs(rate * seconds - whole) < whole * 1e-9:
            return f"{whole}/{unit}"
    unit, seconds = next(((u, s) for u, s in _SECONDS.items() if rate * s >= 1), ("h", _SECONDS["h"]))
    return f"{rate * seconds:.6g}/{unit}"
