"""Archive history: write each day's ended tasks to a file before they may be pruned.

The store has an `Archive` record while archiving is on, and prunes nothing that it does not cover. The record
moves on only when a file is complete and on disk, so a keeper that dies, or is followed by another, loses
nothing.
"""

import asyncio
import filecmp
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from datetime import time as day_time
from itertools import count
from pathlib import Path
from typing import IO

import msgspec
from msgspec.structs import replace

from ._client.published_types import KnownTypes
from ._client.tasks.export import EndedTask, export_tasks, next_ones
from ._documents.tasks import ended_document
from ._handler.task_types import TaskTypes
from ._ids import new_id
from ._model.filter import Filter
from ._model.record import Archive
from ._policy.input.quote import counted
from ._store.protocol import Store, all_records
from .errors import Conflict, InvalidOption, StoreError

logger = logging.getLogger("windlass.keeper")

SETTLING = timedelta(minutes=5)
"""Time after the end of a day before it is written: what ended at its end must have been committed."""

_DAY = timedelta(days=1)
_STALE_SECONDS = 86_400.0  # age of a part that a keeper which died has left


class Archiver:
    """Writes history to a directory, one file for each day (UTC) on which tasks ended."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).absolute()

    def check(self) -> None:
        """Raise InvalidOption if the directory cannot be made or written."""
        try:
            self._prepare()
            probe = self.directory / f".{new_id()}.part"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise InvalidOption(f"cannot write to the archive {self.directory}: {_reason(error)}") from None

    async def turn_on(self, store: Store) -> None:
        """Note in the store that archiving is on, unless it is: from now on nothing else is pruned."""
        if not await all_records(store, Archive):
            try:
                await store.put(Archive(directory=str(self.directory)), None, None)
            except Conflict:
                return  # Another keeper did.
            logger.info("archiving to %s is on; only archived tasks are pruned", self.directory)

    async def write_due(self, store: Store) -> bool:
        """Write every day that has ended and was not written; return whether that went further than before.

        What fails is logged, to be tried again later.
        """
        try:
            return await self._write_due(store)
        except OSError as error:
            logger.error(  # noqa: TRY400  the traceback tells nothing more
                "cannot write the archive %s: %s; ended tasks are kept until it can be written",
                self.directory,
                _reason(error),
            )
        except Conflict:
            logger.info("another keeper archives, too; leaving it to that one")
        except StoreError as error:
            logger.warning("archiving is interrupted: %s", error)
        except Exception:
            logger.exception("archiving failed; ended tasks are kept until it succeeds")
        return False

    async def _write_due(self, store: Store) -> bool:
        records = await all_records(store, Archive)
        if not records:
            return False  # It was turned off.
        stored = records[0]
        until = _midnight((await store.now() - SETTLING).date())
        if stored.until >= until:
            return False
        await asyncio.to_thread(self._prepare)
        types = KnownTypes(store, TaskTypes())
        exported = export_tasks(store, types, Filter(finished_after=stored.until, finished_before=until))
        try:
            some = await next_ones(exported)
            while some:
                day = _day_of(some[0])
                some = await self._write_day(day, some, exported)
                stored = await self._move(store, stored, _midnight(day) + _DAY)
        finally:
            await exported.aclose()
        if stored.until < until:
            await self._move(store, stored, until)
        return True

    async def _move(self, store: Store, stored: Archive, until: datetime) -> Archive:
        """Note how far the archive goes. Raises Conflict if another keeper has, or if it was turned off."""
        moved = replace(stored, until=until, directory=str(self.directory))
        await store.put(moved, None, stored)
        return moved

    async def _write_day(
        self, day: date, some: list[EndedTask], exported: AsyncIterator[EndedTask]
    ) -> list[EndedTask]:
        """Write a day to a part, then give it its name: a file of that name is always complete.

        Returns the first tasks of the next day.
        """
        part = self.directory / f".{day}.{new_id()}.part"
        number = 0
        try:
            with await asyncio.to_thread(_opened, part) as file:
                while some and _day_of(some[0]) == day:
                    ended = [one for one in some if _day_of(one) == day]
                    await asyncio.to_thread(_write, file, ended)
                    number += len(ended)
                    some = some[len(ended) :] or await next_ones(exported)
                await asyncio.to_thread(_sync, file)
            name = await asyncio.to_thread(self._name_part, part, day)
        finally:
            part.unlink(missing_ok=True)
        logger.info("archived %s that ended on %s to %s", counted(number, "task"), day, name)
        return some

    def _name_part(self, part: Path, day: date) -> Path:
        """Rename a part. A file that is there is not replaced: what it has may have been pruned since."""
        for number in count(1):
            name = self.directory / (f"{day}.ndjson" if number == 1 else f"{day}.{number}.ndjson")
            if not name.exists():
                part.rename(name)
                _sync_directory(self.directory)
                return name
            if filecmp.cmp(part, name, shallow=False):
                return name  # The keeper that wrote it died before it could note so.
        raise AssertionError

    def _prepare(self) -> None:
        """Make the directory, and remove what keepers that died have left in it."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for part in self.directory.glob(".*.part"):
            with suppress(OSError):  # another keeper has removed it, or it is none of ours
                if time.time() - part.lstat().st_mtime > _STALE_SECONDS:
                    part.unlink()


def _day_of(ended: EndedTask) -> date:
    assert ended.task.finished_at is not None
    return ended.task.finished_at.astimezone(UTC).date()


def _midnight(day: date) -> datetime:
    return datetime.combine(day, day_time(), UTC)


def _opened(part: Path) -> IO[bytes]:
    """Open a new file that only this user can read: it has payloads."""
    return os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _write(file: IO[bytes], tasks: list[EndedTask]) -> None:
    file.write(b"".join(msgspec.json.encode(ended_document(one)) + b"\n" for one in tasks))


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    """Make a new name durable, where directories can be synced."""
    if os.name == "posix":
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
