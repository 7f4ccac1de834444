"""The store as a key without payloads sees it: whatever is read is masked whole before an operation gets it.

So no operation, page or stream can show more, whatever it does with what it has read. What could tell a
payload in another way is refused: searching for texts, comparing with a guess, and writing payloads.
"""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from time import monotonic
from typing import Any, NoReturn, ParamSpec, TypeVar, cast

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from .._model.alert import Alert, AlertState
from .._model.attempt import Attempt
from .._model.filter import (
    Action,
    By,
    CancelTasks,
    Count,
    Dimension,
    Discard,
    Filter,
    Page,
    Replay,
    Slice,
    Trigger,
    page_of,
)
from .._model.limit import COLUMNS, Limit, Quota, Usage
from .._model.options import DeclaredType
from .._model.queue import QueueSettings, Retention
from .._model.record import (
    Archive,
    Audit,
    Declaration,
    HistoryBucket,
    Record,
    Session,
    ShardMap,
)
from .._model.schedule import Schedule, Tick
from .._model.state import State
from .._model.task import RESERVED, Task
from .._model.transition import Applied, Pruned
from .._policy.secrets.shown import masked_usage
from .._policy.secrets.whole import (
    group_of,
    whole_alarm,
    whole_attempt,
    whole_audit,
    whole_declaration,
    whole_error,
    whole_schedule,
    whole_task,
    whole_transition,
    with_stored_documents,
)
from .._store.forward import ForwardingStore
from .._store.protocol import all_records
from ..errors import Conflict
from .bounds.quotas import QuotaStore, StoredUse
from .web.refusal import Reason, Refusal

P = ParamSpec("P")
R = TypeVar("R", bound=Record)
T = TypeVar("T")

_FORWARDED = ("ended", "migrations", "check")
"""Verbs that are passed on as they are, besides those that are defined here; all others are refused."""

_MASKED: dict[object, Callable[[Any], Any]] = {
    Schedule: whole_schedule,
    Audit: whole_audit,
    Declaration: whole_declaration,
    AlertState: whole_alarm,
}
_SEEN = (
    QueueSettings, Session, Limit, Quota, Tick, Alert, Archive, DeclaredType, HistoryBucket, ShardMap,
)  # fmt: skip
"""Records that hold nothing of a payload. Keys and logins are for admins; endpoints come from payloads."""

_PUT = (QueueSettings, Limit, Quota, Alert, DeclaredType)
_REMOVED = (*_PUT, Schedule, Tick, AlertState, Archive, Session)
_ACTIONS = (CancelTasks, Replay, Discard, Trigger)

_SEARCHED = (
    "ids", "states", "types", "queues", "tenants", "root", "chained", "created_after", "created_before",
    "finished_after", "finished_before", "expires_before",
)  # fmt: skip
"""Criteria of a filter that ask for what is seen."""

_LEARN_EVERY = 1.0  # seconds between two looks at which failures there are
_MAX_LOOKED_UP = 1_000  # failures that are looked up at once
_MAX_KNOWN = 20_000
_AT_ONCE = 4


class MaskedStore(ForwardingStore):
    """A store of which tasks and records are read masked whole."""

    def __init__(self, inner: QuotaStore) -> None:
        super().__init__(inner)
        self._quotas = inner
        self._key = secrets.token_bytes(32)
        self._groups: dict[str, str] = {}  # of a failure, the group that is shown in its place
        self._learned_at = -_LEARN_EVERY

    @property
    def use(self) -> StoredUse:
        """What tenants have stored."""
        return self._quotas.use

    def another(self) -> "MaskedStore":
        return MaskedStore(self._quotas.another())

    def _forward(
        self, verb: str, method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]:
        if verb not in _FORWARDED:
            _refuse(f"the verb {verb}")
        return method(*args, **kwargs)

    def join(self, connection: object) -> NoReturn:  # noqa: ARG002  of the protocol
        _refuse("a transaction")

    def transaction(self) -> NoReturn:
        _refuse("a transaction")

    def wakes(self, queues: Sequence[str]) -> NoReturn:  # noqa: ARG002
        _refuse("waiting for wakes")

    # -- tasks ---------------------------------------------------------------------------------------

    async def find(self, where: Filter, page: Page) -> Slice[Task]:
        found = await self.inner.find(await self._asked(where), page)
        return replace(found, items=tuple(map(whole_task, found.items)))

    async def count(self, where: Filter, by: Sequence[Dimension], *, sized: bool = False) -> Sequence[Count]:
        where = await self._asked(where)
        if Dimension.FAILURE not in by:
            return await self.inner.count(where, by, sized=sized)
        place = list(by).index(Dimension.FAILURE)
        counts = await self.inner.count(where, by, sized=sized)
        await self._learn(where, counts, place)
        alike: dict[tuple[str, ...], Count] = {}
        for one in counts:
            group = self._groups.get(one.values[place], "")
            values = (*one.values[:place], group, *one.values[place + 1 :])
            seen = replace(one, values=values)
            alike[values] = _sum(alike[values], seen) if values in alike else seen
        return [alike[values] for values in sorted(alike)]

    async def attempts(self, task_id: str) -> Sequence[Attempt]:
        return [whole_attempt(one) for one in await self.inner.attempts(task_id)]

    async def apply(self, action: Action, where: Filter, limit: int) -> Applied:
        if not isinstance(action, _ACTIONS):
            _refuse(f"the action {action.__struct_config__.tag}")
        if isinstance(action, Replay) and (action.payload is not None or action.fingerprint is not None):
            _refuse("writing a payload")
        applied = await self.inner.apply(action, await self._asked(where), limit)
        return replace(applied, transitions=tuple(map(whole_transition, applied.transitions)))

    async def prune(self, default: Retention, limit: int, by: By | None = None) -> Pruned:
        pruned = await self.inner.prune(default, limit, by)
        return replace(pruned, transitions=tuple(map(whole_transition, pruned.transitions)))

    async def _asked(self, where: Filter) -> Filter:
        """Return a filter with failures in place of their groups; refuse one that asks for what is hidden."""
        given = {name for name in where.__struct_fields__ if getattr(where, name) not in (None, False)}
        hidden = given.difference(_SEARCHED, ("failures",))
        if where.idempotency_key is not None and where.idempotency_key.startswith(RESERVED):
            hidden.discard("idempotency_key")  # made from the name of a schedule and the time of a tick
        if hidden:
            _refuse(f"searching by {', '.join(sorted(hidden))}")
        if where.failures is None:
            return where
        if monotonic() >= self._learned_at + _LEARN_EVERY:
            self._learned_at = monotonic()
            dead = Filter(states=(State.DEAD,))
            await self._learn(dead, await self.inner.count(dead, (Dimension.FAILURE,)), 0)
        alike = (failure for failure, group in self._groups.items() if group in where.failures)
        unknown = ("",) if "" in where.failures else ()
        return replace(where, failures=(*unknown, *alike))

    async def _learn(self, where: Filter, counts: Iterable[Count], place: int) -> None:
        """Look up the groups of failures that are not known yet, the most frequent first."""
        numbers: dict[str, int] = defaultdict(int)
        for one in counts:
            numbers[one.values[place]] += one.number
        new = sorted(numbers.keys() - self._groups.keys() - {""}, key=lambda one: -numbers[one])
        room = asyncio.Semaphore(_AT_ONCE)

        async def look_up(failure: str) -> None:
            async with room:
                found = await self.inner.find(replace(where, failures=(failure,)), Page(limit=1))
            for task in found.items:
                self._groups[failure] = group_of(task.type, whole_error(task.error))

        await asyncio.gather(*map(look_up, new[:_MAX_LOOKED_UP]))
        while len(self._groups) > _MAX_KNOWN:
            del self._groups[next(iter(self._groups))]

    # -- records -------------------------------------------------------------------------------------

    async def records(self, kind: type[R], page: Page) -> Slice[R]:
        if kind is Usage:
            usages: Any = page_of(await self._usages(), page, lambda one: one.name)
            return cast("Slice[R]", usages)
        if kind not in _SEEN and kind not in _MASKED:
            _refuse(f"reading records of this kind ({kind.__name__})")
        found = await self.inner.records(kind, page)
        mask = _MASKED.get(kind)
        return found if mask is None else replace(found, items=tuple(map(mask, found.items)))

    async def _usages(self) -> list[Usage]:
        """Return the use of all limits, with digests in place of values that no task has as a name.

        A limit may have been counted by a payload field before. All are read, as a page of them would begin
        after a name that has a value.
        """
        limits = {limit.name: limit for limit in await all_records(self.inner, Limit)}
        usages = await all_records(self.inner, Usage)
        names: dict[str | None, set[str]] = {None: {""}}
        for by in COLUMNS:
            counted = {one.name for one in limits.values() if one.by == by}
            values = tuple({one.value for one in usages if one.limit in counted})
            if values:
                named: Any = {f"{by}s": values}
                found = await self.inner.count(Filter(**named), (Dimension(by),))
                names[by] = {one.values[0] for one in found if one.number}
        return [
            one
            if (limit := limits.get(one.limit)) is not None and one.value in names.get(limit.by, ())
            else masked_usage(one, self._key)
            for one in usages
        ]

    async def put(
        self, record: Record, by: By | None = None, expected: Record | UnsetType | None = UNSET
    ) -> None:
        if isinstance(record, Schedule):
            record, expected = await self._whole(record, expected)
        elif not isinstance(record, _PUT):
            _refuse(f"writing records of this kind ({type(record).__name__})")
        await self.inner.put(record, by, expected)

    async def _whole(
        self, schedule: Schedule, expected: Record | UnsetType | None
    ) -> tuple[Schedule, Record | UnsetType | None]:
        """Return a changed schedule and the expected one with the stored documents."""
        stored = {one.name: one for one in await all_records(self.inner, Schedule)}.get(schedule.name)
        if isinstance(expected, Schedule):
            if stored is None or expected != whole_schedule(stored):
                raise Conflict(f"the schedule {schedule.name!r} has been changed meanwhile")
            expected = stored
        whole = None if stored is None or expected is None else with_stored_documents(schedule, stored)
        if whole is None:
            _refuse("writing the payload of a schedule, or giving it another type or tenant,")
        return whole, expected

    async def remove(self, kind: type[Record], name: str, by: By | None = None) -> bool:
        if kind not in _REMOVED:
            _refuse(f"removing records of this kind ({kind.__name__})")
        return await self.inner.remove(kind, name, by)


def _sum(one: Count, other: Count) -> Count:
    due = [count.oldest_at for count in (one, other) if count.oldest_at is not None]
    return Count(
        values=one.values,
        number=one.number + other.number,
        exact=one.exact and other.exact,
        oldest_at=min(due, default=None),
        steps=one.steps + other.steps,
        bytes=one.bytes + other.bytes,
    )


def _refuse(what: str) -> NoReturn:
    raise Refusal(
        "forbidden",
        f"this key has the scope observe, which shows no payloads and texts: {what} needs another key",
        Reason.SCOPE,
    )
