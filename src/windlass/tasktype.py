"""A task type: the declaration of a kind of task, and the ways to enqueue it. What `@app.task` makes."""

import functools
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from ._client.client import Handle
from ._client.sync.client import SyncHandle
from ._handler.hooks import Hooks
from ._handler.spec import HandlerSpec
from ._model.options import Options
from ._model.task import NewTask
from ._policy.input.chain import Step
from ._policy.input.new_task import check_options, later_step
from ._policy.other_queues import METHODS
from ._store.protocol import Capability
from .errors import InvalidOption

if TYPE_CHECKING:
    from .app import App

P = ParamSpec("P")
C = TypeVar("C")  # what calling the function gives
R = TypeVar("R")  # what the task's result is


class Prepared(Generic[P, R]):
    """A task type with options: what `using` gives."""

    def __init__(self, spec: HandlerSpec, app: "App", options: Options, within: object | None) -> None:
        self.spec = spec
        self._app = app
        self._options = options
        self._within = within

    if not TYPE_CHECKING:  # a type checker would take any attribute for real

        def __getattr__(self, name: str) -> Any:
            hint = f"; here it is {METHODS[name]}" if name in METHODS else ""
            text = f"{type(self).__name__!r} object has no attribute {name!r}{hint}"
            raise AttributeError(text, name=name, obj=self)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> SyncHandle[R]:
        """Enqueue a task with these arguments, blocking; returns a handle once the task is durable.

        Takes what the handler takes, except its context. With `using(within=…)` it returns once the task is
        inserted, and is durable when that transaction commits.

        Raises InvalidPayload if the arguments do not fit, DuplicateTask, IdempotencyConflict or
        StoreUnavailable; then nothing was enqueued.
        """
        batch = [self._task(*self._payload(args, kwargs), self._ready_options())]
        return self._app.sync_client.enqueue_tasks(batch, within=self._within)[0]

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueue a task from async code; returns a handle once the task is durable. See `enqueue`."""
        batch = [self._task(*self._payload(args, kwargs), await self._aready_options())]
        return (await self._app.client.enqueue_tasks(batch, within=self._within))[0]

    def enqueue_many(self, payloads: Iterable[Mapping[str, Any]]) -> list[SyncHandle[R]]:
        """Enqueue one task for each payload, all or none, blocking.

            welcome.enqueue_many([{"user_id": 1}, {"user_id": 2}])

        At most 100,000 at once. Returns their handles in the same order.
        """
        batch = self._tasks(payloads, self._ready_options())
        return self._app.sync_client.enqueue_tasks(batch, within=self._within)

    async def aenqueue_many(self, payloads: Iterable[Mapping[str, Any]]) -> list[Handle[R]]:
        """Enqueue one task for each payload, all or none, from async code. See `enqueue_many`."""
        batch = self._tasks(payloads, await self._aready_options())
        return await self._app.client.enqueue_tasks(batch, within=self._within)

    def step(self, /, *args: P.args, **kwargs: P.kwargs) -> Step:
        """Make a step for a chain, a group or a schedule. Nothing is enqueued yet.

            app.sync_client.enqueue(chain(fetch.step(url="…"), count.step(text=RESULT)))

        An argument given as `RESULT` receives the result of the task before it (in a group: the list of all
        results).
        """
        if self._within is not None:
            raise InvalidOption("within is for enqueue(); a step is enqueued later, when it follows")
        payload, result_into = self._payload(args, kwargs)
        step = self._app.builder.step(self.spec.name, payload, self._options, self.spec.defaults, result_into)
        return later_step(step, self._options, result_into)

    def _payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bytes, str | None]:
        """Encode and check the arguments; also return the parameter given as RESULT, if any."""
        if not self.spec.is_importable and Capability.SHARE in self._app.store.capabilities:
            self._app.types.warn_if_unknown_elsewhere(self.spec)
        return self.spec.signature.payload(args, kwargs)

    def _ready_options(self) -> Options:
        """Return the options with the tasks of `after` looked up, blocking."""
        options = self._options
        return self._app.sync_client.resolved(options) if "after" in options else options

    async def _aready_options(self) -> Options:
        options = self._options
        return await self._app.client.resolved(options) if "after" in options else options

    def _tasks(self, payloads: Iterable[Mapping[str, Any]], options: Options) -> list[NewTask]:
        if "idempotency_key" in options:
            raise InvalidOption("an idempotency key identifies one task; enqueue them one by one")
        given = [self._payload((), dict(payload)) for payload in payloads]
        if not given:
            return []
        first = self._task(*given[0], options)
        if first.next is not None or any(result_into for _, result_into in given):
            return [first, *(self._task(*one, options) for one in given[1:])]
        return [first, *self._app.builder.more_like(first, [payload for payload, _ in given[1:]])]

    def _task(self, payload: bytes, result_into: str | None, options: Options) -> NewTask:
        if not options and result_into is None:
            return self._app.builder.plain(self.spec, payload)
        return self._app.builder.build(self.spec.name, payload, options, self.spec.defaults, result_into)


class TaskType(Prepared[P, R], Generic[P, C, R]):
    """A declared kind of task: what `@app.task` makes of a function.

    Called, it is still that function: `welcome(1)` runs it here and now. `welcome.enqueue(1)` has a worker
    run it.
    """

    def __init__(self, spec: HandlerSpec, function: Callable[P, C], app: "App") -> None:
        functools.update_wrapper(self, function)
        super().__init__(spec, app, {}, None)
        self._function = function

    @property
    def name(self) -> str:
        """The dotted name that tasks of this type carry: the function's, unless it was declared with one."""
        return self.spec.name

    @property
    def hooks(self) -> Hooks:
        """What its app runs around its handler."""
        return self._app.hooks

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> C:
        """Run the function here and now; nothing is enqueued."""
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task type {self.name!r}>"

    def using(self, *, within: object | None = None, **options: Unpack[Options]) -> Prepared[P, R]:
        """Return this type with other options for what is enqueued through it.

            welcome.using(delay="5m", tenant="acme", priority="high").enqueue(user_id=1)

        `queue`, `tenant`: names. `priority`: -100 to 100, or "high", "medium", "low".
        `delay`: not before this much time (seconds, a timedelta or text such as "5m"). `run_at`: not before
        this instant, an aware datetime. `expires`: if it has not started by this instant, or within this much
        time of its enqueue (or of when it is due), it never starts. `max_attempts`, `timeout`: as in
        `app.task`.
        `idempotency_key`: a repeat returns a handle on the first task; kept as long as that task's record,
        and at least for `idempotency_for`. `unique`, `unique_for`: as in `app.task`. `after`: handles or ids
        of tasks to wait for; `RESULT` is then the list of their results.
        `secret`: payload fields that are never shown, besides those of the type.
        `next`: the step or steps that follow. `on_failure`: those that follow if the task dies, in which
        `RESULT` is the failure. `trace`: a W3C traceparent to continue.
        `within`: an open connection of your own (sqlite3, psycopg, asyncpg, SQLAlchemy, Django); the task is
        inserted in its transaction, so that both commit or neither does. Raises InvalidOption.
        """
        check_options(options)
        if "secret" in options:
            self.spec.check_secret(options["secret"])
        return Prepared(self.spec, self._app, options, within)


class TaskDecorator(Protocol):
    """What `@app.task(...)` with options returns."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> TaskType[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskType[P, R, R]: ...
