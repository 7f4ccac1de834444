"""Client and Operator for callers without an event loop: the same verbs, blocking."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar, Unpack

from msgspec.structs import replace

from .._model.attempt import Attempt
from .._model.filter import MAX_PAGE, By, Count, Dimension, Filter, Page, Slice
from .._model.options import Options
from .._model.queue import QueueSettings, Retention
from .._model.record import Audit, Session
from .._model.state import State
from .._model.task import NewTask, Progress, Task, TaskId
from .._policy.input.chain import Step
from .._policy.input.new_task import check_first_options
from .._policy.order.queue_options import QueueChanges
from .._store.protocol import Finding, Migration, Promise
from .alerts import SyncAlerts
from .client import Client
from .handle import Handle
from .keys import SyncKeys
from .limits import SyncLimits
from .loop import LoopThread
from .operator import DEAD, Operator
from .schedules import SyncSchedules

R = TypeVar("R")


class SyncHandle(Generic[R]):
    """One task, seen from a blocking program."""

    def __init__(self, handle: Handle[R], loop: LoopThread) -> None:
        self._handle = handle
        self._loop = loop

    def __repr__(self) -> str:
        return repr(self._handle)

    @property
    def id(self) -> TaskId:
        """The task's id."""
        return self._handle.id

    @property
    def created(self) -> bool:
        """False if it stood already."""
        return self._handle.created

    @property
    def following(self) -> tuple[TaskId, ...]:
        """The ids of the tasks that follow in its chain, when their time comes."""
        return self._handle.following

    def task(self) -> Task:
        """The task as it is now."""
        return self._loop.run(self._handle.task())

    def state(self) -> State:
        """Where it is in its life."""
        return self._loop.run(self._handle.state())

    def progress(self) -> Progress | None:
        """What its handler last said of how far it has come."""
        return self._loop.run(self._handle.progress())

    def wait(self, timeout: timedelta | float | str | None = None) -> Task:
        """The task once it has ended; NotFinished if that takes longer than `timeout`."""
        return self._loop.run(self._handle.wait(timeout))

    def result(self, timeout: timedelta | float | str | None = None) -> R:
        """What the handler returned; raises TaskDead, TaskCancelled or NotFinished if there is nothing."""
        return self._loop.run(self._handle.result(timeout))

    def cancel(self, *, by: str = "client", why: str = "") -> None:
        """Never start it, or ask it to stop; TaskFinished if it has ended."""
        self._loop.run(self._handle.cancel(by=by, why=why))


class SyncClient:
    """Enqueue tasks and follow them, blocking."""

    def __init__(self, client: Client, loop: LoopThread) -> None:
        self._client = client
        self._loop = loop

    def enqueue(
        self, step: Step, *, within: object | None = None, **options: Unpack[Options]
    ) -> SyncHandle[Any]:
        """Enqueue a step, with the chain that hangs on it. The options are those of a first task alone."""
        check_first_options(options)
        return self.enqueue_tasks([self._client.builder.task(step, options)], within=within)[0]

    def enqueue_many(self, steps: Iterable[Step], *, within: object | None = None) -> list[SyncHandle[Any]]:
        """Enqueue several steps, all or none."""
        return self.enqueue_tasks([self._client.builder.task(step) for step in steps], within=within)

    def enqueue_group(
        self, steps: Iterable[Step], then: Step, *, within: object | None = None
    ) -> list[SyncHandle[Any]]:
        """Enqueue several steps and one that waits until all of them have completed; its handle is last."""
        return self.enqueue_tasks(self._client.builder.group(steps, then), within=within)

    def send(
        self,
        type: str,
        payload: Mapping[str, Any] | None = None,
        *,
        within: object | None = None,
        **options: Unpack[Options],
    ) -> SyncHandle[Any]:
        """Enqueue by the type's name alone, for programs that do not have its handler."""
        return self.enqueue_tasks([self._client.builder.named(type, payload, options)], within=within)[0]

    def get(self, task_id: TaskId) -> SyncHandle[Any]:
        """A handle on a task that exists; NotFound otherwise."""
        return SyncHandle(self._loop.run(self._client.get(task_id)), self._loop)

    def enqueue_tasks(
        self, batch: Sequence[NewTask], *, result_type: Any = Any, within: object | None = None
    ) -> list[SyncHandle[Any]]:
        """Enqueue tasks that are made already, all or none."""
        handles = self._client.enqueue_tasks_sync(self._loop, batch, result_type=result_type, within=within)
        return [SyncHandle(handle, self._loop) for handle in handles]


class SyncOperator:
    """Look into a store, and act on what is there, blocking."""

    def __init__(self, operator: Operator, loop: LoopThread) -> None:
        self._operator = operator
        self._loop = loop
        self.keys = SyncKeys(operator.keys, loop)
        self.limits = SyncLimits(operator.limits, loop)
        self.alerts = SyncAlerts(operator.alerts, loop)
        self.schedules = SyncSchedules(operator.schedules, loop)

    def acting_as(self, by: By) -> "SyncOperator":
        """An operator of the same store whose changes the audit log puts down to this one."""
        return SyncOperator(self._operator.acting_as(by), self._loop)

    def task(self, task_id: TaskId) -> Task:
        """One task; NotFound if there is none."""
        return self._loop.run(self._operator.task(task_id))

    def attempts(self, task_id: TaskId) -> Sequence[Attempt]:
        """The settled attempts of a task, oldest first."""
        return self._loop.run(self._operator.attempts(task_id))

    def find(self, where: Filter | None = None, page: Page | None = None) -> Slice[Task]:
        """A page of the tasks that match."""
        return self._loop.run(self._operator.find(where, page))

    def every(self, where: Filter | None = None) -> Iterator[Task]:
        """All tasks that match, oldest first, fetched a page at a time."""
        page = Page(limit=MAX_PAGE)
        while True:
            found = self.find(where, page)
            yield from found.items
            if found.cursor is None:
                return
            page = replace(page, cursor=found.cursor)

    def count(self, where: Filter | None = None, by: Sequence[Dimension] = ()) -> Sequence[Count]:
        """How many match, by these dimensions."""
        return self._loop.run(self._operator.count(where, by))

    def workers(self) -> Sequence[Session]:
        """The worker sessions the store knows."""
        return self._loop.run(self._operator.workers())

    def queues(self) -> Sequence[QueueSettings]:
        """The queues that have settings of their own."""
        return self._loop.run(self._operator.queues())

    def audit(self, page: Page | None = None) -> Slice[Audit]:
        """Who did what to which task or record, and why."""
        return self._loop.run(self._operator.audit(page))

    def cancel(self, where: Filter, *, by: By, limit: int | None = None) -> int:
        """Cancel what has not ended."""
        return self._loop.run(self._operator.cancel(where, by=by, limit=limit))

    def replay(
        self,
        where: Filter = DEAD,
        *,
        by: By,
        payload: bytes | None = None,
        per_second: float | None = None,
        limit: int | None = None,
    ) -> int:
        """Bring dead or cancelled tasks back, perhaps edited, perhaps no faster than `per_second`."""
        replaying = self._operator.replay(where, by=by, payload=payload, per_second=per_second, limit=limit)
        return self._loop.run(replaying)

    def discard(self, where: Filter, *, by: By, limit: int | None = None) -> int:
        """Delete dead tasks for good. It takes a reason."""
        return self._loop.run(self._operator.discard(where, by=by, limit=limit))

    def cancel_one(self, task_id: TaskId, *, by: By) -> State:
        """Cancel this one, or say why not; RUNNING means that it has been asked to stop."""
        return self._loop.run(self._operator.cancel_one(task_id, by=by))

    def replay_one(self, task_id: TaskId, *, by: By, payload: bytes | None = None) -> None:
        """Replay this one, or say why not."""
        self._loop.run(self._operator.replay_one(task_id, by=by, payload=payload))

    def discard_one(self, task_id: TaskId, *, by: By) -> None:
        """Discard this one, or say why not."""
        self._loop.run(self._operator.discard_one(task_id, by=by))

    def prune(self, retention: Retention) -> int:
        """Delete now what this retention (or a queue's own) no longer covers."""
        return self._loop.run(self._operator.prune(retention))

    def pause(self, queue: str) -> None:
        """No task of this queue is claimed until it is resumed."""
        self._loop.run(self._operator.pause(queue))

    def resume(self, queue: str) -> None:
        """Let the queue go on."""
        self._loop.run(self._operator.resume(queue))

    def stripe(self, queue: str, stripes: int) -> None:
        """Spread the queue's new tasks over so many stripes; order then holds within each."""
        self._loop.run(self._operator.stripe(queue, stripes))

    def set_queue(
        self, queue: str, *, paused: bool | None = None, **changes: Unpack[QueueChanges]
    ) -> QueueSettings:
        """Change what is named of a queue's settings; None is the default."""
        return self._loop.run(self._operator.set_queue(queue, paused=paused, **changes))

    def now(self) -> datetime:
        """The store's clock, by which every instant here is told."""
        return self._loop.run(self._operator.now())

    def check(self) -> Sequence[Finding]:
        """What a person should know about the store."""
        return self._loop.run(self._operator.check())

    @property
    def promise(self) -> Promise:
        """What an acknowledged write survives in this store."""
        return self._operator.promise

    def migrations(self) -> Sequence[Migration]:
        """The steps of the store's schema."""
        return self._loop.run(self._operator.migrations())

    def migrate(self, target: int | None = None) -> Sequence[Migration]:
        """Bring the schema up, or down, to a version."""
        return self._loop.run(self._operator.migrate(target))
