"""What people say of a limit, made exact. (F4, F5)"""

from difflib import get_close_matches
from typing import Any, TypedDict

from msgspec.structs import asdict

from ..._model.limit import COLUMNS, Limit
from ...errors import InvalidOption
from ..input.options import checked_name
from ..input.quoting import quoted
from .rates import parse_rate

_MAX_FIELD = 128


class LimitOptions(TypedDict, total=False):
    """A limit: which tasks, what they are counted by, and how many. None is the same as not naming it."""

    queue: str | None
    type: str | None
    tenant: str | None
    by: str | None
    running: int | None
    rate: float | str | None
    burst: int | None


def new_limit(name: str, options: LimitOptions) -> Limit:
    """The limit that the options describe."""
    checked_name(name, "limit")
    given = {key: value for key, value in options.items() if value is not None}
    known = tuple(LimitOptions.__annotations__)
    for key in given:
        if key not in known:
            close = get_close_matches(key, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"what can be set is {', '.join(known)}"
            raise InvalidOption(f"the limit {name!r} has no {quoted(key)}; {hint}")
    for key, value in given.items():
        _check(name, key, value)
    by, rate = options.get("by"), options.get("rate")
    if by in given:
        raise InvalidOption(
            f"the limit {name!r} is for one {by} already, so counting by {by} tells nothing apart; "
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
    """The limit with these options instead of what they were; None takes one away."""
    standing = asdict(limit)
    del standing["name"]
    if "rate" in options and options["rate"] is None and "burst" not in options:
        del standing["burst"]  # it has no meaning without the rate
    return new_limit(limit.name, LimitOptions(**{**standing, **options}))  # type: ignore[typeddict-item]


def _check(name: str, key: str, value: Any) -> None:
    """Refuse an option that is not of its kind; the limit itself knows how much is too much."""
    match key:
        case "queue" | "type":
            checked_name(value, key)
        case "tenant" if value != "":  # which is the tenant of tasks that have none
            checked_name(value, key)
        case "running" | "burst" if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidOption(f"the {key} of limit {name!r} is a whole number, not {quoted(value)}")
        case "by" if not isinstance(value, str) or not value.isidentifier() or len(value) > _MAX_FIELD:
            raise InvalidOption(
                f"the limit {name!r} is counted by {', '.join(COLUMNS)} or the name of a payload field, "
                f"not {quoted(value)}"
            )
        case _:
            pass


def check_field(limit: Limit, fields: frozenset[str] | None, secret: tuple[str, ...]) -> None:
    """Refuse a limit by a payload field that its type does not take (None: it takes any) or keeps secret."""
    if limit.by is None or limit.by in COLUMNS:
        return
    if fields is not None and limit.by not in fields:
        close = get_close_matches(limit.by, fields, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise InvalidOption(
            f"the limit {limit.name!r} counts by {limit.by!r}, but {limit.type} has no parameter of that "
            f"name{hint}"
        )
    if limit.by in secret:
        raise InvalidOption(
            f"the limit {limit.name!r} counts by {limit.by!r}, which is secret, and shows what it counts by; "
            f"count by a field that may be seen"
        )
