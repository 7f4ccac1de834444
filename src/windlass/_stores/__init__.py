"""Create a store from its URL. Each kind is imported only when it is used."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .._store.clock import Clock
from .._store.forward import ForwardingStore
from ..errors import InvalidOption, NotSupported

if TYPE_CHECKING:
    from .._store.protocol import Store
    from .jetstream.owner import Owner
    from .shards.admin import ShardAdmin

_WITHOUT_HOST = ("sqlite", "memory")
_REDIS = frozenset(
    f"{scheme}{kind}"
    for scheme in ("redis", "rediss", "valkey", "valkeys")
    for kind in ("", "+cluster", "+sentinel")
)
_SCHEME = re.compile(r"[\w+./-]+", re.ASCII)
_PLACE = re.compile(r"([\w.-]+|\[[0-9a-f:.]+\])?(:\d{1,5})?(,[\w.-]+(:\d{1,5})?)*(/[\w.-]*)*", re.ASCII)
"""Hosts with their ports, and a database or path: there is no password in it."""

_URLS = (
    "use postgresql://user@host/database, sqlite:///windlass.db (a file here), sqlite:////var/lib/app.db (an "
    "absolute path), redis://host:6379/0, nats://host:4222/name, https://… (a windlass serve), "
    "shards:///etc/shards.toml or memory://"
)


def open_store(url: str, *, clock: Clock | None = None, key: str | None = None) -> "Store":
    """Make the store of a URL, not opened yet. `clock` is for tests; `key` for a store over HTTP.

    Raises InvalidOption for an unknown or empty URL or a missing extra.
    """
    if not url.strip():
        raise InvalidOption(f"the URL of the store is empty; {_URLS}")
    scheme, separator, rest = url.partition("://")
    match scheme if separator else None:
        case "memory":
            from .memory import MemoryStore

            return MemoryStore.of_program(clock=clock)
        case "sqlite":
            from .sqlite import SQLiteStore

            return SQLiteStore.from_url(rest, clock=clock)
        case "postgresql" | "postgres":
            with _needing("asyncpg", "on Postgres needs the driver asyncpg", "postgres"):
                from .postgres import PostgresStore
            return PostgresStore.from_url(url, clock=clock)
        case known if known in _REDIS:
            with _needing("redis", "on Redis or Valkey needs the driver redis-py", "redis"):
                from .redis import RedisStore

            return RedisStore.from_url(url, clock=clock)
        case "nats" | "nats+tls":
            with _needing("nats", "on NATS needs nats-py", "nats"):
                from .jetstream import JetStreamStore
            return JetStreamStore.from_url(url, clock=clock)
        case "http" | "https":
            with _needing("httpx2", "over HTTP needs httpx2", "remote"):
                from .http import HttpStore
            return HttpStore(url, key=key)
        case "shards":
            from .shards import ShardedStore

            return ShardedStore.from_url(rest, lambda one: open_store(one, clock=clock, key=key))
        case str(known) if known.startswith(("postgresql+", "postgres+")):
            raise InvalidOption(
                f"the URL {store_name(url)!r} names a driver, as SQLAlchemy's do; windlass uses asyncpg: "
                f"write postgresql://user@host/database"
            )
        case _:
            raise InvalidOption(f"there is no store for the URL {store_name(url)!r}; {_URLS}")


def open_owner(store: "str | Store", folder: Path, *, if_fewer_than: int | None = None) -> "Owner":
    """Make a process of those that may own the store at this URL, not started yet.

    Raises NotSupported unless the store needs one.
    """
    if not isinstance(store, str) or store not in owned_urls(store):
        raise NotSupported(
            f"{store_name(store)} needs no owner: only a store on NATS, nats://…, is owned by a process"
        )
    with _needing("nats", "on NATS needs nats-py", "nats"):
        from .jetstream.address import parse
        from .jetstream.owner import Owner
    return Owner(parse(store), folder, if_fewer_than=if_fewer_than)


def owned_urls(store: "str | Store") -> tuple[str, ...]:
    """Return the URLs that need an owner: the store's if it is on NATS, or those of its shards that are."""
    if not isinstance(store, str):
        return ()
    urls = [store]
    if store.startswith("shards://"):
        from .shards.connection.address import read_urls

        urls = list(read_urls(Path(store.removeprefix("shards://"))).values())
    return tuple(url for url in urls if url.startswith(("nats://", "nats+tls://")))


def migration_sql(store: "str | Store", start: int, target: int | None) -> str:
    """Return the SQL that migrates a store of this URL from one schema to another, without connecting to it.

    Raises NotSupported unless it is on Postgres: a SQLite file is migrated under a lock of its own.
    """
    if not isinstance(store, str) or not store.startswith(("postgresql://", "postgres://")):
        raise NotSupported(
            f"migrations of {store_name(store)} cannot be written as SQL, only those of a store on Postgres; "
            f"run `windlass migrate` without --sql"
        )
    with _needing("asyncpg", "on Postgres needs the driver asyncpg", "postgres"):
        from .postgres import migration_script
        from .postgres.connection.address import parse

    return migration_script(parse(store).schema, start, target)


def shards_of(store: "Store") -> "ShardAdmin":
    """Return what changes the shards of a store. Raises NotSupported for a store of another kind."""
    from .shards import ShardedStore
    from .shards.admin import ShardAdmin

    while isinstance(store, ForwardingStore):
        store = store.inner
    if not isinstance(store, ShardedStore):
        raise NotSupported(
            "this store has no shards; choose one that has with --store shards:///etc/windlass/shards.toml "
            "(see docs/shards.md)"
        )
    return ShardAdmin(store)


@contextmanager
def _needing(package: str, what: str, extra: str) -> Iterator[None]:
    """Raise InvalidOption if this package is missing."""
    try:
        yield
    except ModuleNotFoundError as missing:
        if missing.name != package:
            raise
        raise InvalidOption(f"a store {what}: pip install 'windlass[{extra}]'") from missing


def store_name(store: "str | Store") -> str:
    """Name a store for people: its URL with scheme, host and path, or its class.

    The path of a file is absolute: the same relative one is another file in another folder. Users, passwords
    and options are left out; of a URL that may have a password elsewhere, all.
    """
    if not isinstance(store, str):
        return type(store).__name__
    scheme, separator, rest = store.strip().partition("://")
    if scheme == "sqlite" and len(rest) > 1 and rest.startswith("/"):
        return f"sqlite:///{Path(rest[1:]).absolute()}"
    if scheme in _WITHOUT_HOST:
        return store
    place, _, options = (rest if separator else scheme).partition("?")
    host = place.rpartition("@")[2] if separator else place
    if "@" in options or not _SCHEME.fullmatch(scheme) or not _PLACE.fullmatch(host):
        return "…"
    return f"{scheme}{separator}{host}" if separator else host
