"""What must not be seen: secret payload fields, by name and by declaration. (L5)"""

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
_HOLE = "\0"  # in no payload, so that a value never matches what masking another one left behind
_MIN_SCRUBBED = 3  # shorter values would turn ordinary text into masks


def redact(value: Any, secret: Iterable[str] = ()) -> Any:
    """The value with secret fields masked: those declared (a name or a dotted path) or tellingly named."""
    return _redact(value, frozenset(secret), ())


def secret_values(value: Any, secret: Iterable[str] = ()) -> tuple[str, ...]:
    """The texts behind the masks, longest first: what must not turn up in an error or a log line."""
    found: set[str] = set()
    _collect(value, frozenset(secret), (), found, hidden=False)
    return tuple(sorted(found, key=lambda text: (-len(text), text)))


def scrub(text: str, values: Iterable[str]) -> str:
    """The text with every one of these values masked; as `secret_values` gives them, longest first."""
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
    """The text, and how a message that quotes it as repr or as JSON would spell it."""
    return text, *(q[1:-1] for q in (repr(text), json.dumps(text), json.dumps(text, ensure_ascii=False)))
