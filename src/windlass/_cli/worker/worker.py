"""`windlass worker`: run an app's tasks until stopped."""

import asyncio
import logging
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from ..._policy.input.quote import counted, first_named, suggestion
from ..._store.protocol import Capability
from ..._worker.process import run_process, stopped_by_signals, warn_of_left
from ..._worker.settings import WorkerSettings
from ...config import Settings
from ...errors import InvalidOption
from ..command import Cli, Command, pass_cli, setting_option
from ..exit_codes import ExitCode
from ..options import duration, option_text, size
from ..run.archive import archive_option
from ..run.handlers import handlers_option, include_handlers
from ..run.health import Health, health_options, serve_health
from ..run.logs import log_options, set_up_logging
from ..run.owner import owner_options, standing_by
from ..target import require_types
from .recycle import recycling

if TYPE_CHECKING:
    from ..._worker.worker import Worker

logger = logging.getLogger("windlass.worker")

_DEFAULTS = WorkerSettings()
_MAX_UNDECLARED = 5  # queues without a type that get a line each
_HANDLERS = "ready-made handlers"


def _default(value: timedelta | int) -> str:
    return f"  [default: {option_text(value) if isinstance(value, timedelta) else value}]"


app_argument = click.argument("target", required=False, metavar="[APP]")

slots_option = setting_option(
    "--slots", type=int, metavar="N", help=f"Tasks that run at once{_default(_DEFAULTS.slots)}"
)


@click.command("worker", cls=Command)
@app_argument
@setting_option(
    "--queue",
    "-q",
    "queues",
    multiple=True,
    metavar="QUEUE",
    help="Queue to serve (repeatable)  [default: all of the app]",
)
@click.option("--all-queues", is_flag=True, help="Serve every queue in turn, new ones included")
@slots_option
@click.option(
    "--reserve",
    multiple=True,
    metavar="LEVEL=N",
    help="Keep N slots for tasks of a level: high, medium or low (repeatable)",
)
@setting_option(
    "--processes", type=int, metavar="N", help="Slots in child processes  [default: number of CPUs]"
)
@setting_option(
    "--workers",
    type=int,
    metavar="N",
    help="Run N worker processes and supervise them; SIGHUP replaces each in turn  [default: run one worker, "
    "in this process]",
)
@setting_option(
    "--grace", type=duration, help=f"Time for running tasks to finish at shutdown{_default(_DEFAULTS.grace)}"
)
@setting_option(
    "--lease",
    type=duration,
    help=f"Time without a heartbeat before its tasks go to other workers{_default(_DEFAULTS.lease)}",
)
@setting_option("--heartbeat", type=duration, help=f"Interval of heartbeats{_default(_DEFAULTS.heartbeat)}")
@setting_option("--poll", type=duration, help=f"Interval of claims without a wake{_default(_DEFAULTS.poll)}")
@click.option(
    "--drain",
    is_flag=True,
    help="Stop once no task is ready; exit with 1 if some are left",
)
@click.option("--no-keeper", is_flag=True, help="Do not run a keeper; another process must")
@setting_option("--name", metavar="NAME", help="Name of the worker  [default: HOST-PID]")
@setting_option("--metrics", metavar="[HOST:]PORT", help="Serve metrics for Prometheus at this address")
@health_options
@setting_option(
    "--max-tasks", type=int, metavar="N", help="Recycle the worker after N tasks  [default: never]"
)
@setting_option(
    "--max-memory",
    type=size,
    metavar="SIZE",
    help="Recycle the worker when it uses SIZE of memory, as in 500MB  [default: never]",
)
@click.option("--reload", is_flag=True, help="Replace workers when source files change, for development")
@handlers_option
@archive_option
@owner_options
@log_options
@pass_cli
def worker(
    cli: Cli,
    /,
    *,
    target: str | None,
    reserve: tuple[str, ...],
    drain: bool,
    no_keeper: bool,
    all_queues: bool,
    reload: bool,
) -> None:
    """Run the tasks of APP and of ready-made handlers.

    APP is a module, as in shop.tasks, or module:attribute if it has several apps. SIGTERM or Ctrl-C stops
    claiming and lets running tasks finish; a second signal stops at once. With --workers, a process that dies
    is replaced. A worker that is recycled takes no more tasks, lets running ones finish, and is replaced or,
    without --workers, exits.
    """
    if reserve:
        cli.flags["reserve"] = ",".join(reserve)
    if all_queues:
        if cli.flags.get("queues"):
            raise click.UsageError("--queue and --all-queues exclude each other", click.get_current_context())
        cli.flags |= {"all_queues": True, "queues": ()}
    elif cli.flags.get("queues"):
        cli.flags["all_queues"] = False
    if no_keeper:
        cli.flags["keeper"] = False
    if target is not None:
        cli.flags["app"] = target
    settings = cli.settings
    if settings.app is None and not (settings.handlers or settings.all_handlers):
        raise InvalidOption(
            "no app given; `windlass worker shop.tasks:app` runs the tasks of `app` in shop/tasks.py "
            "(WINDLASS_APP or `app` in windlass.toml can name it, too)"
        )
    set_up_logging(cli)
    made = new_worker(cli, drain=drain)
    _log_start(cli, made)
    if settings.workers is None and not reload:
        _run_alone(cli, made)
        return
    from .supervise import supervise_workers

    supervise_workers(cli, made, settings.workers or 1, reload=reload)


def _run_alone(cli: Cli, made: "Worker") -> None:
    """Run a worker in this process, without a supervisor."""
    settings, health = cli.settings, Health(lambda: not made.outage.is_open)
    metrics = None
    if settings.metrics is not None:
        metrics = cli.app.metrics()
        metrics.meter.slots(made.settings.slots, lambda: len(made.held))
    serve_health(settings, health, metrics)

    signalled = has_left = False

    def stop() -> None:
        nonlocal signalled
        health.stopping()
        if (
            signalled or not made.is_stopping
        ):  # the first signal to a worker that is recycled cuts nothing short
            made.stop()
        signalled = True

    def recycle(why: str) -> None:
        if not made.is_stopping:
            logger.info("stopping: %s", why)
            health.stopping()
            made.stop()

    async def run() -> None:
        nonlocal has_left
        loop = asyncio.get_running_loop()
        async with standing_by(cli):
            with stopped_by_signals(loop, stop), recycling(settings, made, recycle):
                await health.report_while(made.run(ready=health.started), settings.health_file)
            has_left = await warn_of_left(made, cli.app.store)

    run_process(run, cli.app.close)
    if has_left:
        raise click.exceptions.Exit(ExitCode.NEGATIVE)


def new_worker(cli: Cli, *, drain: bool, number: int | None = None) -> "Worker":
    """Return a worker for the app and handlers of the settings; `number` is appended to the name given."""
    settings, app = cli.settings, cli.app
    include_handlers(cli)
    require_types(app, settings.app or _HANDLERS)
    chosen = worker_settings(settings, drain=drain)
    if number is not None and chosen.name:
        chosen = replace(chosen, name=f"{chosen.name}-{number}")
    return app.worker(chosen)


def _log_start(cli: Cli, made: "Worker") -> None:
    """Log the app and the store; warn of a store that ends with this process, and of queues without a type.

    The worker logs its queues and slots, and the durability once the store has reported it.
    """
    app, target = cli.app, cli.settings.app or _HANDLERS
    _warn_of_undeclared(target, made.settings.queues, {spec.defaults.queue for spec in app.types.values()})
    if Capability.SHARE not in app.store.capabilities:
        logger.warning("the store %s loses all tasks when this process ends", app.store_name)
    logger.info(
        "windlass %s runs %s (%s) on %s",
        version("windlass"),
        target,
        counted(len(app.types), "task type"),
        app.store_name,
        extra={
            "app": target,
            "store": app.store_name,
            "queues": list(made.queues),
            "slots": made.settings.slots,
        },
    )


def _warn_of_undeclared(target: str, queues: Sequence[str], declared: AbstractSet[str]) -> None:
    """Warn of queues that no task type has: of a few by name, as each may be a typo, of many in one line."""
    undeclared = sorted(set(queues) - declared)
    if len(undeclared) > _MAX_UNDECLARED:
        logger.warning(
            "no task type of %s has %d of the queues: %s; they get only tasks that are enqueued with "
            "using(queue=…)",
            target,
            len(undeclared),
            first_named(undeclared, _MAX_UNDECLARED),
        )
        return
    for queue in undeclared:
        hint = suggestion(queue, declared, "it gets only tasks that are enqueued with using(queue=…)")
        logger.warning("no task type of %s has queue %r%s", target, queue, hint)


def worker_settings(settings: Settings, *, drain: bool = False) -> WorkerSettings:
    """The settings of a worker: those given, and the defaults of WorkerSettings for the others."""
    names = set(WorkerSettings.__struct_fields__) - {"queues", "drain"}
    given = {name: value for name in names if (value := getattr(settings, name)) is not None}
    return WorkerSettings(queues=settings.queues, drain=drain, **given)
