"""Mistakes to put into windlass, so that tests can show that they would be noticed.

Most are made at the seam: a store that distorts what passes through it, whatever is behind it. They depend on
the words of the model and on nothing else, so moving or renaming code does not disarm them. Those that only
a statement can make are found by what the statement says, in whichever file it stands.
`tests/test_mistakes.py`, which is part of `make check`, says when one of them has lost its effect.
"""

import asyncio
import re
import shutil
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

import windlass
from windlass import App, Filter, Page
from windlass._model.filter import Slice
from windlass._model.lease import NO_CLAIMS, Claim, Heartbeat, HeartbeatReply, Lease
from windlass._model.limit import Limit
from windlass._model.options import DeclaredType
from windlass._model.outcome import Crashed, Interrupted, name_of
from windlass._model.record import Record
from windlass._model.task import Error
from windlass._model.verdict import Complete, Postpone, Reason, Receipt, Settled, Settlement
from windlass._store.forward import ForwardingStore
from windlass._store.protocol import Store

R = TypeVar("R", bound=Record)
SOURCE = Path(windlass.__file__).parent
CRASHED = name_of(Crashed(error=Error(type="", message="")))
INTERRUPTED = name_of(Interrupted())

# -- at the seam -------------------------------------------------------------------------------------


class MistakenStore(ForwardingStore):
    """A store that distorts settlements or heartbeats; a subclass says how."""

    def another(self) -> "MistakenStore":
        return type(self)(self.inner.another())

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        given = [await self.distort(settlement) for settlement in batch]
        settled = await self.inner.settle([one for one in given if one is not None], claim)
        receipts = iter(settled.receipts)
        pretended = [Receipt.APPLIED if one is None else next(receipts) for one in given]
        return replace(settled, receipts=tuple(pretended))

    async def distort(self, settlement: Settlement) -> Settlement | None:
        """Return what is settled instead; None to drop it and pretend that it was applied."""
        return settlement


class Unfenced(MistakenStore):
    """A settlement counts whoever holds the lease by now."""

    async def distort(self, settlement: Settlement) -> Settlement:
        found = await self.inner.find(Filter(ids=(settlement.lease.task_id,)), Page())
        fences = [task.fence for task in found.items]
        lease = Lease(settlement.lease.task_id, *(fences or [settlement.lease.fence]))
        return replace(settlement, lease=lease)


class CrashNotCounted(MistakenStore):
    """A task whose worker was lost is released, as if its worker had been shut down."""

    async def distort(self, settlement: Settlement) -> Settlement:
        if settlement.outcome != CRASHED:
            return settlement
        released = Postpone(delay=timedelta(0), reason=Reason.RELEASE)
        return replace(settlement, verdict=released, outcome=INTERRUPTED)


class ReleaseCounted(MistakenStore):
    """A release or a snooze keeps its attempt, as a retry does."""

    async def distort(self, settlement: Settlement) -> Settlement:
        if not isinstance(settlement.verdict, Postpone):
            return settlement
        return replace(settlement, verdict=replace(settlement.verdict, reason=Reason.RETRY))


class ReleaseForgotten(MistakenStore):
    """What a stopping worker releases never reaches the store, which is told that the worker holds it."""

    def __init__(self, inner: Store, forgotten: list[Lease] | None = None) -> None:
        super().__init__(inner)
        self._forgotten = [] if forgotten is None else forgotten

    def another(self) -> MistakenStore:
        return ReleaseForgotten(self.inner.another(), self._forgotten)

    async def distort(self, settlement: Settlement) -> Settlement | None:
        if settlement.outcome != INTERRUPTED:
            return settlement
        self._forgotten.append(settlement.lease)
        return None

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        return await self.inner.heartbeat(replace(beat, held=(*beat.held, *self._forgotten)))


class SuccessorsForgotten(MistakenStore):
    """A task completes, and what follows it is not enqueued."""

    async def distort(self, settlement: Settlement) -> Settlement:
        if not isinstance(settlement.verdict, Complete):
            return settlement
        return replace(settlement, verdict=replace(settlement.verdict, successors=()))


class TypesUnknown(MistakenStore):
    """A keeper does not find the task types that programs have published."""

    async def records(self, kind: type[R], page: Page) -> Slice[R]:
        return Slice(items=()) if kind is DeclaredType else await self.inner.records(kind, page)


class LostClaimsKept(MistakenStore):
    """Tasks of a claim whose reply was lost stay with the worker that never heard of them."""

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        return await self.inner.heartbeat(replace(beat, through=NO_CLAIMS))


class HeartbeatOnTheLoop(MistakenStore):
    """A heartbeat waits until the event loop that runs the handlers is free."""

    def __init__(self, inner: Store, loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__(inner)
        self._loop = loop

    def another(self) -> MistakenStore:
        return HeartbeatOnTheLoop(self.inner.another(), self._loop)

    async def open(self) -> None:
        self._loop = self._loop or asyncio.get_running_loop()
        await self.inner.open()

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        if self._loop not in (None, asyncio.get_running_loop()):
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_nothing(), self._loop))
        return await self.inner.heartbeat(beat)


async def _nothing() -> None:
    pass


# -- in the rules of limits --------------------------------------------------------------------------


def one_more_runs(store: Store) -> Store:
    """A cap lets one task more run than it says."""
    return _misread(store, "running", lambda cap: cap + 1)


def tokens_come_early(store: Store) -> Store:
    """A rate refills faster than it says."""
    return _misread(store, "rate", lambda rate: rate * 1.1)


def bucket_overflows(store: Store) -> Store:
    """More tasks start at once than a burst allows."""
    return _misread(store, "capacity", lambda capacity: capacity + 2)


def _misread(store: Store, name: str, change: Callable[[Any], Any]) -> Store:
    """From now on, let everybody in this process who reads this attribute of a limit get another value."""
    sound: Any = getattr(Limit, name)

    def misread(limit: Limit) -> Any:
        value = sound.__get__(limit)
        return None if value is None else change(value)

    setattr(Limit, name, property(misread))
    return store


# -- in a statement ----------------------------------------------------------------------------------


class Rewrite(NamedTuple):
    """A mistake in the SQL of one store: what matches `old` becomes `new`, in statements about `about`.

    All are regular expressions, which find a statement by what it does to which columns.
    """

    store: str
    old: str
    new: str
    about: str = ""
    unless: str = r"\Z\A"  # not in statements with this

    def rewritten(self) -> dict[Path, str]:
        """Return the statements that it changes, by the path of their file within the package."""
        found = {}
        for path in sorted((SOURCE / "_stores" / self.store).glob("**/sql/*.sql")):
            text = path.read_text()
            if re.search(self.about, text) and not re.search(self.unless, text):
                changed, number = re.subn(self.old, self.new, text)
                if number:
                    found[path.relative_to(SOURCE)] = changed
        return found

    def copy_to(self, folder: Path) -> None:
        """Make a copy of the package with the mistake in it."""
        shutil.copytree(SOURCE, folder / SOURCE.name, ignore=shutil.ignore_patterns("__pycache__"))
        for path, text in self.rewritten().items():
            (folder / SOURCE.name / path).write_text(text)


_RAISES_FENCE = r"(\bfence = (\w+\.)?fence) \+ 1"
_COUNTS_ATTEMPT = r"(\battempt = (\w+\.)?attempt) \+ 1"

# -- all of them -------------------------------------------------------------------------------------

Distortion = Callable[[Store], Store]
"""Puts a mistake into a process; takes and returns its store."""

MISTAKES: dict[str, Distortion | Rewrite] = {
    "a settlement is not fenced": Unfenced,
    "a crash does not count": CrashNotCounted,
    "a release keeps its attempt": ReleaseCounted,
    "a stopping worker forgets what it ran": ReleaseForgotten,
    "what follows a task is forgotten": SuccessorsForgotten,
    "what a lost claim took is not handed back": LostClaimsKept,
    "a keeper does not know the types of others": TypesUnknown,
    "the heart beats on the event loop": HeartbeatOnTheLoop,
    "one more runs than may": one_more_runs,
    "a rate is faster than it says": tokens_come_early,
    "a bucket is fuller than it can be": bucket_overflows,
    # Both claims and rescues raise the fence; a claim also counts the attempt.
    "a rescue does not raise the fence, sqlite": Rewrite(
        "sqlite", _RAISES_FENCE, r"\1", unless=_COUNTS_ATTEMPT
    ),
    "a rescue does not raise the fence, postgres": Rewrite(
        "postgres", _RAISES_FENCE, r"\1", unless=_COUNTS_ATTEMPT
    ),
    "an attempt is not counted at the claim": Rewrite("sqlite", _COUNTS_ATTEMPT, r"\1"),
    "permits are counted without a lock": Rewrite(
        "postgres", r"\bFOR UPDATE( SKIP LOCKED)?", "", about=r"\bbucket\b"
    ),
}


def distort(app: App, name: str) -> None:
    """Put a mistake into this process, whose app has not been opened yet."""
    mistake = MISTAKES[name]
    assert not isinstance(mistake, Rewrite)
    app.use_store(mistake(app.store.inner))
