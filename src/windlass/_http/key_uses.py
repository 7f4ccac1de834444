"""When keys were last used, noted in the store: at most once a minute for each key, beside the requests."""

import asyncio
import logging
from datetime import datetime, timedelta

from msgspec.structs import replace

from .._model.key import ApiKey
from .._store.protocol import Store
from ..errors import WindlassError

logger = logging.getLogger("windlass.http")

EVERY = timedelta(minutes=1)
"""How often the use of a key is written."""

_MAX_NOTED = 10_000


class KeyUses:
    """Writes the last use of keys in the background. A write that fails is lost; a later use makes another.

    A key that someone changes meanwhile (rotates, revokes, or another server notes) stays as they left it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._noted: dict[str, datetime] = {}
        self._due: dict[str, tuple[ApiKey, datetime]] = {}
        self._writing: asyncio.Future[None] | None = None

    def note(self, key: ApiKey, now: datetime) -> None:
        """Note that a key, as it is stored, is used now."""
        if key.last_used_at is not None and now - key.last_used_at < EVERY:
            return
        noted = self._noted.get(key.name)
        if noted is not None and now - noted < EVERY:
            return
        if len(self._noted) >= _MAX_NOTED:
            self._noted.clear()
        self._noted[key.name] = now
        self._due[key.name] = key, now
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        try:
            while self._due:
                _, (key, now) = self._due.popitem()
                await self._put(key, replace(key, last_used_at=now))
        finally:
            self._writing = None

    async def _put(self, before: ApiKey, used: ApiKey) -> None:
        try:
            await self._store.put(used, None, before)
        except WindlassError as error:
            logger.debug("did not note the use of key %s: %s", used.name, error)
