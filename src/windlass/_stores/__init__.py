"""Create a store from its URL. Each kind is imported only when it is used."""

from typing import TYPE_CHECKING

from .._clock import Clock
from ..errors import InvalidOption

if TYPE_CHECKING:
    from .._store.protocol import Store


def open_store(url: str, *, clock: Clock | None = None, key: str | None = None) -> "Store":
    """Make the store of a URL, not opened yet. `clock` is for tests; `key` for a store over HTTP.

    Raises InvalidOption for an unknown URL or a missing extra.
    """
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "memory":
        from .memory import MemoryStore

        return MemoryStore(clock=clock)
    if separator and scheme == "sqlite":
        from .sqlite import SQLiteStore

        return SQLiteStore.from_url(rest, clock=clock)
    if separator and scheme in ("postgresql", "postgres"):
        return _postgres(url, clock)
    if separator and scheme in ("http", "https"):
        return _http(url, key)
    raise InvalidOption(
        f"there is no store for the URL {store_name(url)!r}; use postgresql://user@host/database, "
        f"sqlite:///windlass.db (a file here), sqlite:////var/lib/app.db (an absolute path), "
        f"https://… (a windlass serve) or memory://"
    )


def _postgres(url: str, clock: Clock | None) -> "Store":
    try:
        from .postgres import PostgresStore
    except ModuleNotFoundError as missing:
        if missing.name != "asyncpg":
            raise
        raise InvalidOption(
            "a store on Postgres needs the driver asyncpg: pip install 'windlass[postgres]'"
        ) from missing
    return PostgresStore.from_url(url, clock=clock)


def _http(url: str, key: str | None) -> "Store":
    try:
        from .http import HttpStore
    except ModuleNotFoundError as missing:
        if missing.name != "httpx2":
            raise
        raise InvalidOption("a store over HTTP needs httpx2: pip install 'windlass[remote]'") from missing
    return HttpStore(url, key=key)


def store_name(store: "str | Store") -> str:
    """Name a store for people: its URL without the password, or its class."""
    if not isinstance(store, str):
        return type(store).__name__
    scheme, separator, rest = store.partition("://")
    credentials, at, host = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
    return f"{scheme}{separator}{user}{':***' if colon else ''}{at}{host}"
