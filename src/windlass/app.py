"""App: what a program declares, and the one place that chooses a store."""

import os
import secrets
import socket
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, overload

from ._client.client import Client
from ._client.handle import Handle
from ._client.loop import LoopThread
from ._client.operator import Operator
from ._client.sync import SyncClient, SyncHandle, SyncOperator
from ._clock import Clock
from ._declared import Declared
from ._model.options import Defaults
from ._model.queue import Ordering, QueueSettings, Retention
from ._model.task import DEFAULT_QUEUE, NewTask, Task
from ._observe.observed import ObservedStore
from ._policy.backoff import Backoff, Delay
from ._policy.options import duration, name
from ._policy.rank import priority_of
from ._policy.request import Origin, checked_timeout, max_attempts
from ._store import Store
from ._stores import open_store, place_of
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
        self.backoff: Delay = backoff or Backoff()
        self._secret = tuple(secret)
        self._queues: dict[str, QueueSettings] = {}
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
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        priority: int | str = 0,
        timeout: timedelta | float | str | None = None,
        backoff: Delay | None = None,
        max_attempts: int | None = None,
        fatal: tuple[type[BaseException], ...] = (),
        unique: bool = False,
        secret: Iterable[str] = (),
        process: bool = False,
    ) -> "_Decorator": ...

    def task(self, *function: Callable[..., Any], **options: Any) -> Any:
        """Declare a function as a task type.

        `fatal` are exceptions that retrying cannot help; `secret` are payload fields never shown;
        `process=True` runs it in a child process, which can be killed when its time is up.
        """
        declare = _Decorator(self, options)
        return declare(*function) if function else declare

    def declare(self, function: Callable[..., Any], options: dict[str, Any]) -> TaskType[Any, Any, Any]:
        """Make a task type of a function; `task` is the polite way to call this."""
        backoff: Delay = options.get("backoff") or self.backoff
        attempts = options.get("max_attempts")
        if attempts is None:
            attempts = getattr(backoff, "max_attempts", Backoff().max_attempts)
        declared = Declared(
            function,
            name=options.get("name"),
            defaults=Defaults(
                queue=name(options.get("queue", DEFAULT_QUEUE), "queue"),
                priority=priority_of(options.get("priority", 0)),
                max_attempts=max_attempts(attempts),
                timeout=checked_timeout(options.get("timeout")),
                unique=bool(options.get("unique", False)),
                secret=(*self._secret, *options.get("secret", ())),
            ),
            backoff=backoff,
            fatal=tuple(options.get("fatal", ())),
            process=bool(options.get("process", False)),
        )
        if declared.name in self.types:
            raise InvalidOption(f"the task type {declared.name!r} is declared twice; give one of them a name")
        self.types = {**self.types, declared.name: declared}
        return TaskType(declared, function, self)

    def queue(
        self,
        queue: str,
        *,
        ageing: timedelta | float | str | None = None,
        retention: Retention | None = None,
    ) -> None:
        """Declare how a queue is ordered and how long its ended tasks are kept."""
        aged = None if ageing is None else duration(ageing, "ageing")
        self._queues[name(queue, "queue")] = QueueSettings(
            name=queue, ordering=Ordering(ageing=aged), retention=retention
        )

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
            paused = standing.paused if standing else False
            wanted = QueueSettings(
                name=settings.name, paused=paused, ordering=settings.ordering, retention=settings.retention
            )
            if standing != wanted:
                await self.store.put(wanted)

    def use_store(self, store: str | Store) -> Store:
        """Keep tasks elsewhere from now on; answers with the store so far, which is not closed."""
        before, self.store.within = self.store.within, open_store(store) if isinstance(store, str) else store
        self.place = place_of(store)
        return before

    def use_memory(self, clock: Clock) -> Store:
        """Keep tasks in memory from now on, by this clock: for tests. Answers with the store so far."""
        return self.use_store(open_store("memory://", clock=clock))

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
        """Who enqueues, and under which trace: a fresh one unless the caller has one."""
        return Origin(
            trace=f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-00", enqueued_by=self._identity
        )


class _Decorator:
    """`@app.task(...)` with options: what the parentheses give."""

    def __init__(self, app: App, options: dict[str, Any]) -> None:
        self._app = app
        self._options = options

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> TaskType[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskType[P, R, R]: ...

    def __call__(self, function: Callable[..., Any], /) -> Any:
        return self._app.declare(function, self._options)


_STRICT = Ordering()


def _identity() -> str:
    """This program, as the tasks it enqueues will name it."""
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    return f"{program}@{socket.gethostname()}:{os.getpid()}"
