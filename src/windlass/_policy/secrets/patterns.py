"""Redaction patterns: regular expressions whose matches are masked wherever text is shown or logged.

Python's `re` backtracks and cannot be interrupted, so a pattern is accepted only if the steps that it takes
for each character of any text are bounded: a repeat needs an upper bound, unless nothing follows it.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from typing import Any

from ...errors import InvalidOption

PREFIX = "re:"
"""Marks a pattern among the names of secret fields."""

MAX_PATTERNS = 32
MAX_LENGTH = 190  # characters of a pattern
MAX_STEPS = 500  # of all patterns of an app together, for each character of a text
MAX_STEPS_AT_ONCE = 2 * MAX_STEPS  # of all that are searched in one text, as tasks bring patterns, too

_parser: Any = import_module("re._parser")
_NOTHING = 0  # follows: the match can no longer fail


def checked_patterns(patterns: Iterable[str], others: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Check redaction patterns, to be used with the others; return them as entries for `secret`.

    Raises InvalidOption.
    """
    found = tuple(patterns)
    all_of_them = {*others, *found}
    if len(all_of_them) > MAX_PATTERNS:
        raise InvalidOption(f"redact has {len(all_of_them)} patterns, at most {MAX_PATTERNS}")
    total = sum(_checked(one)[1] for one in all_of_them)
    if total > MAX_STEPS:
        raise InvalidOption(
            f"the patterns of redact take up to {total:,} steps for each character of a text, at most "
            f"{MAX_STEPS:,}; use fewer patterns, or lower the upper bounds of their repeats"
        )
    return tuple(f"{PREFIX}{one}" for one in found)


def patterns_of(secret: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns among entries of `secret`."""
    return tuple(one.removeprefix(PREFIX) for one in secret if compiled(one) is not None)


@lru_cache(maxsize=1024)
def compiled(entry: str) -> re.Pattern[str] | None:
    """Compile an entry of `secret`; None if it is a name, or a pattern that would be refused."""
    found = _measured(entry)
    return None if found is None else found[0]


@lru_cache(maxsize=1024)
def compiled_together(entries: tuple[str, ...]) -> tuple[re.Pattern[str], ...] | None:
    """Compile the patterns among entries; None if together they take too many steps to be searched."""
    found = [one for entry in entries if (one := _measured(entry)) is not None]
    if sum(steps for _, steps in found) > MAX_STEPS_AT_ONCE:
        return None
    return tuple(pattern for pattern, _ in found)


def _measured(entry: str) -> tuple[re.Pattern[str], int] | None:
    if not entry.startswith(PREFIX):
        return None
    try:
        return _checked(entry.removeprefix(PREFIX))
    except InvalidOption:
        return None


def _checked(pattern: object) -> tuple[re.Pattern[str], int]:
    """Compile a pattern and count its steps; raises InvalidOption."""
    if not isinstance(pattern, str) or not 1 <= len(pattern) <= MAX_LENGTH:
        raise InvalidOption(f"a redaction pattern must be text of 1 to {MAX_LENGTH} characters")
    try:
        tree = _parser.parse(pattern)
        steps = _steps_of_all(tree, _NOTHING)
        shortest, _ = tree.getwidth()
        made = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidOption(
            f"the redaction pattern {pattern!r} is not a regular expression: {error}"
        ) from None
    except _Unbounded as error:
        raise InvalidOption(f"the redaction pattern {pattern!r} {error}") from None
    if shortest == 0:
        raise InvalidOption(f"the redaction pattern {pattern!r} matches the empty text")
    return made, steps


class _Unbounded(Exception):
    """The steps of a pattern cannot be bounded, or are too many; says why."""


def _steps_of_all(nodes: Any, after: int) -> int:
    """Return how often nodes that follow each other are tried at one position; `after` is what follows."""
    for operation, argument in reversed(list(nodes)):
        after = _steps(str(operation), argument, after)
        if after > MAX_STEPS:
            raise _Unbounded(
                f"can take more than {MAX_STEPS:,} steps for each character of a text; lower the upper "
                f"bounds of its repeats, or repeat no group"
            )
    return after


def _steps(operation: str, argument: Any, after: int) -> int:
    match operation:
        case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN" | "AT":
            return 1 + after
        case "SUBPATTERN":
            return _steps_of_all(argument[3], after)
        case "ATOMIC_GROUP":
            return _steps_of_all(argument, after)
        case "BRANCH":
            return sum(_steps_of_all(one, after) for one in argument[1]) + 1
        case "ASSERT" | "ASSERT_NOT":  # looks at text that the match does not consume
            return _steps_of_all(argument[1], 1) + after
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, most, body = argument
            return _steps_of_repeat(least, most, body, after)
        case _:
            raise _Unbounded("refers to what a group has matched, which can take unbounded time")


def _steps_of_repeat(least: int, most: int, body: Any, after: int) -> int:
    if _is_character(body) and after == _NOTHING:
        return least + 1  # the rest belongs to the match and is not looked at again
    if most == _parser.MAXREPEAT:
        raise _Unbounded(
            "repeats without an upper bound before its end, which can take unbounded time; use {1,64} in "
            "place of +, and {0,64} in place of *"
        )
    if _is_character(body):
        return int(most + (most - least + 1) * after)
    steps = after
    for number in range(min(most, MAX_STEPS + 1) - 1, -1, -1):
        steps = _steps_of_all(body, steps) + (after if number >= least else 0)
    return steps


def _is_character(body: Any) -> bool:
    return len(body) == 1 and str(body[0][0]) in {"LITERAL", "NOT_LITERAL", "ANY", "IN"}
