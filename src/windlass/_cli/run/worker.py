"""`windlass worker`: run an app's tasks until told to stop."""

import logging
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import click

from ..._worker.process import run_process
from ..._worker.settings import WorkerSettings
from ...config import LOG_FORMATS, LOG_LEVELS, Settings
from ...errors import InvalidOption
from ..command import Asked, Command, pass_asked
from ..options import duration
from .logs import set_up_by

if TYPE_CHECKING:
    from ..._worker.worker import Worker
    from ...app import App

logger = logging.getLogger("windlass.worker")


@click.command("worker", cls=Command)
@click.argument("target", required=False, metavar="[APP]")
@click.option("--queue", "-q", "queues", multiple=True, help="Only this queue (repeatable).")
@click.option("--slots", type=int, help="How many tasks run at once.")
@click.option("--reserve", multiple=True, metavar="LEVEL=N", help="Keep N slots for high or low tasks.")
@click.option("--processes", type=int, help="How many of them may be in child processes.")
@click.option("--grace", type=duration, help="How long running tasks may finish when it stops.")
@click.option("--lease", type=duration, help="Silent for so long, its tasks go to others.")
@click.option("--heartbeat", type=duration, help="How often it gives a sign of life.")
@click.option("--poll", type=duration, help="How often it looks without having been woken.")
@click.option("--drain", is_flag=True, help="Stop once nothing is ready.")
@click.option("--no-keeper", is_flag=True, help="Leave the housekeeping to other workers.")
@click.option("--name", help="What to call it (default: host and process id).")
@click.option("--metrics", metavar="[HOST:]PORT", help="Serve metrics for Prometheus there.")
@click.option("--log-level", type=click.Choice(LOG_LEVELS), help="Log from this level on.")
@click.option("--log-format", type=click.Choice(LOG_FORMATS), help="Lines for people, or JSON.")
@pass_asked
def worker(
    asked: Asked,
    /,
    *,
    target: str | None,
    queues: tuple[str, ...],
    reserve: tuple[str, ...],
    drain: bool,
    no_keeper: bool,
    **flags: Any,
) -> None:
    """Run the tasks of APP (module:attribute, as in shop.tasks:app) until told to stop.

    SIGTERM or Ctrl-C lets running tasks finish; a second one does not wait for them.
    """
    asked.flags |= {**flags, "queues": queues or None, "keeper": False if no_keeper else None}
    asked.flags["reserve"] = ",".join(reserve) or None
    if target is not None:
        asked.flags["app"] = target
    settings = asked.settings
    if settings.app is None:
        raise InvalidOption(
            "which app? `windlass worker shop.tasks:app` runs the tasks of `app` in shop/tasks.py; "
            "WINDLASS_APP or `app` in windlass.toml can name it too"
        )
    set_up_by(settings)
    app = asked.app
    made = app.worker(worker_settings(settings, drain=drain))
    _introduce(app, made, settings.app)
    if settings.metrics is not None:
        _serve_metrics(app, made, *settings.metrics)
    run_process(made, app.close)


def _introduce(app: "App", made: "Worker", target: str) -> None:
    """Say who starts. What an acknowledged write survives the worker says, once it has asked the store.

    Only that nothing survives is said here: it needs no asking, and it is hardly meant.
    """
    if app.operator.promise.durability == "volatile":
        logger.warning("the store %s forgets everything when this process ends", app.place)
    told = (
        f"windlass {version('windlass')} runs {target} ({len(app.types)} task types) as {made.name}; "
        f"store {app.place}; queues {', '.join(made.queues)}; {made.settings.slots} slots"
    )
    logger.info(
        "%s",
        told,
        extra={
            "app": target,
            "store": app.place,
            "queues": list(made.queues),
            "slots": made.settings.slots,
        },
    )


def _serve_metrics(app: "App", made: "Worker", host: str, port: int) -> None:
    """What this worker counts, and its slots, from a thread of their own."""
    metrics = app.metrics()
    metrics.meter.slots(made.settings.slots, lambda: len(made.holdings))
    port = metrics.serve(host, port)
    logger.info("metrics are at http://%s:%d/metrics", f"[{host}]" if ":" in host else host, port)


def worker_settings(settings: Settings, *, drain: bool) -> WorkerSettings:
    """How a worker works, by the settings in force."""
    chosen = {
        name: getattr(settings, name)
        for name in WorkerSettings.__struct_fields__
        if name not in ("queues", "drain")
    }
    said = {name: value for name, value in chosen.items() if value is not None}
    return WorkerSettings(queues=settings.queues, drain=drain, **said)
