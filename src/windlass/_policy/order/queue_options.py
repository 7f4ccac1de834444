"""What people say of a queue, made exact: fairness, weights, shares, ageing, retention, stripes. (F2, F3)"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal, TypeAlias, TypedDict

from msgspec.structs import replace

from ..._model.queue import Fairness, Level, Ordering, QueueSettings, Retention
from ...errors import InvalidOption
from ..input.options import checked_name, parse_duration
from ..input.quoting import quoted

FairnessName: TypeAlias = Literal["fifo", "round_robin", "random"]
LevelName: TypeAlias = Literal["high", "medium", "low"]

_FAIR = ", ".join(Fairness)
_LEVELS = ", ".join(Level)


class QueueChanges(TypedDict, total=False):
    """What is to become of a queue's settings: only what is named changes, and None is the default.

    Of `weights` and `shares` only the tenants and levels that are named change, and None takes one away.
    """

    fairness: Fairness | FairnessName | None
    weights: Mapping[str, int | None] | None
    shares: Mapping[Level | LevelName, int | None] | None
    ageing: timedelta | float | str | None
    retention: Retention | None
    stripes: int | None


def changed_queue(settings: QueueSettings, changes: QueueChanges) -> QueueSettings:
    """The settings with these changes. A queue that is no longer round_robin has no weights any more."""
    unknown = sorted(set(changes) - set(QueueChanges.__annotations__))
    if unknown:
        known = ", ".join(QueueChanges.__annotations__)
        raise InvalidOption(f"a queue has no {quoted(unknown[0])}; what can be set is {known}")
    fairness = parse_fairness(changes.get("fairness", settings.fairness))
    held = settings.weights if fairness is Fairness.ROUND_ROBIN else {}
    return replace(
        settings,
        fairness=fairness,
        weights=_merged(held, changes, "weights"),
        ordering=_ordering(settings.ordering, changes),
        retention=checked_retention(changes.get("retention", settings.retention)),
        stripes=_stripes(changes.get("stripes", settings.stripes)),
    )


def _stripes(value: int | None) -> int:
    return 1 if value is None else value


def parse_fairness(value: str | None) -> Fairness:
    """A fairness from itself or its name; None is the default."""
    try:
        return Fairness.FIFO if value is None else Fairness(value)
    except ValueError:
        raise InvalidOption(f"a queue's fairness is one of {_FAIR}, not {quoted(value)}") from None


def parse_level(value: str) -> Level:
    """A level of priority from itself or its name."""
    try:
        return Level(value)
    except ValueError:
        raise InvalidOption(f"a level of priority is one of {_LEVELS}, not {quoted(value)}") from None


def checked_retention(value: Retention | None) -> Retention | None:
    """A retention; None leaves it to the app."""
    if value is not None and not isinstance(value, Retention):
        raise InvalidOption(f"a queue's retention is a Retention, not {quoted(value)}")
    return value


def _ordering(ordering: Ordering, changes: QueueChanges) -> Ordering:
    ageing = changes.get("ageing", ordering.ageing)
    shares = _merged(ordering.shares, changes, "shares")
    if ageing is not None:
        ageing = parse_duration(ageing, "queue's ageing")
        if not ageing:
            raise InvalidOption("ageing is how much waiting a level is worth, and more than nothing")
    return Ordering(ageing=ageing, shares={parse_level(level): share for level, share in shares.items()})


def _merged(
    standing: Mapping[Any, int], changes: QueueChanges, key: Literal["weights", "shares"]
) -> dict[Any, int]:
    """The standing numbers and over them the given ones; a None there takes one away, a None for all, all."""
    given: Any = changes.get(key, {})
    if given is None:
        return {}
    what = "tenant" if key == "weights" else "level of priority"
    if not isinstance(given, Mapping):
        raise InvalidOption(f"{key} are a number for each {what}, not {quoted(given)}")
    for one, number in given.items():
        if one != "" or key == "shares":  # "" is the tenant of tasks that have none
            checked_name(one, what)
        if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
            raise InvalidOption(f"the {key[:-1]} of {quoted(one)} is a whole number, not {quoted(number)}")
    merged = {**standing, **given}
    return {one: number for one, number in merged.items() if number is not None}
