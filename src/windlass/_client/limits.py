"""Limits, as people see and set them. The store holds the truth, whatever a program declared. (F4, F5)"""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Unpack

from .._model.filter import By
from .._model.limit import Limit, Usage
from .._policy.input.quoting import quoted
from .._policy.order.limit_options import LimitOptions, changed_limit, new_limit
from .._store.protocol import Store
from ..errors import NotFound
from .declarations import every
from .loop import LoopThread


class Limits:
    """See which limits there are and what of them is in use; set, change and remove them."""

    def __init__(self, store: Store, by: By | None = None) -> None:
        self._store = store
        self._by = by  # whom the audit log names; None: a program, which it does not tell of

    async def list(self) -> Sequence[Limit]:
        """Every limit, by name."""
        return await every(self._store, Limit)

    async def get(self, name: str) -> Limit:
        """One limit; NotFound if there is none."""
        found = {limit.name: limit for limit in await self.list()}
        if name not in found:
            close = get_close_matches(name, found, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise NotFound(f"there is no limit {quoted(name)}{hint}")
        return found[name]

    async def set(self, name: str, **options: Unpack[LimitOptions]) -> Limit:
        """Keep this limit in place of the one of the same name. It holds from the next claim on."""
        limit = new_limit(name, options)
        await self._store.open()
        await self._store.put(limit, self._by)
        return limit

    async def change(self, name: str, **options: Unpack[LimitOptions]) -> Limit:
        """Change what is named of a limit that exists; None takes it away."""
        limit = changed_limit(await self.get(name), options)
        await self._store.put(limit, self._by)
        return limit

    async def remove(self, name: str) -> None:
        """Limit nothing by this any more; NotFound if there is none."""
        await self.get(name)
        await self._store.remove(Limit, name, self._by)

    async def usages(self, name: str | None = None) -> Sequence[Usage]:
        """What is in use of a limit, or of all: a line for each value that something ran under."""
        return [usage for usage in await every(self._store, Usage) if name in (None, usage.limit)]


class SyncLimits:
    """The same, blocking."""

    def __init__(self, limits: Limits, loop: LoopThread) -> None:
        self._limits = limits
        self._loop = loop

    def list(self) -> Sequence[Limit]:
        """Every limit, by name."""
        return self._loop.run(self._limits.list())

    def get(self, name: str) -> Limit:
        """One limit; NotFound if there is none."""
        return self._loop.run(self._limits.get(name))

    def set(self, name: str, **options: Unpack[LimitOptions]) -> Limit:
        """Keep this limit in place of the one of the same name."""
        return self._loop.run(self._limits.set(name, **options))

    def change(self, name: str, **options: Unpack[LimitOptions]) -> Limit:
        """Change what is named of a limit that exists; None takes it away."""
        return self._loop.run(self._limits.change(name, **options))

    def remove(self, name: str) -> None:
        """Limit nothing by this any more; NotFound if there is none."""
        self._loop.run(self._limits.remove(name))

    def usages(self, name: str | None = None) -> Sequence[Usage]:
        """What is in use of a limit, or of all."""
        return self._loop.run(self._limits.usages(name))
