"""Where records are: settings on every shard, what belongs to no queue on the home shard.

Settings are what a shard itself obeys: of queues, limits, task types and the archive. They are written to the
home shard first, which decides between concurrent changes and has the entry of the audit log, then to the
others. The leading keeper copies them to shards that missed a change.
"""

import logging
from collections.abc import Collection
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from msgspec import UNSET, UnsetType

from ..._model.filter import By, Page, Slice
from ..._model.limit import Limit, Usage
from ..._model.options import DeclaredType
from ..._model.queue import QueueSettings
from ..._model.record import Archive, Audit, Record, Routes, Session, ShardMap
from ..._store.protocol import all_records
from ...errors import Conflict, NotSupported, StoreUnavailable
from . import refusals
from .connection.handle import OnShards
from .pages import merge_slices, record_name
from .routes import accepting, all_places

logger = logging.getLogger("windlass.store")

R = TypeVar("R", bound=Record)

Setting: TypeAlias = QueueSettings | Limit | DeclaredType | Archive
SETTINGS: tuple[Any, ...] = (QueueSettings, Limit, DeclaredType, Archive)
"""The kinds of records that every shard has."""

_MERGED: tuple[Any, ...] = (Session, Audit, Usage)
"""The kinds that each shard writes itself."""


class ShardRecords(OnShards):
    """The verbs about records over all shards."""

    async def put(
        self, record: Record, by: By | None = None, expected: Record | UnsetType | None = UNSET
    ) -> None:
        """Put a setting on every shard, any other record on the home shard."""
        await self._shards.ready()
        if isinstance(record, ShardMap):
            raise NotSupported("the map of shards is changed with `windlass shards`")
        if isinstance(record, Limit):
            check_limit(record, self._shards.routes)
        home = self._shards[self._shards.map.home]
        await home.call_unless_silent(home.store.put, record, by, expected)
        if isinstance(record, SETTINGS):
            await self._others(lambda shard: shard.call_unless_silent(shard.store.put, record))

    async def remove(self, kind: type[Record], name: str, by: By | None = None) -> bool:
        """Remove a setting or session from every shard, any other record from the home shard."""
        await self._shards.ready()
        if kind is ShardMap:
            raise NotSupported("the map of shards is changed with `windlass shards`")
        home = self._shards[self._shards.map.home]
        if kind is Session:
            answers = await self._shards.some(
                self._shards.names,
                lambda shard: shard.call_within(
                    shard.store.remove, kind, name, by if shard.name == home.name else None
                ),
            )
            return any(answers.values())
        existed = await home.call_unless_silent(home.store.remove, kind, name, by)
        if kind in SETTINGS:
            await self._others(lambda shard: shard.call_unless_silent(shard.store.remove, kind, name))
        return existed

    async def _others(self, call: Any) -> None:
        """Call the shards that are not home; say which do not follow at once."""
        _, errors = await self._shards.each(self._shards.names[1:], call)
        for error in errors.values():
            if not isinstance(error, StoreUnavailable):
                raise error
            raise StoreUnavailable(
                f"{error}; the other shards have the change, and it gets it when it is back"
            )

    async def records(self, kind: type[R], page: Page) -> Slice[R]:
        """Read from the home shard; merge what each shard writes itself.

        Settings are read from another shard if the home shard does not answer.
        """
        await self._shards.ready()
        if kind in _MERGED:
            # A session is on every shard; of the others one that does not answer has what no other has.
            ask = self._shards.some if kind is Session else self._shards.all_but_missing
            answers = await ask(
                self._shards.names, lambda shard: shard.call_within(shard.store.records, kind, page)
            )
            return merge_slices([*answers.values()], page, record_name)
        home, *others = (self._shards[name] for name in self._shards.names)
        try:
            return await home.call_within(home.store.records, kind, page)
        except StoreUnavailable:
            for shard in others if kind in SETTINGS else ():
                with suppress(StoreUnavailable):
                    return await shard.call_within(shard.store.records, kind, page)
            raise

    # -- copies --------------------------------------------------------------------------------------

    async def copy_settings(self, name: str) -> int:
        """Make the settings of a shard those of the home shard; return how many were changed."""
        home, shard = self._shards[self._shards.map.home], self._shards[name]
        changed = 0
        for kind in SETTINGS:
            # The home shard last: what is changed meanwhile is changed there first, and must not be undone.
            found = {one.name: one for one in await shard.call_within(all_records, shard.store, kind)}
            meant = {one.name: one for one in await home.call_within(all_records, home.store, kind)}
            for missing in (one for one_name, one in meant.items() if found.get(one_name) != one):
                with suppress(Conflict):
                    await shard.call(shard.store.put, missing, None, found.get(missing.name))
                    changed += 1
            for extra in found.keys() - meant.keys():
                await shard.call(shard.store.remove, kind, extra)
                changed += 1
        if changed:
            logger.info("copied %d settings from shard %s to shard %s", changed, home.name, name)
        return changed

    async def copy_settings_to_all(self) -> None:
        """Copy them to every shard that answers."""
        for name in self._shards.names[1:]:
            try:
                await self.copy_settings(name)
            except StoreUnavailable:
                continue  # at the next turn


def check_limit(limit: Limit, routes: Routes) -> None:
    """Raise NotSupported for a limit whose tasks may be on several shards."""
    if limit.queue is None:
        where: Collection[str] = accepting(routes)
    elif limit.by == "tenant" or limit.tenant is not None:
        return
    else:
        where = all_places(routes, limit.queue)
    if len(where) > 1:
        raise refusals.limit_spans(limit, where)
