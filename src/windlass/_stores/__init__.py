"""Where tasks are kept: from a URL to a store, each imported only when asked for."""

from typing import TYPE_CHECKING

from .._clock import Clock
from ..errors import InvalidOption

if TYPE_CHECKING:
    from .._store import Store


def open_store(url: str, *, clock: Clock | None = None) -> "Store":
    """The store at this URL, not opened yet. `clock` is for tests."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "memory":
        from .memory import MemoryStore

        return MemoryStore(clock=clock)
    if separator and scheme == "sqlite":
        from .sqlite import SQLiteStore

        return SQLiteStore.from_url(rest, clock=clock)
    raise InvalidOption(
        f"no store goes by the URL {_without_password(url)!r}; use sqlite:///windlass.db (a file here), "
        f"sqlite:////var/lib/app.db (an absolute path) or memory://"
    )


def _without_password(url: str) -> str:
    """The URL as it may be shown."""
    scheme, separator, rest = url.partition("://")
    credentials, at, host = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
    return f"{scheme}{separator}{user}{':***' if colon else ''}{at}{host}"
