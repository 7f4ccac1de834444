"""All that a record holds, as text to be searched: its repr leaves its content out."""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw, Struct
from msgspec.structs import asdict


def contents(*values: object) -> str:
    """Return the values of all fields of records, and of the records in them, however deep, as text."""
    return repr([_plain(one) for one in values])


def _plain(value: object) -> Any:
    match value:
        case Raw():
            return bytes(value)
        case Struct():
            return {"record": type(value).__name__, **_plain(asdict(value))}
        case Mapping():
            return {_plain(key): _plain(one) for key, one in value.items()}
        case tuple() | list() | set() | frozenset():
            return tuple(_plain(one) for one in value)
        case _:
            return value
