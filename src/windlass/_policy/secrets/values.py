"""The values of secret fields, and where other texts of a task repeat them."""

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

from .fields import MASK, is_secret_path
from .patterns import PREFIX, compiled, compiled_together
from .quoted import without_quoted

_HOLE = "\0"  # occurs in no payload, so a value never matches the mask of another
_PATTERN = "\0"  # begins a pattern among values to be scrubbed
_MAX_SCANNED = 100_000  # characters of texts that are searched for patterns; what is longer is masked whole
_SEAM = "\udfff"  # occurs in no decoded JSON, so no value matches across two texts
_MIN_LINE = 8  # characters of a line of a secret that is searched for by itself
_MAX_LINES = 100  # lines of a secret that are searched for by themselves
MIN_SCRUBBED = 3  # shorter values would turn ordinary text into masks
_NUMBER = re.compile(r"-?[0-9.]+(?:e[+-]?[0-9]+)?")  # how a number of JSON is spelled as text
_FIELD_NAME = re.compile(r"[A-Za-z_]+")  # such keys of a secret object are names of fields, not values
MAX_SCRUBBED = 1_000
"""Values that are searched for in a text; with more, all of the text is masked."""


def secret_values(value: Any, secret: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the masked values, longest first, and the patterns, to be scrubbed from errors and log lines."""
    names, patterns = names_and_patterns(tuple(secret))
    found = set(patterns)
    _collect(value, names, (), found, hidden=False)
    return longest_first(found)


def longest_first(*values: Iterable[str]) -> tuple[str, ...]:
    """Merge values to be scrubbed, in the order in which `scrub` needs them: patterns last."""
    all_of_them = {one for some in values for one in some}
    return tuple(sorted(all_of_them, key=lambda text: (is_pattern(text), -len(text), text)))


def scrub(text: str, values: Iterable[str]) -> str:
    """Mask every occurrence of these values, in the order of `secret_values`."""
    values = tuple(values)
    if len(values) > MAX_SCRUBBED:
        return MASK
    patterns = tuple(value for value in values if is_pattern(value))
    plain = values[: len(values) - len(patterns)]
    text = without_quoted(text, plain, _HOLE)
    for value in plain:
        text = text.replace(value, _HOLE)
    if patterns:
        text = _without_matches(text, patterns)
    return text.replace(_HOLE, MASK)


def is_pattern(value: str) -> bool:
    """Whether one of the values to be scrubbed is a pattern."""
    return value.startswith(_PATTERN)


def scrub_json(value: Any, values: tuple[str, ...]) -> Any:
    """Mask these values in the texts, keys and numbers of a JSON value; `redact` masks what patterns match.

    Returns the same object if there is nothing to mask and no value could be a number.

    All texts are searched as one: a search for each would take long where there are many of both.
    """
    values = tuple(one for one in values if not is_pattern(one))
    if not values:
        return value
    if len(values) > MAX_SCRUBBED:
        return MASK
    texts = _SEAM.join(texts_in(value))
    scrubbed = scrub(texts, values)
    if scrubbed == texts and not any(map(_NUMBER.fullmatch, values)):
        return value
    return _rebuilt(value, iter(scrubbed.split(_SEAM)), frozenset(values))


@lru_cache(maxsize=1024)
def names_and_patterns(secret: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the names of secret fields, and the patterns as `scrub` takes them."""
    patterns = [one for one in secret if compiled(one) is not None]
    names = frozenset(secret).difference(patterns)
    return names, tuple(_PATTERN + one.removeprefix(PREFIX) for one in patterns)


def _without_matches(text: str, patterns: tuple[str, ...]) -> str:
    found = searchable(patterns, len(text))
    if found is None:
        return _HOLE
    text = text.replace(MASK, _HOLE)
    for pattern in found:
        text = pattern.sub(_HOLE, text)
    return text


def searchable(patterns: tuple[str, ...], length: int) -> tuple[re.Pattern[str], ...] | None:
    """Return the patterns to search in texts of this length; None if that would take too long."""
    if length > _MAX_SCANNED:
        return None
    return compiled_together(tuple(PREFIX + one.removeprefix(_PATTERN) for one in patterns))


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from texts_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item)


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


def _collect(
    value: Any, secret: frozenset[str], path: tuple[str, ...], found: set[str], *, hidden: bool
) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if hidden and len(key) >= MIN_SCRUBBED and not _FIELD_NAME.fullmatch(key):
                found.update(_spellings(key))
            below = (*path, key)
            _collect(item, secret, below, found, hidden=hidden or is_secret_path(below, secret))
    elif isinstance(value, list):
        for item in value:
            _collect(item, secret, path, found, hidden=hidden)
    elif hidden and not isinstance(value, bool) and value is not None and len(str(value)) >= MIN_SCRUBBED:
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
