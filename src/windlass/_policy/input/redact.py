"""Mask secrets: fields that are declared, fields whose names suggest it, and what patterns match.

Fields are masked by name; their values are masked wherever they occur in other texts of the task.
"""

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec
from msgspec import Struct

from .patterns import PREFIX, compiled, compiled_together

MASK = "[secret]"
_ALWAYS = re.compile(
    r"passw(or)?d|passphrase|secret|token|api[_-]?key|authori[sz]ation|credential|private[_-]?key|cvv"
    r"|(?<![a-z])ssn|(?-i:SSN|Ssn)",  # but not className
    re.IGNORECASE,
)
_HOLE = "\0"  # occurs in no payload, so a value never matches the mask of another
_PATTERN = "\0"  # begins a pattern among values to be scrubbed
_MAX_SCANNED = 100_000  # characters of texts that are searched for patterns; what is longer is masked whole
_SEAM = "\udfff"  # occurs in no decoded JSON, so no value matches across two texts
_MIN_LINE = 8  # characters of a line of a secret that is searched for by itself
_MAX_LINES = 100  # lines of a secret that are searched for by themselves
_MIN_SCRUBBED = 3  # shorter values would turn ordinary text into masks
_MAX_REMEMBERED = 64  # characters of names of fields that are looked up, not searched again
_FIELD_NAME = re.compile(r"[A-Za-z_]+")  # such keys of a secret object are names of fields, not values
WHOLE = ""
"""In place of a path: all of a task's result is secret."""

MAX_SECRET = 100
"""Secret fields that a caller can name, and that a task takes over from another."""

MAX_SECRET_NAME = 512
"""Characters of the name, path or pattern of a secret."""

MAX_SCRUBBED = 1_000
"""Values that are searched for in a text; with more, all of the text is masked."""


class Mask(Struct, frozen=True):
    """What to mask in texts and documents of a task: secret fields by name, and their values anywhere."""

    secret: tuple[str, ...] = ()
    values: tuple[str, ...] = ()  # longest first

    def text(self, text: str) -> str:
        """Return the text without secret values."""
        return scrub(text, self.values)

    def json(self, value: Any) -> Any:
        """Return a JSON value without secret fields, and without their values in other texts and in keys."""
        return scrub_json(redact(value, self.secret), self.values)

    def encoded(self, data: bytes) -> bytes:
        """Do the same for encoded JSON; what is not JSON is masked as a whole."""
        try:
            return msgspec.json.encode(self.json(msgspec.json.decode(data)))
        except (ValueError, RecursionError):  # not JSON
            return msgspec.json.encode(MASK)

    def result(self, data: bytes) -> bytes:
        """Do the same for an encoded result, all of which may be secret."""
        return msgspec.json.encode(MASK) if WHOLE in self.secret else self.encoded(data)


def mask_of(payload: bytes, secret: tuple[str, ...], *others: Iterable[str]) -> Mask:
    """Return the mask of a task with this payload; `others` are further secret values.

    A payload that is not JSON is masked as a whole: what is secret in it cannot be found.
    """
    try:
        values = secret_values(msgspec.json.decode(payload), secret)
    except (ValueError, RecursionError):  # not JSON
        text = payload.decode("utf-8", "replace")
        values = (text,) if len(text) >= _MIN_SCRUBBED else ()
    return Mask(secret, longest_first(values, *others) if others else values)


def redact(value: Any, secret: Iterable[str] = ()) -> Any:
    """Mask the secrets of a JSON value.

    `secret` are the declared fields, as names or dotted paths, and the patterns of `checked_patterns`.
    """
    names, patterns = _split(tuple(secret))
    if patterns and _searched(patterns, sum(map(len, _texts(value)))) is None:
        return MASK
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


def scrub(text: str, values: Iterable[str]) -> str:
    """Mask every occurrence of these values, in the order of `secret_values`."""
    values = tuple(values)
    if len(values) > MAX_SCRUBBED:
        return MASK
    patterns = tuple(value for value in values if is_pattern(value))
    for value in values[: len(values) - len(patterns)]:
        text = text.replace(value, _HOLE)
    if patterns:
        text = _without_matches(text, patterns)
    return text.replace(_HOLE, MASK)


def is_pattern(value: str) -> bool:
    """Whether one of the values to be scrubbed is a pattern."""
    return value.startswith(_PATTERN)


def _without_matches(text: str, patterns: tuple[str, ...]) -> str:
    found = _searched(patterns, len(text))
    if found is None:
        return _HOLE
    text = text.replace(MASK, _HOLE)
    for pattern in found:
        text = pattern.sub(_HOLE, text)
    return text


def _searched(patterns: tuple[str, ...], length: int) -> tuple[re.Pattern[str], ...] | None:
    """Return the patterns to search in texts of this length; None if that would take too long."""
    if length > _MAX_SCANNED:
        return None
    return compiled_together(tuple(PREFIX + one.removeprefix(_PATTERN) for one in patterns))


@lru_cache(maxsize=1024)
def _split(secret: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the names of secret fields, and the patterns as `scrub` takes them."""
    patterns = [one for one in secret if compiled(one) is not None]
    names = frozenset(secret).difference(patterns)
    return names, tuple(_PATTERN + one.removeprefix(PREFIX) for one in patterns)


def scrub_json(value: Any, values: tuple[str, ...]) -> Any:
    """Mask these values in the texts, keys and numbers of a JSON value; `redact` masks what patterns match.

    All texts are searched as one: a search for each would take long where there are many of both.
    """
    values = tuple(one for one in values if not is_pattern(one))
    if not values:
        return value
    if len(values) > MAX_SCRUBBED:
        return MASK
    scrubbed = scrub(_SEAM.join(_texts(value)), values).split(_SEAM)
    return _rebuilt(value, iter(scrubbed), frozenset(values))


def secret_paths(value: Any, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the dotted paths at which one of these values occurs in a JSON value, or `WHOLE`.

    A key that has one makes its object secret. More than `MAX_SECRET` paths, or a path that is no name of a
    secret field, make the whole secret.
    """
    found: dict[str, None] = {}
    _find_paths(value, scrub_json(value, values), (), found)
    return tuple(found) if len(found) <= MAX_SECRET and all(map(is_secret_name, found)) else (WHOLE,)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _rebuilt(value: Any, texts: Iterator[str], values: frozenset[str]) -> Any:
    """Return the value with these texts, in the order of `_texts`, and without the numbers among `values`."""
    match value:
        case str():
            return next(texts)
        case dict():
            return {next(texts): _rebuilt(item, texts, values) for item in value.values()}
        case list():
            return [_rebuilt(item, texts, values) for item in value]
        case int() | float() if not isinstance(value, bool) and str(value) in values:
            return MASK
        case _:
            return value


def _find_paths(value: Any, masked: Any, path: tuple[str, ...], found: dict[str, None]) -> None:
    """Add the path of each part of a value that differs from its masked form."""
    if isinstance(value, dict) and isinstance(masked, dict) and value.keys() == masked.keys():
        for key, item in value.items():
            _find_paths(item, masked[key], (*path, key), found)
    elif isinstance(value, list) and isinstance(masked, list):
        for item, other in zip(value, masked, strict=True):
            _find_paths(item, other, path, found)
    elif value != masked:
        found[".".join(path)] = None


def _tells(name: str) -> bool:
    """Whether the name of a field suggests that it is secret."""
    return _remembered(name) if len(name) <= _MAX_REMEMBERED else _suggests(name)


def _suggests(name: str) -> bool:
    return _ALWAYS.search(name) is not None


_remembered = lru_cache(maxsize=4096)(_suggests)


def _is_secret(path: tuple[str, ...], secret: frozenset[str]) -> bool:
    name = path[-1]
    return _tells(name) or (bool(secret) and (name in secret or ".".join(path) in secret))


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
            if hidden and len(key) >= _MIN_SCRUBBED and not _FIELD_NAME.fullmatch(key):
                found.update(_spellings(key))
            below = (*path, key)
            _collect(item, secret, below, found, hidden=hidden or _is_secret(below, secret))
    elif isinstance(value, list):
        for item in value:
            _collect(item, secret, path, found, hidden=hidden)
    elif hidden and not isinstance(value, bool) and value is not None and len(str(value)) >= _MIN_SCRUBBED:
        found.update(_spellings(str(value)))


def _spellings(text: str) -> tuple[str, ...]:
    """Return the text, how repr, JSON and URLs would spell it, and its lines, which tracebacks may indent.

    Also how repr spells it in bytes, by itself and in JSON.
    """
    encoded = json.dumps(text), json.dumps(text, ensure_ascii=False)
    quoted = (one[1:-1] for one in (repr(text), *encoded))
    in_bytes = (repr(one.encode("utf-8", "surrogatepass")) for one in (text, *encoded))
    bare = text.encode("utf-8", "replace")  # a lone surrogate is in no URL
    lines = [line for line in map(str.strip, text.splitlines()) if len(line) >= _MIN_LINE]
    return (
        text,
        *quoted,
        *(one[start : -start + 1] for one, start in zip(in_bytes, (2, 3, 3), strict=True)),
        *(quote(bare, safe=""), quote(bare), quote_plus(bare)),
        *(lines if len(lines) <= _MAX_LINES else ()),
    )
