"""EncryptedStore: wraps a store so that it never gets the secret fields of tasks in plain text."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from .._handler.predecessors import secrets_in_results
from .._model.brief import Brief
from .._model.filter import (
    MAX_PAGE,
    Action,
    By,
    Filter,
    Page,
    Replay,
    Rewrite,
    Rewritten,
    Slice,
    TaskDocuments,
    documents_of,
)
from .._model.lease import Claim, Claimed
from .._model.record import Record
from .._model.schedule import Schedule
from .._model.state import State
from .._model.task import Enqueued, NewTask, Task, TaskId
from .._model.transition import Applied
from .._model.verdict import Bury, Complete, Settled, Settlement
from .._policy.schedule import schedule_fingerprint
from .._policy.secrets.encrypted import MARKER, key_ids
from .._policy.secrets.fields import merged
from .._store.forward import ForwardingStore
from .._store.protocol import Join, Store, all_records
from ..errors import Conflict, Refused, StoreError
from .documents import UNREADABLE, Documents, Place, encrypted_paths, repeatable, values_of
from .keys import Keyring

R = TypeVar("R", bound=Record)
T = TypeVar("T")

_MAX_RUNNING = 20_000
_ROTATE_ATTEMPTS = 5  # of tasks that workers change between what is read and what is written


class _Secrets(Brief, Struct, frozen=True):
    """What the result of a running task, and its successors, must be encrypted by."""

    place: Place
    names: tuple[str, ...]
    payload: bytes
    taken: tuple[str, ...]  # secret values in the results that it takes

    def values(self) -> tuple[str, ...]:
        """Return the secret values of these results and, unless it could not be decrypted, of its payload."""
        own = () if MARKER in self.payload else values_of(self.payload, self.names)
        return (*own, *self.taken)


class RotatedTasks(Struct, frozen=True):
    """What became of the tasks of a page: how many were read, rewritten, and cannot be decrypted in part."""

    read: int
    rewritten: int
    locked: int
    cursor: str | None


class EncryptedStore(ForwardingStore):
    """A store whose tasks and schedules have their secret fields encrypted.

    What the ring cannot decrypt is returned as it is stored, encrypted.
    """

    def __init__(self, inner: Store, keyring: Keyring) -> None:
        super().__init__(inner)
        self.keyring = keyring
        self._documents = Documents(keyring)
        # Of tasks that were claimed or read while they ran; None if they have no secrets.
        self._running: dict[TaskId, _Secrets | None] = {}

    def another(self) -> "EncryptedStore":
        return EncryptedStore(self.inner.another(), self.keyring)

    # -- tasks that are written ----------------------------------------------------------------------

    def enqueue(self, batch: Sequence[NewTask]) -> Coroutine[Any, Any, Sequence[Enqueued]]:
        return self.inner.enqueue([self._encrypted(new) for new in batch])

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        unknown = [
            one.lease.task_id for one in batch if _may_tell(one) and one.lease.task_id not in self._running
        ]
        if unknown:
            await self._look_up(unknown)
        settled = await self.inner.settle([self._encrypted_settlement(one) for one in batch], claim)
        for one in batch:
            self._running.pop(one.lease.task_id, None)
        return replace(settled, claimed=await self._claimed(settled.claimed)) if settled.claimed else settled

    def join(self, connection: object) -> Join:
        return _EncryptedJoin(self.inner.join(connection), self._encrypted, self._encrypted_in_join)

    async def apply(self, action: Action, where: Filter, limit: int) -> Applied:
        if not isinstance(action, Replay) or action.payload is None:
            return await self.inner.apply(action, where, limit)
        applied = Applied()
        page = Page(limit=MAX_PAGE)
        while True:  # Each task has its own place, and perhaps secrets of its own.
            found = await self.inner.find(where, page)
            for task in found.items:
                if len(applied.ids) < limit:
                    edited = self._edited(action, task)
                    applied += await self.inner.apply(edited, replace(where, ids=(task.id,)), 1)
            if found.cursor is None or len(applied.ids) >= limit:
                return applied
            page = replace(page, cursor=found.cursor)

    # -- tasks that are read -------------------------------------------------------------------------

    async def claim(self, claim: Claim) -> Sequence[Claimed]:
        return await self._claimed(await self.inner.claim(claim))

    async def rescue(self, session: str, limit: int) -> Sequence[Claimed]:
        return await self._claimed(await self.inner.rescue(session, limit))

    async def find(self, where: Filter, page: Page) -> Slice[Task]:
        found = await self.inner.find(where, page)
        items = tuple([self._decrypted(task) for task in found.items])
        if where.ids is not None:  # perhaps to settle them, as servers do for workers in other languages
            for task in items:
                if task.state is State.RUNNING:
                    self._remember(task, await self._taken(task))
        return replace(found, items=items)

    # -- schedules -----------------------------------------------------------------------------------

    async def put(
        self, record: Record, by: By | None = None, expected: Record | UnsetType | None = UNSET
    ) -> None:
        if not isinstance(record, Schedule) or not (record.secret or record.next):
            return await self.inner.put(record, by, expected)
        encrypted = self._encrypted_schedule(record)
        for stored in await all_records(self.inner, Schedule):
            if stored.name == record.name:
                plain = self._decrypted_schedule(stored)
                if plain == expected:  # Only the stored one has the same ciphertext.
                    expected = stored
                if (plain.payload, plain.next) == (
                    record.payload,
                    record.next,
                ):  # unchanged, for the audit log
                    kept = stored.payload, stored.next, stored.fingerprint
                    encrypted = replace(encrypted, payload=kept[0], next=kept[1], fingerprint=kept[2])
        return await self.inner.put(encrypted, by, expected)

    async def records(self, kind: type[R], page: Page) -> Slice[R]:
        found = await self.inner.records(kind, page)
        if kind is not Schedule:
            return found
        items: Any = tuple(self._decrypted_schedule(one) for one in found.items if isinstance(one, Schedule))
        return replace(found, items=items)

    # -- encrypt -------------------------------------------------------------------------------------

    def _encrypted(self, new: NewTask, values: tuple[str, ...] = ()) -> NewTask:
        if not new.secret and new.next is None and not values:
            return new
        place = Place(new.type, new.tenant)
        payload = self._documents.encrypt_payload(new.payload, place, new.secret, values)
        steps = None if new.next is None else self._documents.encrypt_steps(new.next, new.tenant, values)
        if payload == new.payload:
            return new if steps == new.next else replace(new, next=steps)
        return replace(
            new,
            payload=payload,
            next=steps,
            fingerprint=None if new.fingerprint is None else self.keyring.keyed(new.fingerprint),
            idempotency_digest=self.keyring.keyed(new.idempotency_digest),
        )

    def _encrypted_settlement(self, settlement: Settlement) -> Settlement:
        verdict = settlement.verdict
        if not isinstance(verdict, Complete | Bury):
            return settlement
        known = self._running.get(settlement.lease.task_id)
        result = verdict.result if isinstance(verdict, Complete) else None
        values: tuple[str, ...] = ()
        if known is not None and (result is not None or verdict.successors):
            values = known.values()
        if result is not None and known is not None:
            values = (*values, *values_of(result, known.names))
            result = self._documents.encrypt_result(result, known.place, known.names, values)
        successors = tuple([self._encrypted(new, values) for new in verdict.successors])
        if isinstance(verdict, Bury):
            return replace(settlement, verdict=replace(verdict, successors=successors))
        if result == verdict.result and successors == verdict.successors:
            return settlement
        return replace(settlement, verdict=Complete(result=result, successors=successors))

    def _encrypted_in_join(self, settlement: Settlement) -> Settlement:
        task_id = settlement.lease.task_id
        if _may_tell(settlement) and task_id not in self._running:
            raise Refused(
                f"task {task_id} was claimed elsewhere, so its result cannot be encrypted here; settle it "
                f"without a transaction"
            )
        return self._encrypted_settlement(settlement)

    def _edited(self, action: Replay, task: Task) -> Replay:
        assert action.payload is not None
        place = Place(task.type, task.tenant)
        payload = self._documents.encrypt_payload(action.payload, place, task.secret)
        if payload == action.payload or action.fingerprint is None:
            return replace(action, payload=payload)
        return replace(action, payload=payload, fingerprint=self.keyring.keyed(action.fingerprint))

    def _encrypted_schedule(self, schedule: Schedule) -> Schedule:
        place = Place(schedule.type, schedule.tenant)
        payload = self._documents.encrypt_payload(schedule.payload, place, schedule.secret)
        steps = schedule.next
        if steps is not None:
            steps = self._documents.encrypt_steps(steps, schedule.tenant)
        fingerprint = schedule.fingerprint
        if payload != schedule.payload and (plain := schedule_fingerprint(schedule)) is not None:
            fingerprint = self.keyring.keyed(plain)
        return replace(schedule, payload=payload, next=steps, fingerprint=fingerprint)

    # -- decrypt -------------------------------------------------------------------------------------

    async def _claimed(self, claimed: Sequence[Claimed]) -> tuple[Claimed, ...]:
        made = []
        for one in claimed:
            task = self._decrypted(one.task)
            with suppress(StoreError):  # it is looked up when the task is settled
                self._remember(task, await self._taken(task))
            made.append(one if task is one.task else Claimed(task))
        return tuple(made)

    def _decrypted(self, task: Task) -> Task:
        changes: dict[str, Any] = {}
        if MARKER in task.payload:
            changes["payload"] = self._documents.decrypt_payload(task.payload, Place(task.type, task.tenant))
        if task.next is not None and MARKER in task.next:
            changes["next"] = self._documents.decrypt_steps(task.next, task.tenant)
        if task.result is not None and MARKER in task.result:
            changes["result"] = self._documents.decrypt_result(task.result, Place(task.type, task.tenant))
            if task.result_into is not None and task.after:  # what it repeats was secret in other tasks
                with suppress(*UNREADABLE):
                    changes["secret"] = merged(task.secret, encrypted_paths(task.result, task.secret))
        return replace(task, **changes) if changes else task

    def _decrypted_schedule(self, schedule: Schedule) -> Schedule:
        place = Place(schedule.type, schedule.tenant)
        payload = self._documents.decrypt_payload(schedule.payload, place)
        steps = schedule.next
        if steps is not None and MARKER in steps:
            steps = self._documents.decrypt_steps(steps, schedule.tenant)
        fingerprint = schedule.fingerprint if MARKER in payload else None
        return replace(schedule, payload=payload, next=steps, fingerprint=fingerprint)

    # -- rotate --------------------------------------------------------------------------------------

    async def rotate_tasks(self, page: Page, by: By) -> RotatedTasks:
        """Encrypt the tasks of a page with the first key, also those that were not encrypted.

        Tasks that change meanwhile are read again. One that changes each time is left for the next rotation.
        """
        found = await self.inner.find(Filter(), page)
        tasks, rewritten, locked = found.items, 0, 0
        for attempt in range(_ROTATE_ATTEMPTS):
            renewed = [await self._renewed(task) for task in tasks]
            if attempt == 0:
                locked = sum(_needs_other_keys(one.after, self.keyring) for one in renewed)
            changed = tuple([one for one in renewed if one.after != one.before])
            if not changed:
                break
            done = (await self.inner.apply(Rewrite(by=by, tasks=changed), Filter(), len(changed))).ids
            rewritten += len(done)
            left = tuple({one.id for one in changed}.difference(done))
            if not left:
                break
            tasks = (await self.inner.find(Filter(ids=left), Page(limit=len(left)))).items
        return RotatedTasks(len(found.items), rewritten, locked, found.cursor)

    async def _renewed(self, task: Task) -> Rewritten:
        before = after = documents_of(task)
        with suppress(*UNREADABLE):
            taken = () if task.result is None else await self._taken(task)
            after = self._documents.renew(before, Place(task.type, task.tenant), task.secret, taken)
        return Rewritten(id=task.id, before=before, after=after)

    async def rotate_schedules(self, by: By) -> int:
        """Encrypt all schedules with the first key; return how many were not."""
        number = 0
        for stored in await all_records(self.inner, Schedule):
            before = TaskDocuments(payload=stored.payload, next=stored.next)
            after = self._documents.renew(before, Place(stored.type, stored.tenant), stored.secret)
            if after != before:
                fingerprint = self._encrypted_schedule(self._decrypted_schedule(stored)).fingerprint
                renewed = replace(stored, payload=after.payload, next=after.next, fingerprint=fingerprint)
                with suppress(Conflict):  # changed meanwhile, and so encrypted with the first key
                    await self.inner.put(renewed, by, stored)
                    number += 1
        return number

    # -- running tasks -------------------------------------------------------------------------------

    async def _taken(self, task: Task) -> tuple[str, ...]:
        """Return the secret values in the results that a task takes, which its own may repeat."""
        return repeatable(await secrets_in_results(self, task, _as_they_are))

    def _remember(self, task: Task, taken: tuple[str, ...] = ()) -> None:
        """Note what the result of a running task must be encrypted by: a settlement names only its lease."""
        secrets = None
        if task.secret or taken:
            secrets = _Secrets(Place(task.type, task.tenant), task.secret, task.payload, taken)
        self._running[task.id] = secrets
        if len(self._running) > _MAX_RUNNING:  # lost leases are never settled here; drop the oldest
            for task_id in [*islice(self._running, len(self._running) - _MAX_RUNNING)]:
                self._running.pop(task_id, None)

    async def _look_up(self, ids: Sequence[TaskId]) -> None:
        """Read running tasks that were claimed through another handle."""
        for start in range(0, len(ids), MAX_PAGE):
            part = tuple(ids[start : start + MAX_PAGE])
            await self.find(Filter(ids=part, states=(State.RUNNING,)), Page(limit=len(part)))


async def _as_they_are(tasks: Iterable[Task]) -> Iterable[Task]:
    """Return tasks with the secret fields that they are stored with: others were not encrypted."""
    return tasks


def _needs_other_keys(documents: TaskDocuments, keyring: Keyring) -> bool:
    """Whether values were left that the keys of the ring do not decrypt."""
    return bool({*key_ids(documents.payload, documents.next, documents.result)} - {keyring.first})


def _may_tell(settlement: Settlement) -> bool:
    """Whether a settlement has what may repeat secrets of its task."""
    verdict = settlement.verdict
    if isinstance(verdict, Complete) and verdict.result is not None:
        return True
    return isinstance(verdict, Complete | Bury) and bool(verdict.successors)


def encrypted_store(store: Store) -> EncryptedStore | None:
    """Return the store that encrypts: this one or one that it wraps; None if there is none."""
    wrapper: object = store
    while isinstance(wrapper, ForwardingStore):
        if isinstance(wrapper, EncryptedStore):
            return wrapper
        wrapper = wrapper.inner
    return None


def keyring_of(store: Store) -> Keyring | None:
    """Return the keys that a store, or one that it wraps, encrypts with; None if it does not."""
    found = encrypted_store(store)
    return None if found is None else found.keyring


def key_ids_of(store: Store) -> tuple[str, ...]:
    """Return the ids of these keys."""
    keyring = keyring_of(store)
    return () if keyring is None else keyring.ids


class _EncryptedJoin(Struct):
    """A join that encrypts what is written in the transaction."""

    _inner: Join
    _task: Callable[[NewTask], NewTask]
    _settlement: Callable[[Settlement], Settlement]

    def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued] | Awaitable[Sequence[Enqueued]]:
        return self._inner.enqueue([self._task(new) for new in batch])

    def settle(self, batch: Sequence[Settlement]) -> Settled | Awaitable[Settled]:
        return self._inner.settle([self._settlement(one) for one in batch])
