"""Mask secret payload fields: those declared as secret, and those whose names suggest it."""

import json
import re
from collections.abc import Iterable
from typing import Any

MASK = "[secret]"
_ALWAYS = re.compile(
    r"passw(or)?d|passphrase|secret|token|api[_-]?key|authori[sz]ation|credential|private[_-]?key|cvv"
    r"|(?<![a-z])ssn|(?-i:SSN|Ssn)",  # but not className
    re.IGNORECASE,
)
_HOLE = "\0"  # occurs in no payload, so a value never matches the mask of another
_MIN_SCRUBBED = 3  # shorter values would turn ordinary text into masks


def redact(value: Any, secret: Iterable[str] = ()) -> Any:
    """Mask the secret fields of a value. `secret` are the declared ones: names or dotted paths."""
    return _redact(value, frozenset(secret), ())


def secret_values(value: Any, secret: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the masked values, longest first, to be scrubbed from errors and log lines."""
    found: set[str] = set()
    _collect(value, frozenset(secret), (), found, hidden=False)
    return longest_first(found)


def longest_first(*values: Iterable[str]) -> tuple[str, ...]:
    """Merge values to be scrubbed, in the order in which `scrub` needs them."""
    return tuple(sorted({one for some in values for one in some}, key=lambda text: (-len(text), text)))


def inherited(secret: tuple[str, ...], of: Iterable[str], into: str | None) -> tuple[str, ...]:
    """Return the secret fields of a task that takes a result of another as its parameter `into`, if it does.

    They are its own and those `of` the other; dotted paths of the other begin at the parameter, too.
    """
    if into is None:
        return secret
    others = tuple(of)
    below = (f"{into}.{path}" for path in others if "." in path)
    return tuple(dict.fromkeys((*secret, *others, *below)))


def scrub(text: str, values: Iterable[str]) -> str:
    """Mask every occurrence of these values, in the order of `secret_values`."""
    for value in values:
        text = text.replace(value, _HOLE)
    return text.replace(_HOLE, MASK)


def _is_secret(path: tuple[str, ...], secret: frozenset[str]) -> bool:
    name = path[-1]
    return name in secret or ".".join(path) in secret or _ALWAYS.search(name) is not None


def _redact(value: Any, secret: frozenset[str], path: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {
            key: MASK if _is_secret((*path, key), secret) else _redact(item, secret, (*path, key))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_redact(item, secret, path) for item in value]
    return value


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
