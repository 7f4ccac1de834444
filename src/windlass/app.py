"""App: what a program declares, and the one place that chooses a store."""

import os
import random
import socket
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, Unpack, overload

from ._client.alerts import DeclaredAlerts
from ._client.client import Client
from ._client.declarations import Declarations
from ._client.handle import Handle
from ._client.loop import LoopThread
from ._client.operator import Operator
from ._client.schedules import DeclaredSchedules
from ._client.sync import SyncClient, SyncHandle, SyncOperator
from ._handler.spec import HandlerSpec, safe_backoff
from ._keeper.alerts import Alerting
from ._keeper.keeper import Keeper
from ._model.filter import By
from ._model.options import Defaults
from ._model.queue import Fairness, Level, Ordering, Retention
from ._model.schedule import ScheduleTiming
from ._model.task import DEFAULT_QUEUE, NewTask, Task
from ._observe.observed_store import ObservedStore
from ._observe.tracing import inherited_trace
from ._policy.alerts import AlertOptions, new_alert
from ._policy.backoff import Backoff, Delay
from ._policy.input import new_task as request
from ._policy.input.chain import Step
from ._policy.input.new_task import Origin
from ._policy.input.options import checked_name, checked_names
from ._policy.input.trace import synthetic_trace
from ._policy.order.limit_options import LimitOptions
from ._policy.order.queue_options import FairnessName, LevelName, QueueChanges
from ._policy.order.rank import parse_priority
from ._store.protocol import Store
from ._stores import open_store, place_of
from ._worker.process import run_process
from ._worker.worker import Worker, WorkerSettings
from .alerts import AlertEvent, checked_secret
from .config import api_key
from .errors import InvalidOption, UnknownTaskType
from .tasktype import TaskType

if TYPE_CHECKING:
    from ._observe.metrics import Metrics

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_STORE = "sqlite:///windlass.db"
LEASE = WorkerSettings().lease


class App:
    """Task types, queues and a store. Declare at import; nothing is opened until something is asked of it."""

    def __init__(
        self,
        store: str | Store = DEFAULT_STORE,
        *,
        backoff: Delay | None = None,
        retention: Retention | None = None,
        secret: Iterable[str] = (),
        identity: str | None = None,
        webhook_secret: str | None = None,
    ) -> None:
        found = open_store(store, key=api_key()) if isinstance(store, str) else store
        self.store = ObservedStore(found)
        self.place = place_of(store)
        self.types: Mapping[str, HandlerSpec] = {}
        self.retention = retention or Retention()
        self.backoff: Delay = safe_backoff(Backoff() if backoff is None else backoff)
        self._secret = checked_names(secret, "secret")
        self.alerting = Alerting(None if webhook_secret is None else checked_secret(webhook_secret))
        self._declarations = Declarations()
        self._alerts = DeclaredAlerts()
        self.schedules = DeclaredSchedules()
        self._identity = identity or _identity()
        self._loop = LoopThread()
        self._metrics: Metrics | None = None
        self.client = Client(self.store, ordering=self.ordering, origin=self.origin)
        self.operator = Operator(self.store, By(who=self._identity))
        self.sync_client = SyncClient(self.client, self._loop)
        self.sync_operator = SyncOperator(self.operator, self._loop)

    # -- declaring -----------------------------------------------------------------------------------

    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> TaskType[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> TaskType[P, R, R]: ...
    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int | str = 0,
        timeout: timedelta | float | str | None = None,
        backoff: Delay | None = None,
        max_attempts: int | None = None,
        fatal: type[BaseException] | tuple[type[BaseException], ...] = (),
        unique: bool = False,
        secret: Iterable[str] = (),
        process: bool = False,
        schedule: timedelta | float | str | None = None,
    ) -> "TaskDecorator": ...

    def task(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int | str = 0,
        timeout: timedelta | float | str | None = None,
        backoff: Delay | None = None,
        max_attempts: int | None = None,
        fatal: type[BaseException] | tuple[type[BaseException], ...] = (),
        unique: bool = False,
        secret: Iterable[str] = (),
        process: bool = False,
        schedule: timedelta | float | str | None = None,
    ) -> Any:
        """Declare a function as a task type.

        `fatal` are exceptions that retrying cannot help; `secret` are payload fields never shown;
        `process=True` runs it in a child process, which can be killed when its time is up; `schedule` is
        a cron expression or an interval at which it is enqueued, without arguments.
        """
        delay = self.backoff if backoff is None else backoff
        if max_attempts is None:
            max_attempts = getattr(delay, "max_attempts", Backoff().max_attempts)
        defaults = Defaults(
            queue=checked_name(queue, "queue"),
            priority=parse_priority(priority),
            max_attempts=request.checked_max_attempts(max_attempts),
            timeout=request.checked_timeout(timeout),
            unique=unique,
            secret=(*self._secret, *checked_names(secret, "secret")),
        )

        def declare(handler: Callable[..., Any]) -> TaskType[Any, Any, Any]:
            declared = HandlerSpec(
                handler, name=name, defaults=defaults, backoff=delay, fatal=fatal, process=process
            )
            made: TaskType[Any, Any, Any] = TaskType(self._added(declared), handler, self)
            if schedule is not None:
                self.schedule(declared.name, made, schedule)
            return made

        return declare if function is None else declare(function)

    def _added(self, declared: HandlerSpec) -> HandlerSpec:
        if declared.name in self.types:
            raise InvalidOption(f"the task type {declared.name!r} is declared twice; give one of them a name")
        self.types = {**self.types, declared.name: declared}
        return declared

    def schedule(
        self,
        name: str,
        task: Step | TaskType[Any, Any, Any],
        rule: timedelta | float | str,
        **timing: Unpack[ScheduleTiming],
    ) -> None:
        """Declare a schedule: a task (a step says its payload) and a cron expression or an interval.

        The options are `zone`, `missed` and `at_most`, `overlap`, `jitter`. It is put into the store as
        a queue's settings are; an operator may pause it. docs/schedules.md has it all.
        """
        self.schedules.add(name, task.step() if isinstance(task, TaskType) else task, rule, timing)

    def queue(
        self,
        queue: str,
        *,
        fairness: Fairness | FairnessName | None = None,
        weights: Mapping[str, int] | None = None,
        shares: Mapping[Level | LevelName, int] | None = None,
        ageing: timedelta | float | str | None = None,
        retention: Retention | None = None,
        stripes: int | None = None,
    ) -> None:
        """Declare whose turn it is in a queue, how priorities trade, and how long its ended tasks are kept.

        What is not given is as an operator has set it, or the default. What is given is put into the store
        when it is new or has changed since; until then an operator's change stands. See docs/fairness.md.
        """
        given = QueueChanges(
            fairness=fairness,
            weights=weights,
            shares=shares,
            ageing=ageing,
            retention=retention,
            stripes=stripes,
        )
        said: Any = {key: value for key, value in given.items() if value is not None}
        self._declarations.queue(queue, said)

    def limit(
        self,
        name: str,
        *,
        queue: str | None = None,
        type: str | TaskType[Any, Any, Any] | None = None,
        tenant: str | None = None,
        by: str | None = None,
        running: int | None = None,
        rate: float | str | None = None,
        burst: int | None = None,
    ) -> None:
        """Declare how many tasks may run at once, or start in a time, over all workers.

        It is for the tasks of this queue, type and tenant; what is left out is any. `by` counts each queue,
        type, tenant or value of a payload field for itself. `rate` is starts a second, or text like "100/m".
        It is put into the store as a queue's settings are. docs/limits.md has it all.
        """
        type_name = type.name if isinstance(type, TaskType) else type
        said = LimitOptions(
            queue=queue, type=type_name, tenant=tenant, by=by, running=running, rate=rate, burst=burst
        )
        self._declarations.limit(name, said, self.types)

    def alert(
        self,
        name: str,
        *,
        type: str | TaskType[Any, Any, Any] | None = None,
        queue: str | None = None,
        count: int = 1,
        window: timedelta | float | str | None = None,
        hold: timedelta | float | str | None = None,
        webhook: str | None = None,
    ) -> None:
        """Declare when dead letters are too many: `count` of this type and queue, in all or within `window`.

        It is logged, told to `on_alert` and posted to `webhook`; cleared once there have been fewer for as
        long as `hold` (5 minutes). It is put into the store as a queue's settings are. See docs/alerts.md.
        """
        type_name = type.name if isinstance(type, TaskType) else type
        said = AlertOptions(
            type=type_name, queue=queue, count=count, window=window, hold=hold, webhook=webhook
        )
        self._alerts.add(new_alert(name, **said))

    def on_alert(self, listener: Callable[[AlertEvent], None]) -> Callable[[AlertEvent], None]:
        """Have alerts told to this function as well, in the worker that leads. It must be quick."""
        self.alerting.listeners.append(listener)
        return listener

    def declared(self, type_name: str) -> HandlerSpec:
        """The declaration of a type; UnknownTaskType if this app has none of that name."""
        try:
            return self.types[type_name]
        except KeyError:
            known = ", ".join(sorted(self.types)) or "none at all"
            raise UnknownTaskType(
                f"no task type {type_name!r} is declared on this app; there are: {known}"
            ) from None

    # -- running -------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open the store and tell it what is declared. Everything else does this by itself."""
        await self.store.open()
        await self._declarations.tell(self.store, self.types)
        await self._alerts.tell(self.store)
        await self.schedules.tell(self.store, self.ordering)

    def use_store(self, store: str | Store) -> Store:
        """Keep tasks elsewhere from now on; answers with the store so far, which is not closed."""
        self.place = place_of(store)
        return self.store.swap(open_store(store, key=api_key()) if isinstance(store, str) else store)

    def metrics(self) -> "Metrics":
        """What Prometheus asks this program for: from the first call on, everything it does is counted.

        `body, content_type = await app.metrics().exposition(accept)` answers a scrape. docs/metrics.md says
        what there is. It takes windlass[metrics].
        """
        if self._metrics is None:
            try:
                self._metrics = import_module("windlass._observe.metrics").Metrics(self.store)
            except ModuleNotFoundError as missing:
                raise InvalidOption("metrics take more: pip install 'windlass[metrics]'") from missing
        return self._metrics

    async def close(self) -> None:
        """Let go of the store. Using the app afterwards opens it again."""
        await self.store.close()

    def setup(self) -> None:
        """Open the store, blocking: makes the schema of a new one."""
        self._loop.run(self.open())

    def worker(
        self,
        settings: WorkerSettings | None = None,
        *,
        on_error: Callable[[Task, BaseException], None] | None = None,
    ) -> Worker:
        """A worker for this app's types. `await worker.run()` works until it is told to stop.

        `on_error` sees every exception that leaves a handler in this process, beside what becomes of it.
        """
        return Worker(self, settings or WorkerSettings(), on_error=on_error)

    def keeper(self, *, name: str = "", lease: timedelta = LEASE) -> Keeper:
        """A keeper for this app's store: `await keeper.run()` keeps house until it is cancelled.

        Workers and `windlass serve` run one; of all there are, the store lets one lead.
        """
        return Keeper(
            self.store,
            backoff=self.backoff_of,
            retention=self.retention,
            lease=lease,
            name=name,
            alerting=self.alerting,
        )

    def backoff_of(self, type_name: str) -> Delay:
        """How long tasks of a type wait before they are tried again: as declared, or the app's own."""
        declared = self.types.get(type_name)
        return self.backoff if declared is None else declared.backoff

    def run_worker(self, settings: WorkerSettings | None = None) -> None:
        """Be a worker process, as `windlass worker` is: work until SIGTERM or SIGINT, then close."""
        run_process(self.worker(settings), self.close)

    # -- the door of task types ----------------------------------------------------------------------

    def enqueue_tasks(
        self, batch: list[NewTask], result_type: Any, within: object | None
    ) -> list[SyncHandle[Any]]:
        """Hand in tasks, blocking."""
        return self.sync_client.enqueue_tasks(batch, result_type=result_type, within=within)

    async def aenqueue_tasks(
        self, batch: list[NewTask], result_type: Any, within: object | None
    ) -> list[Handle[Any]]:
        """Hand in tasks."""
        return await self.client.enqueue_tasks(batch, result_type=result_type, within=within)

    def ordering(self, queue: str) -> Ordering:
        """How a queue is ordered: as the store said when it was opened, or as declared."""
        return self._declarations.ordering(queue)

    def origin(self) -> Origin:
        """Who enqueues, and the trace that this belongs to, or a fresh one."""
        trace = inherited_trace() or synthetic_trace(random.getrandbits(128))
        return Origin(trace=trace, enqueued_by=self._identity)


class TaskDecorator(Protocol):
    """`@app.task(...)` with options: what the parentheses give."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> TaskType[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskType[P, R, R]: ...


def _identity() -> str:
    """This program, as the tasks it enqueues will name it."""
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    return f"{program}@{socket.gethostname()}:{os.getpid()}"
