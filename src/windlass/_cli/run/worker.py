"""`windlass worker`: run an app's tasks until stopped."""

import logging
from datetime import timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from ..._policy.input.quote import counted
from ..._store.protocol import Capability
from ..._worker.process import run_process
from ..._worker.settings import WorkerSettings
from ...config import Settings
from ...errors import InvalidOption
from ..command import Cli, Command, pass_cli, setting_option
from ..options import duration, option_text
from ..target import require_types
from .archive import archive_option
from .handlers import handlers_option, include_handlers
from .logs import log_options, set_up_logging

if TYPE_CHECKING:
    from ..._observe.metrics import Metrics
    from ..._worker.worker import Worker

logger = logging.getLogger("windlass.worker")

_DEFAULTS = WorkerSettings()
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
@click.option("--drain", is_flag=True, help="Stop once no task is ready")
@click.option("--no-keeper", is_flag=True, help="Do not run a keeper; another process must")
@setting_option("--name", metavar="NAME", help="Name of the worker  [default: HOST-PID]")
@setting_option("--metrics", metavar="[HOST:]PORT", help="Serve metrics for Prometheus at this address")
@handlers_option
@archive_option
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
) -> None:
    """Run the tasks of APP and of ready-made handlers.

    APP is module:attribute, as in shop.tasks:app. SIGTERM or Ctrl-C stops claiming and lets running tasks
    finish; a second signal stops at once. With --workers, a process that dies is replaced.
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
    if settings.workers is not None:
        from .worker_supervisor import supervise_workers

        supervise_workers(cli, made.settings, settings.workers)
        return
    if settings.metrics is not None:
        metrics = cli.app.metrics()
        metrics.meter.slots(made.settings.slots, lambda: len(made.held))
        serve_metrics(metrics, *settings.metrics)
    run_process(lambda: made.run(signals=True), cli.app.close)


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
    """Log the app and the store, and warn of a store that ends with this process.

    The worker logs its queues and slots, and the durability once the store has reported it.
    """
    app, target = cli.app, cli.settings.app or _HANDLERS
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


def serve_metrics(metrics: "Metrics", host: str, port: int) -> None:
    """Serve metrics from a thread, and log where."""
    port = metrics.serve(host, port)
    logger.info("metrics are at http://%s:%d/metrics", f"[{host}]" if ":" in host else host, port)


def worker_settings(settings: Settings, *, drain: bool = False) -> WorkerSettings:
    """The settings of a worker: those given, and the defaults of WorkerSettings for the others."""
    names = set(WorkerSettings.__struct_fields__) - {"queues", "drain"}
    given = {name: value for name in names if (value := getattr(settings, name)) is not None}
    return WorkerSettings(queues=settings.queues, drain=drain, **given)
