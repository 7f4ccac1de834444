"""Tests of a Django project: tasks run in the test's own thread and transaction."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async

from ..._model.state import State
from ..._model.task import Enqueued, NewTask, Task, TaskId
from ...app import App
from ...tasktype import TaskType
from ...testing.assertions import Wanted, check_enqueued, check_not_enqueued
from ...testing.clock import ManualClock
from ...testing.harness import Harness
from ...testing.harness_store import HarnessStore
from . import app

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class WindlassTestMixin:
    """For `TestCase` and `TransactionTestCase`: tasks are kept in memory and run when the test says so.

        class OrderTest(WindlassTestMixin, TestCase):
            def test_receipt(self):
                self.client.post("/orders/", {"item": "rope"})
                self.assertEnqueued(send_receipt)
                self.run_tasks()
                self.assertEqual(len(mail.outbox), 1)

    Handlers run in the thread of the test, so they see what it has written and did not commit. A task of a
    transaction, or a savepoint, that was rolled back is gone.
    """

    def setUp(self) -> None:
        """Use a store in memory until the end of the test."""
        super().setUp()  # type: ignore[misc]  # of the test case
        stack = ExitStack()
        self.tasks = stack.enter_context(in_memory())
        self.addCleanup(stack.close)  # type: ignore[attr-defined]

    def run_tasks(self, *, raise_errors: bool = True) -> int:
        """Run all tasks that are due, and those that follow from them; return the number of runs.

        The first exception of a handler is raised here, unless `raise_errors` is False: then its task is
        retried or buried as in production.
        """
        return self.tasks.run(raise_errors=raise_errors)

    def advance(self, by: timedelta | float | str) -> None:
        """Advance the clock of the store; what is due then runs with the next `run_tasks`."""
        self.tasks.harness.advance(by)

    def enqueued(self, of: TaskType[Any, Any, Any] | Any = None, *states: State) -> list[Task]:
        """Return the tasks in the store, oldest first: of a type or Django task, in these states, or all."""
        return self.tasks.find(of, *states)

    def assertEnqueued(self, of: TaskType[Any, Any, Any] | Any, **payload: Any) -> None:  # noqa: N802
        """Fail unless there is a task of this type or Django task whose payload has these values."""
        __tracebackhide__ = True
        check_enqueued(self.enqueued(), Wanted(type=_name(of), payload=payload or None), None)

    def assertNotEnqueued(self, of: TaskType[Any, Any, Any] | Any, **payload: Any) -> None:  # noqa: N802
        """Fail if there is a task of this type or Django task whose payload has these values."""
        __tracebackhide__ = True
        check_not_enqueued(self.enqueued(), Wanted(type=_name(of), payload=payload or None))


class InMemoryTasks:
    """The app of the project on a store in memory."""

    def __init__(self, harness: Harness, store: "TransactionStore") -> None:
        self.harness = harness
        self._store = store

    def run(self, *, raise_errors: bool = True) -> int:
        """Run all tasks that are due, in this thread."""
        self._store.forget_rolled_back()
        with in_this_thread(self.harness.app):
            return async_to_sync(self.harness.arun_until_idle)(raise_errors=raise_errors)

    def find(self, of: Any = None, *states: State) -> list[Task]:
        """Return the tasks that are in the store."""
        self._store.forget_rolled_back()
        return self.harness.tasks(None if of is None else _name(of), *states)


class AdvancedClock(ManualClock):
    """The system's clock, plus what the test has advanced it by: instants compare with Django's."""

    def __init__(self) -> None:
        super().__init__(_EPOCH)

    def now(self) -> datetime:
        """Return the current instant in UTC."""
        return datetime.now(UTC) + (super().now() - _EPOCH)


@contextmanager
def in_memory() -> Iterator[InMemoryTasks]:
    """Put the app of the project on a store in memory for a block."""
    app.follow_database()
    clock = AdvancedClock()
    store = TransactionStore(clock=clock)
    before = app.use_store(store)
    try:
        yield InMemoryTasks(Harness(app, clock), store)
    finally:
        app.use_store(before)


@contextmanager
def in_this_thread(tested: App) -> Iterator[None]:
    """Run the handlers of an app in the thread that called async code, all of them, for a block."""
    kept = [(spec, spec.handler, spec.is_async, spec.process) for spec in tested.types.values()]
    for spec, handler, is_async, _ in kept:
        if not is_async:
            spec.handler, spec.is_async, spec.process = sync_to_async(handler), True, False
    try:
        yield
    finally:
        for spec, handler, is_async, process in kept:
            spec.handler, spec.is_async, spec.process = handler, is_async, process


class TransactionStore(HarnessStore):
    """A store in memory that forgets what was enqueued in transactions of Django that were rolled back."""

    def __init__(self, *, clock: ManualClock) -> None:
        super().__init__(clock=clock)
        self._uncommitted: dict[Callable[[], None], tuple[Any, Sequence[TaskId]]] = {}

    def join(self, connection: Any) -> Any:
        """Join the transaction that is open on a connection of Django; others as the harness does."""
        return (
            DjangoJoin(self, connection) if hasattr(connection, "run_on_commit") else super().join(connection)
        )

    def enqueue_within(self, batch: Sequence[NewTask], connection: Any) -> Sequence[Enqueued]:
        """Enqueue at once, and remember in which transaction."""
        if any(new.fingerprint or new.idempotency_key for new in batch):
            self.forget_rolled_back()  # no duplicates of these
        enqueued = self.admit(batch)

        def commit() -> None:
            self._uncommitted.pop(commit, None)

        created = [one.id for one in enqueued if one.created]
        self._uncommitted[commit] = connection, created
        connection.on_commit(commit)
        return enqueued

    def forget_rolled_back(self) -> None:
        """Forget the tasks of transactions and savepoints that were rolled back."""
        for commit, (connection, ids) in [*self._uncommitted.items()]:
            if commit not in [pending[1] for pending in connection.run_on_commit]:
                del self._uncommitted[commit]
                self._forget(ids)

    def _forget(self, ids: Sequence[TaskId]) -> None:
        with self._locked() as (tables, _):
            for task in [tables.tasks[one] for one in ids if one in tables.tasks]:
                if task.fingerprint is not None and tables.standing.get(task.fingerprint) == task.id:
                    del tables.standing[task.fingerprint]
                tables.forget(task)


class DjangoJoin:
    """An open transaction of Django, to a store in memory."""

    def __init__(self, store: TransactionStore, connection: Any) -> None:
        self._store = store
        self._connection = connection

    def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued]:
        """Enqueue until the transaction is rolled back."""
        return self._store.enqueue_within(batch, self._connection)


def _name(of: Any) -> str:
    """Return the name of a task type or Django task."""
    name: str = of if isinstance(of, str) else of.name if isinstance(of, TaskType) else of.module_path
    return name
