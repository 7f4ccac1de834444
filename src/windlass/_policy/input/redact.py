"""Mask secrets: fields that are declared, fields whose names suggest it, and what patterns match."""

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from .patterns import PREFIX, compiled

MASK = "[secret]"
_ALWAYS = re.compile(
    r"passw(or)?d|passphrase|secret|token|api[_-]?key|authori[sz]ation|credential|private[_-]?key|cvv"
    r"|(?<![a-z])ssn|(?-i:SSN|Ssn)",  # but not className
    re.IGNORECASE,
)
_HOLE = "\0"  # occurs in no payload, so a value never matches the mask of another
_PATTERN = "\0"  # begins a pattern among values to be scrubbed
_MAX_SCANNED = 100_000  # characters of a text that are searched for patterns; a longer one is masked whole
_MIN_SCRUBBED = 3  # shorter values would turn ordinary text into masks


def redact(value: Any, secret: Iterable[str] = ()) -> Any:
    """Mask the secrets of a JSON value.

    `secret` are the declared fields, as names or dotted paths, and the patterns of `checked_patterns`.
    """
    names, patterns = _split(tuple(secret))
    return _redact(value, names, patterns, ())


def secret_values(value: Any, secret: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the masked values, longest first, and the patterns, to be scrubbed from errors and log lines."""
    names, patterns = _split(tuple(secret))
    found = set(patterns)
    _collect(value, names, (), found, hidden=False)
    return longest_first(found)


def longest_first(*values: Iterable[str]) -> tuple[str, ...]:
    """Merge values to be scrubbed, in the order in which `scrub` needs them: patterns last."""
    all_of_them = {one for some in values for one in some}
    return tuple(sorted(all_of_them, key=lambda text: (is_pattern(text), -len(text), text)))


def inherited(secret: tuple[str, ...], of: Iterable[str], into: str | None) -> tuple[str, ...]:
    """Return the secret fields of a task that takes a result of another as its parameter `into`, if it does.

    They are its own and those `of` the other; dotted paths of the other begin at the parameter, too.
    """
    if into is None:
        return secret
    others = tuple(of)
    below = (f"{into}.{path}" for path in others if "." in path and not path.startswith(PREFIX))
    return tuple(dict.fromkeys((*secret, *others, *below)))


def scrub(text: str, values: Iterable[str]) -> str:
    """Mask every occurrence of these values, in the order of `secret_values`."""
    for value in values:
        text = _without_matches(text, value) if is_pattern(value) else text.replace(value, _HOLE)
    return text.replace(_HOLE, MASK)


def is_pattern(value: str) -> bool:
    """Whether one of the values to be scrubbed is a pattern."""
    return value.startswith(_PATTERN)


def _without_matches(text: str, value: str) -> str:
    if len(text) > _MAX_SCANNED:
        return _HOLE
    pattern = compiled(PREFIX + value.removeprefix(_PATTERN))
    return text if pattern is None else pattern.sub(_HOLE, text.replace(MASK, _HOLE))


@lru_cache(maxsize=1024)
def _split(secret: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the names of secret fields, and the patterns as `scrub` takes them."""
    patterns = [one for one in secret if compiled(one) is not None]
    names = frozenset(secret).difference(patterns)
    return names, tuple(_PATTERN + one.removeprefix(PREFIX) for one in patterns)


def _is_secret(path: tuple[str, ...], secret: frozenset[str]) -> bool:
    name = path[-1]
    return name in secret or ".".join(path) in secret or _ALWAYS.search(name) is not None


def _redact(value: Any, secret: frozenset[str], patterns: tuple[str, ...], path: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {
            scrub(key, patterns) if patterns else key: MASK
            if _is_secret((*path, key), secret)
            else _redact(item, secret, patterns, (*path, key))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_redact(item, secret, patterns, path) for item in value]
    return _without_patterns(value, patterns) if patterns else value


def _without_patterns(value: Any, patterns: tuple[str, ...]) -> Any:
    """Mask matches in a text; a number in which there is one is masked whole."""
    if isinstance(value, str):
        return scrub(value, patterns)
    if isinstance(value, bool) or value is None:
        return value
    return value if scrub(str(value), patterns) == str(value) else MASK


def _collect(
    value: Any, secret: frozenset[str], path: tuple[str, ...], found: set[str], *, hidden: bool
) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            below = (*path, key)
            _collect(item, secret, below, found, hidden=hidden or _is_secret(below, secret))
    elif isinstance(value, list):
        for item in value:
            _collect(item, secret, path, found, hidden=hidden)
    elif hidden and not isinstance(value, bool) and value is not None and len(str(value)) >= _MIN_SCRUBBED:
        found.update(_spellings(str(value)))


def _spellings(text: str) -> tuple[str, ...]:
    """Return the text, and how repr and JSON would quote it."""
    return text, *(q[1:-1] for q in (repr(text), json.dumps(text), json.dumps(text, ensure_ascii=False)))
