"""What an app declares besides its task types: schedules, queues, limits, alerts and hooks."""

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Self, TypeVar, Unpack

from ._client.declarations import Declarations
from ._client.schedules import DeclaredSchedules
from ._handler.around import Around
from ._handler.hooks import ErrorHook, Hooks
from ._handler.lifespan import Lifespan
from ._handler.task_types import TaskTypes
from ._model.queue import Fairness, Level, Retention
from ._model.schedule import ScheduleTiming
from ._policy.alerts import AlertOptions, new_alert
from ._policy.input.chain import Step
from ._policy.order.limit_options import LimitOptions
from ._policy.order.queue_options import FairnessName, LevelName, QueueChanges
from ._worker.error_hooks import checked_hook
from .tasktype import TaskType

T = TypeVar("T")
L = TypeVar("L", bound=Lifespan)
A = TypeVar("A", bound=Around)


class AppDeclarations:
    """The part of an app that declares schedules, queues, limits, alerts and hooks."""

    def __init__(self, types: TaskTypes) -> None:
        self.types = types
        self.hooks = Hooks(self)
        self.schedules = DeclaredSchedules()
        self._declarations = Declarations()

    def include(self, part: Callable[[Self], T]) -> T:
        """Let a part of a program declare itself on this app; returns what it returns.

            send_email = app.include(handlers.Email(sender="shop@example.org", smtp="smtp://mail.example.org"))

        `part`: called with the app. Those of `windlass.handlers` declare a task type and return it; see
        docs/handlers.md. A function of your own may declare several.
        """
        return part(self)

    def schedule(
        self,
        name: str,
        task: Step | TaskType[Any, Any, Any],
        rule: timedelta | float | str,
        **timing: Unpack[ScheduleTiming],
    ) -> None:
        """Declare a schedule: enqueue this task by a cron expression or at an interval.

            app.schedule("nightly", report.step(kind="full"), "0 3 * * *", zone="Europe/Berlin")

        `task`: a task type, or a step of one with its payload. `rule`: cron, or seconds, a timedelta or text
        such as "10m". `zone`: the time zone of a cron rule [default: UTC]. `missed`: which ticks to fire that
        were due while no keeper ran: "skip", "once" or "all" [default: skip], of the last `at_most`
        [default: 100]. `overlap`: "skip" drops a tick while an earlier task has not ended [default: allow].
        `jitter`: delay each task by a random time up to this.

        Stored when a worker starts, if it is new or has changed; an operator can pause it.
        Raises InvalidOption. See docs/schedules.md.
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
        windows: str | Iterable[str] | None = None,
    ) -> None:
        """Declare the settings of a queue: fairness between tenants, priorities, hours, retention.

        `fairness`: "fifo" (in order), "round_robin" (tenants take turns) or "random" [default: fifo].
        `weights`: turns of each tenant in a round [default: 1]. `shares`: percentage of the claims that each
        level of priority ("high", "medium", "low") is guaranteed. `ageing`: how long a task waits to gain one
        step of priority [default: strict priority]. `retention`: how long ended tasks are kept. `stripes`:
        how many parts the queue is spread over; order holds within each [default: 1]. `windows`: the hours in
        which its tasks may start, as text such as "mon-fri 22:00-06:00 Europe/Berlin" or several [default:
        any time].

        Stored when a worker starts, if it is new or has changed since; until then what an operator has set
        applies, as it does for everything that is left out. Raises InvalidOption. See docs/fairness.md.
        """
        self._declarations.queue(queue, QueueChanges(
            fairness=fairness, weights=weights, shares=shares, ageing=ageing, retention=retention,
            stripes=stripes, windows=windows,
        ))  # fmt: skip

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
        """Declare a limit on how many tasks run at once, or on how many start in a time, over all workers.

            app.limit("bank", type=charge, running=4, rate="100/m")

        `queue`, `type`, `tenant`: which tasks it applies to [default: any]. `by`: count separately for each
        "queue", "type", "tenant" or value of this payload field. `running`: at most this many at once.
        `rate`: starts a second, or text such as "100/m". `burst`: how many may start at once after a quiet
        time [default: one second's rate, at least 1].

        Stored like the settings of a queue. Raises InvalidOption. See docs/limits.md.
        """
        type_name = type.name if isinstance(type, TaskType) else type
        options = LimitOptions(
            queue=queue, type=type_name, tenant=tenant, by=by, running=running, rate=rate, burst=burst
        )
        self._declarations.limit(name, options, self.types)

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
        """Declare an alert on dead letters: raise it when there are at least `count`.

        `type`, `queue`: which dead letters are counted [default: any]. `window`: only those of this last time
        [default: all there are]. `hold`: clear it after fewer for this long [default: 5 minutes]. `webhook`:
        a URL that it is posted to. Alerts are also logged, and passed to `on_alert` functions.

        Stored like the settings of a queue. Raises InvalidOption. See docs/alerts.md.
        """
        type_name = type.name if isinstance(type, TaskType) else type
        options = AlertOptions(
            type=type_name, queue=queue, count=count, window=window, hold=hold, webhook=webhook
        )
        self._declarations.alert(new_alert(name, **options))

    def on_error(self, hook: ErrorHook) -> ErrorHook:
        """Call this function with the task and exception of each failed attempt, in a thread of the worker.

        What happened in a child process, and a timeout, is an `AttemptFailed`. See docs/logging.md.
        """
        self.hooks.error_hooks.append(checked_hook(hook))
        return hook

    def lifespan(self, function: L) -> L:
        """Run this async generator once in each worker process: it opens what handlers need, and closes it.

            @app.lifespan
            async def connections(app: App) -> AsyncIterator[State]:
                async with httpx.AsyncClient() as client:
                    yield State(client)

        What it yields is `ctx.state`; one lifespan of an app can yield something. Also takes functions that
        `asynccontextmanager` has decorated. Raises InvalidOption. See docs/around.md.
        """
        self.hooks.add_lifespan(function)
        return function

    def around(self, function: A) -> A:
        """Run this function around every handler, the first declared outermost.

            @app.around
            async def timed(ctx: Context, call_next: CallNext) -> None:
                with timer(ctx.task.type):
                    await call_next()

        It may raise, or translate an exception; it cannot hide one, nor replace the result. A generator
        function of `(ctx)` that yields once runs where the handler runs: in its thread or child process.
        Raises InvalidOption. See docs/around.md.
        """
        self.hooks.add_around(function)
        return function
