"""ShardRegistry: the stores behind the shards, for all handles of a process."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from ...._store.protocol import Store
from ....errors import InvalidOption
from .. import refusals
from .address import read_urls
from .shard import Shard, ShardHealth


class ShardRegistry:
    """Makes handles on shards. A shard that was added to the file since is found in it when it is needed."""

    def __init__(
        self,
        stores: Mapping[str, Store] | None = None,
        *,
        path: Path | None = None,
        make: Callable[[str], Store] | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._stores = dict(stores or {})
        self._health: dict[str, ShardHealth] = {}
        self._path, self._make = path, make
        if path is not None:
            self._read_file()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the shards whose URLs are known, in their order."""
        return tuple(self._stores)

    @property
    def stores(self) -> Mapping[str, Store]:
        """The stores by the names of their shards; they are not opened themselves."""
        return self._stores

    def shard(self, name: str) -> Shard:
        """Make a new handle on a shard. Raises StoreUnavailable if its URL is not known."""
        with self._lock:
            if name not in self._stores and self._path is not None:
                try:
                    self._read_file()
                except InvalidOption as error:  # it may be half-written: processes that run go on
                    raise refusals.unreadable(name, error) from error
            if name not in self._stores:
                raise refusals.unplaced(name, str(self._path or "this process"))
            health = self._health.setdefault(name, ShardHealth(name))
            return Shard(self._stores[name].another(), health)

    def add(self, name: str, store: Store) -> None:
        """Make a shard known, as its URL in the file does."""
        with self._lock:
            self._stores[name] = store

    def _read_file(self) -> None:
        assert self._path is not None
        assert self._make is not None
        for name, url in read_urls(self._path).items():
            if name not in self._stores:
                try:
                    self._stores[name] = self._make(url)
                except InvalidOption as error:
                    raise InvalidOption(f"{self._path}: shard {name!r}: {error}") from None
