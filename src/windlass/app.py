"""App: what a program declares, and the one place that chooses a store."""

import os
import random
import socket
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from msgspec.structs import replace

from ._client.client import Client
from ._client.handle import Handle
from ._client.loop import LoopThread
from ._client.operator import Operator
from ._client.sync import SyncClient, SyncHandle, SyncOperator
from ._declared import Declared, sure
from ._model.options import Defaults
from ._model.queue import Ordering, QueueSettings, Retention
from ._model.task import DEFAULT_QUEUE, NewTask, Task
from ._observe.observed import ObservedStore
from ._policy import request
from ._policy.backoff import Backoff, Delay
from ._policy.options import duration, names
from ._policy.options import name as checked_name
from ._policy.rank import priority_of
from ._policy.request import Origin
from ._store import Store
from ._stores import open_store, place_of
from ._worker.process import run_process
from ._worker.worker import Worker, WorkerSettings
from .errors import InvalidOption, UnknownTaskType
from .tasktype import TaskType

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_STORE = "sqlite:///windlass.db"


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
    ) -> None:
        found = open_store(store) if isinstance(store, str) else store
        self.store = ObservedStore(found)
        self.place = place_of(store)
        self.types: Mapping[str, Declared] = {}
        self.retention = retention or Retention()
        self.backoff: Delay = sure(Backoff() if backoff is None else backoff)
        self._secret = names(secret, "secret")
        self._queues: dict[str, QueueSettings] = {}
        self._striped: frozenset[str] = frozenset()  # whose stripes are declared, not an operator's
        self._identity = identity or _identity()
        self._loop = LoopThread()
        self.client = Client(self.store, ordering=self.ordering, origin=self.origin)
        self.operator = Operator(self.store)
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
    ) -> Any:
        """Declare a function as a task type.

        `fatal` are exceptions that retrying cannot help; `secret` are payload fields never shown;
        `process=True` runs it in a child process, which can be killed when its time is up.
        """
        delay = self.backoff if backoff is None else backoff
        if max_attempts is None:
            max_attempts = getattr(delay, "max_attempts", Backoff().max_attempts)
        defaults = Defaults(
            queue=checked_name(queue, "queue"),
            priority=priority_of(priority),
            max_attempts=request.max_attempts(max_attempts),
            timeout=request.checked_timeout(timeout),
            unique=unique,
            secret=(*self._secret, *names(secret, "secret")),
        )

        def declare(handler: Callable[..., Any]) -> TaskType[Any, Any, Any]:
            declared = Declared(
                handler, name=name, defaults=defaults, backoff=delay, fatal=fatal, process=process
            )
            return TaskType(self._added(declared), handler, self)

        return declare if function is None else declare(function)

    def _added(self, declared: Declared) -> Declared:
        if declared.name in self.types:
            raise InvalidOption(f"the task type {declared.name!r} is declared twice; give one of them a name")
        self.types = {**self.types, declared.name: declared}
        return declared

    def queue(
        self,
        queue: str,
        *,
        ageing: timedelta | float | str | None = None,
        retention: Retention | None = None,
        stripes: int | None = None,
    ) -> None:
        """Declare how a queue is ordered, how long its ended tasks are kept, and how many stripes it has.

        Without `stripes` it has as many as an operator gave it, or one.
        """
        aged = None if ageing is None else duration(ageing, "ageing")
        self._queues[checked_name(queue, "queue")] = QueueSettings(
            name=queue,
            ordering=Ordering(ageing=aged),
            retention=retention,
            stripes=1 if stripes is None else stripes,
        )
        self._striped = self._striped - {queue} if stripes is None else self._striped | {queue}

    def declared(self, type_name: str) -> Declared:
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
        """Open the store and tell it of declared queues. Everything else does this by itself."""
        await self.store.open()
        known = {settings.name: settings for settings in await self.operator.queues()}
        for settings in self._queues.values():
            standing = known.get(settings.name)
            wanted = settings if standing is None else self._wanted(settings, standing)
            if standing != wanted:
                await self.store.put(wanted)

    def _wanted(self, declared: QueueSettings, standing: QueueSettings) -> QueueSettings:
        """What is declared, and beside it what an operator has set."""
        stripes = declared.stripes if declared.name in self._striped else standing.stripes
        return replace(declared, paused=standing.paused, stripes=stripes)

    def use_store(self, store: str | Store) -> Store:
        """Keep tasks elsewhere from now on; answers with the store so far, which is not closed."""
        before, self.store.within = self.store.within, open_store(store) if isinstance(store, str) else store
        self.place = place_of(store)
        return before

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
        """How a queue was declared to be ordered."""
        settings = self._queues.get(queue)
        return settings.ordering if settings else _STRICT

    def origin(self) -> Origin:
        """Who enqueues, and a fresh trace for it."""
        trace = f"00-{random.getrandbits(128):032x}-{random.getrandbits(64):016x}-00"
        return Origin(trace=trace, enqueued_by=self._identity)


class TaskDecorator(Protocol):
    """`@app.task(...)` with options: what the parentheses give."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> TaskType[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskType[P, R, R]: ...


_STRICT = Ordering()


def _identity() -> str:
    """This program, as the tasks it enqueues will name it."""
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    return f"{program}@{socket.gethostname()}:{os.getpid()}"
