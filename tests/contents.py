"""All that a record holds, as text to be searched: its repr leaves its content out."""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw, Struct
from msgspec.structs import asdict

from windlass._model.filter import Filter, Page
from windlass._model.queue import QueueSettings
from windlass._model.record import KINDS, Audit
from windlass._store.protocol import Store, all_records


def contents(*values: object) -> str:
    """Return the values of all fields of records, and of the records in them, however deep, as text."""
    return repr([_plain(one) for one in values])


async def everything_in(store: Store) -> list[str]:
    """The contents of all tasks and records of a store, but for when keys and logins were used."""
    found: list[Any] = [*(await store.find(Filter(), Page(limit=1_000))).items]
    for kind in (QueueSettings, Audit, *KINDS):
        found += await all_records(store, kind)
    used = ("last_used_at",)
    return [contents(*(value for name, value in asdict(one).items() if name not in used)) for one in found]


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
