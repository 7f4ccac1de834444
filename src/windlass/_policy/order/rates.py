"""Rates as people write them: so many starts in a second, a minute or an hour."""

import re
from math import isfinite

from ...errors import InvalidOption
from ..input.quoting import quoted

_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(?:/([smh]))?", re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def parse_rate(value: float | str) -> float:
    """Starts a second, from a number of them or text such as "10/s", "100/m", "5/h"."""
    match value:
        case str() if found := _RATE.fullmatch(value):
            rate = float(found[1]) / _SECONDS[found[2] or "s"]
        case int() | float() if not isinstance(value, bool) and isfinite(value):
            rate = float(value)
        case _:
            rate = 0.0
    if rate <= 0:
        raise InvalidOption(
            f'a rate is more than 0 starts a second, or text like "10/s", "100/m", "5/h", not {quoted(value)}'
        )
    return rate


def format_rate(rate: float) -> str:
    """A rate in the unit in which it is a whole number, or else in the first in which it is one or more."""
    for unit, seconds in _SECONDS.items():
        whole = round(rate * seconds)
        if whole and abs(rate * seconds - whole) < whole * 1e-9:
            return f"{whole}/{unit}"
    unit, seconds = next(((u, s) for u, s in _SECONDS.items() if rate * s >= 1), ("h", _SECONDS["h"]))
    return f"{rate * seconds:.6g}/{unit}"
