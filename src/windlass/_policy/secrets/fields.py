"""Which fields are secret: those that a type or caller declares, and those whose names suggest it."""

import re
from collections.abc import Iterable
from functools import lru_cache

from .patterns import PREFIX

MASK = "[secret]"
"""What is shown in place of a secret."""

_ALWAYS = re.compile(
    r"passw(or)?d|passphrase|secret|token|api[_-]?key|authori[sz]ation|credential|private[_-]?key|cvv"
    r"|(?<![a-z])ssn|(?-i:SSN|Ssn)",  # but not className
    re.IGNORECASE,
)
_MAX_REMEMBERED = 64  # characters of names of fields that are looked up, not searched again

WHOLE = ""
"""In place of a path: all of a task's result is secret."""

MAX_SECRET = 100
"""Secret fields that a caller can name, and that a task takes over from another."""

MAX_SECRET_NAME = 512
"""Characters of the name, path or pattern of a secret."""


def inherited(secret: tuple[str, ...], of: Iterable[str], into: str | None) -> tuple[str, ...]:
    """Return the secret fields of a task that takes a result of another as its parameter `into`, if it does.

    They are its own and those `of` the other; dotted paths of the other begin at the parameter, too.
    """
    if into is None:
        return secret
    others = tuple(of)
    below = (f"{into}.{path}" for path in others if "." in path and not path.startswith(PREFIX))
    whole = (into,) if WHOLE in others else ()
    found = merged(secret, (name for name in others if name), below, whole)
    if len(found) <= MAX_SECRET and all(len(name) <= MAX_SECRET_NAME for name in found):
        return found
    return merged(secret, (into,), (pattern for pattern in others if pattern.startswith(PREFIX)))


def is_secret_name(text: str) -> bool:
    """Whether this can be the name or path of a secret field: printable, not too long, and no pattern."""
    return 0 < len(text) <= MAX_SECRET_NAME and text.isprintable() and not text.startswith(PREFIX)


def is_secret_field(name: str, secret: Iterable[str] = ()) -> bool:
    """Whether a field of a payload is secret, or has something secret in it: as declared, or by its name."""
    return _tells(name) or any(one.partition(".")[0] == name for one in secret)


def merged(*secret: Iterable[str]) -> tuple[str, ...]:
    """Return all of these names of secret fields, and patterns, each once."""
    return tuple(dict.fromkeys(name for names in secret for name in names))


def is_secret_path(path: tuple[str, ...], secret: frozenset[str]) -> bool:
    """Whether the field at this path is secret: declared by name or path, or by what its name suggests."""
    name = path[-1]
    return _tells(name) or (bool(secret) and (name in secret or ".".join(path) in secret))


def _tells(name: str) -> bool:
    """Whether the name of a field suggests that it is secret."""
    return _remembered(name) if len(name) <= _MAX_REMEMBERED else _suggests(name)


def _suggests(name: str) -> bool:
    return _ALWAYS.search(name) is not None


_remembered = lru_cache(maxsize=4096)(_suggests)
