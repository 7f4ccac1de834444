"""Operator: inspect what is in the store, and act on it."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Unpack

from msgspec.structs import replace

from .._handler.task_types import TaskTypes
from .._model.attempt import Attempt
from .._model.filter import (
    MAX_PAGE,
    By,
    CancelTasks,
    Count,
    Dimension,
    Discard,
    Failure,
    Filter,
    Page,
    Replay,
    Reveal,
    Slice,
)
from .._model.options import DeclaredType
from .._model.queue import QueueSettings, Retention
from .._model.record import ARCHIVE_NAME, Archive, Audit, AuditFilter, Session
from .._model.state import PENDING, REPLAYABLE, State
from .._model.task import Task, TaskId
from .._observe.history_reader import HistoryReader
from .._policy.history.points import History
from .._policy.input.fingerprint import fingerprint_like
from .._policy.input.options import parse_choice
from .._policy.input.quote import quoted, suggestion
from .._policy.order.queue_options import QueueChanges
from .._policy.secrets.encrypted import refuse_marked
from .._policy.secrets.shown import edited_payload, masked_attempt, task_mask
from .._store.protocol import Finding, Migration, Promise, Store
from ..errors import InvalidOption, NotFound, Refused
from .alerts import Alerts
from .builder import checked_aside
from .client import Handle, LoopThread
from .encryption import Encryption
from .endpoints import Endpoints
from .keys import Keys
from .limits import Limits
from .published_types import KnownTypes
from .queues import QueueEditor
from .quotas import Quotas
from .records import list_records, search_audit
from .schedules import Schedules
from .tasks.batches import apply_in_batches, apply_to, prune_in_batches
from .tasks.export import EndedTask, export_tasks, next_ones
from .tasks.failures import MAX_FAILURES, find_failures
from .tasks.replays import Pace, replay_in_batches

DEAD = Filter(states=(State.DEAD,))


class Operator:
    """Inspect a store and act on what is in it: `app.operator`. Changes go into the audit log.

        await app.operator.replay(Filter(types=("mail.welcome",), states=(State.DEAD,)), by=By(who="ann"))

    `keys`, `limits`, `quotas`, `alerts`, `schedules`, `endpoints` and `encryption` manage these.
    """

    def __init__(self, store: Store, by: By, types: KnownTypes | None = None) -> None:
        self._store = store
        self._by = by
        self._types = types or KnownTypes(store, TaskTypes())
        self._history = HistoryReader(store)
        self._queues = QueueEditor(store, by, self._types)
        self.keys = Keys(store, by)
        self.limits = Limits(store, by, self._types)
        self.quotas = Quotas(store, by)
        self.alerts = Alerts(store, by)
        self.encryption = Encryption(store, by)
        self.endpoints = Endpoints(store, by)
        self.schedules = Schedules(store, by, self._types)

    def acting_as(self, by: By) -> "Operator":
        """Return an operator on the same store whose changes are recorded as made by `by`."""
        operator = Operator(self._store, by, self._types)
        operator._history = self._history  # keeps what it has read
        return operator

    # -- inspect -----------------------------------------------------------------------------------------

    async def task(self, task_id: TaskId) -> Task:
        """Return one task; raises NotFound if there is none."""
        return await Handle(self._store, task_id, types=self._types).task()

    async def attempts(self, task_id: TaskId) -> Sequence[Attempt]:
        """List the attempts of a task that have ended, oldest first. An unknown task has none."""
        found = (await self.find(Filter(ids=(task_id,)), Page(limit=1))).items
        attempts = await self._store.attempts(task_id)
        return tuple(masked_attempt(one, mask) for mask in map(task_mask, found) for one in attempts)

    async def find(self, where: Filter | None = None, page: Page | None = None) -> Slice[Task]:
        """Return a page of the tasks that match, oldest first unless `page` says otherwise.

        `where`: [default: all tasks]. `page`: at most 1,000 tasks [default: the first 100]; with the `cursor`
        of the page before, the next one. The cursor of the last page is None.
        """
        page = page or Page()
        if not 1 <= page.limit <= MAX_PAGE:
            raise InvalidOption(f"a page holds 1 to {MAX_PAGE} tasks, not {page.limit}")
        await self._store.open()
        found = await self._store.find(where or Filter(), page)
        return replace(found, items=await self._types.with_result_secrets(found.items))

    async def every(self, where: Filter | None = None) -> AsyncIterator[Task]:
        """Iterate over all tasks that match, oldest first, read a page at a time."""
        page = Page(limit=MAX_PAGE)
        while True:
            found = await self.find(where, page)
            for task in found.items:
                yield task
            if found.cursor is None:
                return
            page = replace(page, cursor=found.cursor)

    def export(self, where: Filter | None = None, *, after: str | None = None) -> AsyncIterator[EndedTask]:
        """Iterate over the ended tasks that match, with their attempts, oldest end first.

            async for ended in app.operator.export(Filter(types=("mail.welcome",))):
                archive(ended.task, ended.attempts)

        `after` is the `cursor` of an exported task: the export goes on behind it, without loss or repetition.
        Tasks that ended less than 5 seconds ago are left for the next export. A task that was replayed
        and has ended again is exported again. Raises InvalidOption.
        """
        return export_tasks(self._store, self._types, where or Filter(), after)

    def export_sync(
        self, loop: LoopThread, where: Filter | None = None, *, after: str | None = None
    ) -> Iterator[EndedTask]:
        """Do the same for a thread without an event loop."""
        exported = export_tasks(self._store, self._types, where or Filter(), after)
        try:
            while some := loop.run(next_ones(exported)):
                yield from some
        finally:
            loop.run(exported.aclose())

    async def count(self, where: Filter | None = None, by: Sequence[Dimension | str] = ()) -> Sequence[Count]:
        """Count the tasks that match, in groups by these dimensions; without any, in one group.

        A dimension may be given by its name, as in `["queue", "state"]`. Raises InvalidOption.
        """
        if isinstance(by, str):
            raise InvalidOption(f"by must be a list of dimensions, as in ['state'], got {quoted(by)}")
        dimensions = tuple(parse_choice(Dimension, one, "by") for one in by)
        await self._store.open()
        return await self._store.count(where or Filter(), dimensions)

    async def failures(self, where: Filter | None = None, *, limit: int = MAX_FAILURES) -> Sequence[Failure]:
        """Return what the dead tasks that match failed with, the most frequent failure first.

            for failure in await app.operator.failures():
                print(failure.number, failure.type, failure.error)

        `where`: [default: all dead tasks]. `limit`: at most this many, 1 to 50 [default: 50]. The tasks of
        one match `Filter(failures=(failure.id,))`. Raises InvalidOption.
        """
        if not 1 <= limit <= MAX_FAILURES:
            raise InvalidOption(f"limit must be 1 to {MAX_FAILURES}, got {limit}")
        return await find_failures(self.count, self.find, where or Filter(), limit)

    async def workers(self) -> Sequence[Session]:
        """List the sessions of workers; expired ones are listed until their tasks have been rescued."""
        return await list_records(self._store, Session)

    async def queues(self) -> Sequence[QueueSettings]:
        """List the settings of the queues that have any, by name."""
        return await list_records(self._store, QueueSettings)

    async def types(self) -> Sequence[DeclaredType]:
        """List the task types that apps have published, by name: their defaults, backoff and retention."""
        return await list_records(self._store, DeclaredType)

    async def remove_type(self, name: str) -> None:
        """Remove a published type that no app declares any more; raises NotFound if there is none.

        Its tasks stay, and follow the defaults.
        """
        await self._store.open()
        if not await self._store.remove(DeclaredType, name, self._by):
            known = [one.name for one in await self.types()]
            hint = suggestion(str(name)[:200], known, "`windlass types list` shows all types")
            raise NotFound(f"no app has published a task type {quoted(name)}{hint}")

    async def audit(self, page: Page | None = None, where: AuditFilter | None = None) -> Slice[Audit]:
        """Return a page of the audit log, newest first; with `where` of 5,000 entries those that match."""
        await self._store.open()
        return await search_audit(self._store, where or AuditFilter(), page or Page(newest_first=True))

    async def history(self, period: timedelta | float | str = "1h") -> History:
        """Return what happened in this period, up to now: tasks that ended, how long they took, depths.

        `period`: at most 91 days; up to 4 hours in steps of 10 seconds, up to a day of a minute, else of an
        hour. Steps are there once they are over. It may be called every second. Raises InvalidOption.
        """
        return await self._history.read(period)

    # -- act -----------------------------------------------------------------------------------------

    async def cancel(self, where: Filter, *, by: By, limit: int | None = None) -> int:
        """Cancel the tasks that match and have not ended; running ones are asked to stop.

        `by` is for the audit log. Cancels at most `limit` tasks [default: all]. Returns how many were
        cancelled or asked to stop.
        """
        await self._store.open()
        action = CancelTasks(by=by)
        wanted = tuple(State) if where.states is None else where.states
        done = 0
        # Pending tasks leave the filter as they are cancelled; running ones stay in it, and are asked once.
        if pending := tuple(state for state in PENDING if state in wanted):
            done = await apply_in_batches(self._store, action, replace(where, states=pending), limit)
        if State.RUNNING in wanted:
            running = [task.id async for task in self.every(replace(where, states=(State.RUNNING,)))]
            done += await apply_to(self._store, action, running if limit is None else running[: limit - done])
        return done

    async def replay(
        self,
        where: Filter = DEAD,
        *,
        by: By,
        payload: Mapping[str, Any] | bytes | None = None,
        per_second: float | None = None,
        spread: timedelta | float | str | None = None,
        limit: int | None = None,
    ) -> int:
        """Make dead tasks that match ready again, with all their attempts.

            await app.operator.replay(Filter(failures=(failure.id,)), by=By(who="ann"), spread="10m")

        `where`: [default: all dead tasks]; cancelled ones only by their `ids`, or if its `states` name them.
        `by` is for the audit log. `payload`: replaces that of a single task, as a mapping or as JSON; `where`
        must name its id. If it is the stored one as it is shown, with masks, the stored one stays; another
        one with masks is refused. `per_second`: at this rate; `spread`: evenly over this duration [default:
        all at once]. The tasks are then scheduled one after another, while their queues are open, and become
        ready whatever becomes of this program. `limit`: at most this many [default: all]. Returns how many
        were replayed. Raises InvalidOption; InvalidPayload if the payload does not fit the handler, as far as
        this app declares the type; Refused at a pace into a paused queue.
        """
        if payload is not None and (where.ids is None or len(where.ids) != 1):
            raise InvalidOption("an edited payload needs exactly one task id in the filter")
        action = Replay(by=by)
        if payload is not None and where.ids is not None:
            action = await self._edited(action, where.ids[0], payload)
        return await replay_in_batches(self._store, action, where, limit, Pace(per_second, spread))

    async def discard(self, where: Filter, *, by: By, limit: int | None = None) -> int:
        """Delete the dead tasks that match, for good.

        `by.why` must give a reason. Deletes at most `limit` tasks [default: all]. Returns how many.
        Raises InvalidOption without a reason.
        """
        if not by.why.strip():
            raise InvalidOption(
                "discarding cannot be undone: give a reason (why=…, --why on the command line)"
            )
        return await apply_in_batches(self._store, Discard(by=by), where, limit)

    async def replay_one(
        self, task_id: TaskId, *, by: By, payload: Mapping[str, Any] | bytes | None = None
    ) -> None:
        """Replay one task; `payload` as in `replay`. Raises NotFound, or Refused if it cannot be replayed."""
        if not await self.replay(Filter(ids=(task_id,)), by=by, payload=payload):
            task = await self.task(task_id)
            if task.state in REPLAYABLE:
                raise Refused(
                    f"task {task_id} cannot be replayed: it is unique, and an equal task has not ended"
                )
            raise Refused(f"task {task_id} is {task.state}; only dead or cancelled tasks can be replayed")

    async def discard_one(self, task_id: TaskId, *, by: By) -> None:
        """Discard one task; raises NotFound if there is none, Refused if it is not dead."""
        if not await self.discard(Filter(ids=(task_id,)), by=by):
            task = await self.task(task_id)
            raise Refused(f"task {task_id} is {task.state}; only dead tasks can be discarded")

    async def cancel_one(self, task_id: TaskId, *, by: By) -> State:
        """Cancel one task; returns its state, RUNNING if asked to stop. Raises NotFound, TaskFinished."""
        await Handle(self._store, task_id).cancel(by=by.who, why=by.why)
        return (await self.task(task_id)).state

    async def reveal(self, ids: Sequence[TaskId]) -> None:
        """Record in the audit log that the secrets of these tasks are shown; call it before you show them."""
        await apply_to(self._store, Reveal(by=self._by), ids)

    async def pause(self, queue: str, *, create: bool = False) -> None:
        """Pause a queue: no task of it is claimed until it is resumed. Running ones continue."""
        await self.set_queue(queue, paused=True, create=create)

    async def resume(self, queue: str, *, create: bool = False) -> None:
        """Resume a paused queue."""
        await self.set_queue(queue, paused=False, create=create)

    async def stripe(self, queue: str, stripes: int, *, create: bool = False) -> None:
        """Spread the queue's new tasks over this many stripes, 1 to 64; order holds within each.

        Programs notice within seconds. Tasks in former stripes are still claimed.
        """
        await self.set_queue(queue, stripes=stripes, create=create)

    async def set_queue(
        self,
        queue: str,
        *,
        create: bool = False,
        paused: bool | None = None,
        **changes: Unpack[QueueChanges],
    ) -> QueueSettings:
        """Change the settings of a queue that are given, and return all of them. None resets one.

            await app.operator.set_queue("mail", fairness="round_robin", weights={"acme": 3, "ada": None})

        This changes the weight of acme, removes that of ada and leaves the others. `paused` pauses or resumes
        the queue in the same step; None leaves that as it is. `create`: set up a queue that no task, worker,
        task type or setting names yet. See `App.queue`. Raises NotFound or InvalidOption.
        """
        return await self._queues.change(queue, changes, paused=paused, create=create)

    async def remove_queue(self, queue: str) -> None:
        """Remove the settings of a queue that is not used any more, so that it is no longer listed.

        Raises Refused while it has tasks that have not ended or are dead, or a live worker serves it;
        NotFound if it has no settings.
        """
        await self._store.open()
        now = await self._store.now()
        live = [one.worker for one in await self.workers() if one.expires_at > now]
        await self._queues.remove(queue, {name for worker in live for name in worker.queues})

    async def prune(self, default: Retention | None = None) -> int:
        """Delete ended tasks that are past their retention. Returns how many.

        A task's retention is that of its queue, else that of the app that declares its type, else `default`
        [default: 7 days; dead letters 14].
        """
        return await prune_in_batches(self._store, default or Retention(), self._by)

    async def archive(self) -> Archive | None:
        """Return how far history was archived, and where; None if archiving is off."""
        found = await list_records(self._store, Archive)
        return found[0] if found else None

    async def stop_archiving(self) -> None:
        """Turn archiving off: ended tasks are pruned by their retention again, archived or not.

        A keeper that has an archive turns it on again. Raises NotFound if it is off.
        """
        await self._store.open()
        if not await self._store.remove(Archive, ARCHIVE_NAME, self._by):
            raise NotFound("archiving is already off")

    # -- maintain ---------------------------------------------------------------------------------------

    @property
    def promise(self) -> Promise:
        """What an acknowledged write survives in this store: durable, relaxed or volatile, and why."""
        return self._store.promise

    async def now(self) -> datetime:
        """Return the time of the store's clock, which sets all instants of tasks."""
        await self._store.open()
        return await self._store.now()

    async def check(self) -> Sequence[Finding]:
        """Check the store's health and return what was found."""
        return await self._store.check()

    async def migrations(self) -> Sequence[Migration]:
        """List the migrations of the store's schema, applied or not."""
        return await self._store.migrations()

    async def migrate(self, target: int | None = None) -> Sequence[Migration]:
        """Migrate the schema up or down to a version [default: the newest]; returns the steps taken."""
        return await self._store.migrate(target)

    # -- helpers -----------------------------------------------------------------------------------------

    async def _edited(self, action: Replay, task_id: TaskId, new: Mapping[str, Any] | bytes) -> Replay:
        """Return the replay with a new payload of the task, checked as by an enqueue, and its fingerprint."""
        found = (await self.find(Filter(ids=(task_id,)), Page(limit=1))).items
        read = await checked_aside(new, None)
        if not found:
            return replace(action, payload=read)
        (task,) = found
        if edited_payload(read, task) is None:
            return action
        result_into = task.result_into if task.after else None  # its results are added when it runs
        edited = await checked_aside(new, self._types.declared.find(task.type), result_into)
        refuse_marked(edited)
        self._types.check_keys(task)
        fingerprint = fingerprint_like(task.fingerprint, task.type, edited, task.priority, task.tenant)
        return replace(action, payload=edited, fingerprint=fingerprint)
