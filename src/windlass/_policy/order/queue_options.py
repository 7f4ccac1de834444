"""Validate the options of queues: fairness, weights, shares, ageing, retention, stripes, windows."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal, TypeAlias, TypedDict

from msgspec.structs import replace

from ..._model.queue import MAX_AGEING, Fairness, Level, Ordering, QueueSettings, Retention, Window
from ...errors import InvalidOption
from ..input.options import checked_name, parse_choice, parse_duration
from ..input.quote import quoted
from .window_options import parse_windows

FairnessName: TypeAlias = Literal["fifo", "round_robin", "random"]
LevelName: TypeAlias = Literal["high", "medium", "low"]


class QueueChanges(TypedDict, total=False):
    """Changes to a queue's settings: options left out stay as they are, None restores the default.

    In `weights` and `shares`, only the tenants and levels that are named change, and None removes one.
    """

    fairness: Fairness | FairnessName | None
    weights: Mapping[str, int | None] | None
    shares: Mapping[Level | LevelName, int | None] | None
    ageing: timedelta | float | str | None
    retention: Retention | None
    stripes: int | None
    windows: str | Window | Iterable[str | Window] | None


def changed_queue(settings: QueueSettings, changes: QueueChanges) -> QueueSettings:
    """Return the settings with these changes. Weights are dropped when fairness is not round_robin."""
    unknown = sorted(set(changes) - set(QueueChanges.__annotations__))
    if unknown:
        known = ", ".join(QueueChanges.__annotations__)
        raise InvalidOption(f"unknown queue option {quoted(unknown[0])}; the options are {known}")
    given = changes.get("fairness", settings.fairness)
    fairness = Fairness.FIFO if given is None else parse_choice(Fairness, given, "fairness")
    retention = changes.get("retention", settings.retention)
    if retention is not None and not isinstance(retention, Retention):
        raise InvalidOption(f"retention must be a Retention, got {quoted(retention)}")
    stripes = changes.get("stripes", settings.stripes)
    held = settings.weights if fairness is Fairness.ROUND_ROBIN else {}
    return replace(
        settings,
        fairness=fairness,
        weights=_merged(held, changes, "weights"),
        ordering=_ordering(settings.ordering, changes),
        retention=retention,
        stripes=1 if stripes is None else stripes,
        windows=parse_windows(changes.get("windows", settings.windows)),
    )


def _ordering(ordering: Ordering, changes: QueueChanges) -> Ordering:
    ageing = changes.get("ageing", ordering.ageing)
    shares = _merged(ordering.shares, changes, "shares")
    if ageing is not None:
        ageing = parse_duration(ageing, "ageing")
        if not ageing:
            raise InvalidOption("ageing must be greater than 0; use None for strict priority")
        if ageing > MAX_AGEING:
            raise InvalidOption(
                f"ageing must be at most {MAX_AGEING.days} days; use None for strict priority"
            )
    levels = {parse_choice(Level, level, "a level"): share for level, share in shares.items()}
    return Ordering(ageing=ageing, shares=levels)


def _merged(
    present: Mapping[Any, int], changes: QueueChanges, key: Literal["weights", "shares"]
) -> dict[Any, int]:
    """Merge changes into the present numbers; None removes one entry or, in place of the mapping, all."""
    given: Any = changes.get(key, {})
    if given is None:
        return {}
    what = "tenant" if key == "weights" else "level of priority"
    if not isinstance(given, Mapping):
        raise InvalidOption(f"{key} must map each {what} to a number, got {quoted(given)}")
    for one, number in given.items():
        if one != "" or key == "shares":  # "" is the tenant of tasks that have none.
            checked_name(one, what)
        if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
            raise InvalidOption(
                f"the {key[:-1]} of {quoted(one)} must be a whole number, got {quoted(number)}"
            )
    merged = {**present, **given}
    return {one: number for one, number in merged.items() if number is not None}
