"""Names from other task queues, and what to use here: for error messages."""

from collections.abc import Callable, Collection
from inspect import signature
from typing import Any

from ..errors import InvalidOption
from .input.quote import quoted, suggestion

METHODS = {
    "apply_async": "using(…).enqueue()",
    "defer": "enqueue()",
    "defer_async": "aenqueue()",
    "delay": "enqueue()",
    "kiq": "aenqueue()",
    "s": "step()",
    "send": "enqueue()",
    "send_with_options": "using(…).enqueue()",
    "signature": "step()",
    "si": "step()",
}
"""Methods of a task type."""

_CONTEXT = "use a parameter `ctx: Context` of the handler"
_ALWAYS = "leave it out: a task is kept until it has ended, whatever crashes"
_RETRIES = "use max_attempts=, which counts the first attempt too"
_BACKOFF = "use backoff=Backoff(…)"
_RESULTS = "set the retention of the queue or the app"
_OPTIONS = {
    "_defer_by": "use delay=",
    "_defer_until": "use run_at=",
    "_expires": "use expires=",
    "_job_id": "use idempotency_key=, or unique=True",
    "acks_late": _ALWAYS,
    "actor_name": "use name=",
    "autoretry_for": "leave it out: every exception is retried but those in fatal=",
    "base": "use @app.around",
    "bind": _CONTEXT,
    "countdown": "use delay=",
    "cron": "use schedule=",
    "default_retry_delay": _BACKOFF,
    "depends_on": "use after=",
    "dont_autoretry_for": "use fatal=",
    "eta": "use run_at=",
    "failure_ttl": _RESULTS,
    "ignore_result": _RESULTS,
    "job_id": "use idempotency_key=, or unique=True",
    "job_timeout": "use timeout=",
    "link": "use next=",
    "link_error": "use on_failure=",
    "lock": "use app.limit(…, running=1)",
    "max_age": "use expires=",
    "max_backoff": _BACKOFF,
    "max_retries": _RETRIES,
    "max_tries": _RETRIES,
    "min_backoff": _BACKOFF,
    "pass_context": _CONTEXT,
    "periodic": "use schedule=",
    "queue_name": "use queue=",
    "queueing_lock": "use unique=True",
    "rate_limit": "use app.limit(…)",
    "reject_on_worker_lost": _ALWAYS,
    "result_ttl": _RESULTS,
    "retries": _RETRIES,
    "retry": _RETRIES,
    "retry_backoff": _BACKOFF,
    "schedule_at": "use run_at=",
    "schedule_in": "use delay=",
    "soft_time_limit": "use timeout=",
    "store_results": "leave it out: results are always kept",
    "task_id": "use idempotency_key=",
    "task_name": "use name=",
    "throws": "use fatal=",
    "time_limit": "use timeout=",
    "ttl": "use expires=",
}

COMMANDS = {
    "beat": "keeper",
    "cancel": "tasks cancel",
    "dead requeue": "dead replay",
    "dead retry": "dead replay",
    "errors": "dead failures",
    "failures": "dead failures",
    "help": "--help",
    "info": "top",
    "inspect": "workers list",
    "jobs": "tasks list",
    "list": "tasks list",
    "monitor": "top",
    "pause": "queues pause",
    "ping": "check",
    "purge": "tasks cancel --queue",
    "queues clear": "tasks cancel --queue",
    "queues empty": "tasks cancel --queue",
    "queues purge": "tasks cancel --queue",
    "replay": "dead replay",
    "requeue": "dead replay",
    "resume": "queues resume",
    "retry": "dead replay",
    "revoke": "tasks cancel",
    "run": "worker",
    "scheduler": "keeper",
    "schedules run": "schedules trigger",
    "send": "enqueue",
    "show": "tasks show",
    "start": "worker",
    "stats": "top",
    "status": "top",
    "tasks add": "enqueue",
    "tasks count": "queues list",
    "tasks create": "enqueue",
    "tasks delete": "dead discard",
    "tasks discard": "dead discard",
    "tasks enqueue": "enqueue",
    "tasks replay": "dead replay",
    "tasks requeue": "dead replay",
    "tasks retry": "dead replay",
    "tasks revoke": "tasks cancel",
    "tasks send": "enqueue",
}
"""Commands, and what `windlass` has for them."""

SWITCHES = {
    "--autoreload": "--reload",
    "--burst": "--drain",
    "--concurrency": "--slots",
    "--countdown": "--delay",
    "--eta": "--run-at",
    "--hostname": "--name",
    "--job-id": "--key",
    "--loglevel": "--log-level",
    "--max-memory-per-child": "--max-memory",
    "--max-tasks-per-child": "--max-tasks",
    "--older-than": "--completed",
    "--queues": "--queue",
    "--threads": "--slots",
    "--watch": "--reload",
    "-A": "--app",
    "-Q": "--queue",
    "-b": "--drain",
    "-c": "--slots",
    "-l": "--log-level",
    "-n": "--name",
    "-t": "--slots",
}
"""Options of commands, and what those of `windlass` are that have such an option."""


def check_known(given: Collection[str], known: Collection[str], otherwise: str) -> None:
    """Raise InvalidOption for an option that is not known, with what to use instead."""
    for name in given:
        if name not in known:
            hint = f"; {_OPTIONS[name]}" if name in _OPTIONS else suggestion(name, known, otherwise)
            raise InvalidOption(f"unknown option {quoted(name)}{hint}")


def check_keywords(function: Callable[..., Any], given: Collection[str]) -> None:
    """Raise InvalidOption for a keyword that this function has no parameter for."""
    parameters = signature(function).parameters.values() if given else ()
    known = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    check_known(given, known, f"the options are {', '.join(known)}")
