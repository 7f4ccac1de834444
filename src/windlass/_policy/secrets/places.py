"""Where a JSON value has something secret: fields by name, and all that repeats secret values."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from .fields import MAX_SECRET, WHOLE, is_secret_name
from .values import scrub_json

Path: TypeAlias = tuple[str | int, ...]
"""Names of fields and indexes of items, from the outermost on; () is the value itself."""


def named_places(value: Any, secret: frozenset[str], path: Path = ()) -> Iterator[Path]:
    """Yield the paths of the fields that are declared as secret, by name or dotted path."""
    if isinstance(value, dict):
        names = [one for one in path if isinstance(one, str)]
        for name, item in value.items():
            below = (*path, name)
            if name in secret or (names and ".".join((*names, name)) in secret):
                yield below
            elif isinstance(item, dict | list):
                yield from named_places(item, secret, below)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict | list):
                yield from named_places(item, secret, (*path, index))


def repeated_places(value: Any, values: tuple[str, ...]) -> Iterator[Path]:
    """Yield the paths of texts and numbers that a mask with these values masks, in whole or in part.

    A name that has one makes its object such a place.
    """
    masked = scrub_json(value, values)
    return iter(()) if masked is value else _differing(value, masked, ())


def repeated_below(value: dict[str, Any], values: tuple[str, ...]) -> Iterator[Path]:
    """Do the same for the fields of an object, whose own names are left out."""
    names = [*value]
    for place in repeated_places([*value.values()], values):
        if place == ():  # more values than can be searched for
            yield from ((name,) for name in names)
        else:
            yield (names[int(place[0])], *place[1:])


def secret_paths(value: Any, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the dotted paths at which one of these values occurs in a JSON value, or `WHOLE`.

    A key that has one makes its object secret. More than `MAX_SECRET` paths, or a path that is no name of a
    secret field, make the whole secret.
    """
    found = dict.fromkeys(dotted(place) for place in repeated_places(value, values))
    return tuple(found) if len(found) <= MAX_SECRET and all(map(is_secret_name, found)) else (WHOLE,)


def dotted(place: Iterable[str | int]) -> str:
    """Return a path as secret fields are declared: names with dots between, without indexes."""
    return ".".join(one for one in place if isinstance(one, str))


def _differing(value: Any, masked: Any, path: Path) -> Iterator[Path]:
    """Yield the path of each part of a value that differs from its masked form."""
    if value == masked:
        return
    if isinstance(value, dict) and isinstance(masked, dict) and [*value] == [*masked]:
        for key, item in value.items():
            yield from _differing(item, masked[key], (*path, key))
    elif isinstance(value, list) and isinstance(masked, list):
        for index, (item, other) in enumerate(zip(value, masked, strict=True)):
            yield from _differing(item, other, (*path, index))
    else:
        yield path
