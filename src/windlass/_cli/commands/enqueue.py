"""`windlass enqueue`: enqueue tasks from a shell."""

import sys
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any, cast

import click

from ..._client.builder import checked_payload
from ..._client.client import MAX_BATCH, Handle
from ..._client.tasks.unserved import never_tell_enqueuer, told_if_unserved
from ..._documents.tasks import task_document
from ..._handler.spec import HandlerSpec
from ..._model.options import Defaults, Options
from ..._model.state import State
from ..._model.task import MAX_DELAY, TaskId
from ..._policy.input.payload import MAX_BYTES, decode
from ...errors import InvalidOption, InvalidPayload
from ..command import Cli, Command, pass_cli
from ..exit_codes import ExitCode
from ..operator_actions import reveal_option, shown_tasks
from ..options import duration, expiry, priority, run_at, stacked, task_id

_DEFAULTS = Defaults()


def _default(value: object) -> str:
    return f"  [default: the type's, else {value}]"


_PRIORITY = f"-100 to 100, or high, medium, low; higher first{_default(_DEFAULTS.priority)}"
_ATTEMPTS = f"Bury after N failed attempts{_default(_DEFAULTS.max_attempts)}"

task_options = stacked(
    click.option("--queue", "-q", metavar="QUEUE", help=f"Queue{_default(_DEFAULTS.queue)}"),
    click.option("--tenant", metavar="TENANT", help="Tenant  [default: none]"),
    click.option("--priority", type=priority, help=_PRIORITY),
    click.option("--max-attempts", type=int, metavar="N", help=_ATTEMPTS),
    click.option("--timeout", type=duration, help=f"Time limit of an attempt{_default('none')}"),
    click.option(
        "--secret",
        multiple=True,
        metavar="FIELD",
        help="Mask this payload field, too (repeatable)",
    ),
    click.option("--undeclared", is_flag=True, help="Allow a type that the app does not declare"),
)
"""The options of a command that defines a task."""


@click.command("enqueue", cls=Command)
@click.argument("type")
@click.argument("payload", required=False, metavar="[JSON]")
@task_options
@click.option("--delay", type=duration, help="Run after this time at the earliest: 90, 5m, 1h30m")
@click.option(
    "--run-at", type=run_at, help="Run at this instant at the earliest: 2026-11-15T08:00:00Z, or now"
)
@click.option("--after", type=task_id, multiple=True, metavar="ID", help="Wait for this task; repeatable")
@click.option("--result-into", metavar="NAME", help="Parameter that receives the list of their results")
@click.option(
    "--expires",
    type=expiry,
    help=f"Duration or instant by which the task must have started{_default('none')}",
)
@click.option(
    "--key", "idempotency_key", metavar="KEY", help="Idempotency key: a repeat returns the first task"
)
@click.option(
    "--key-for", "idempotency_for", type=duration, help="Keep the idempotency key at least this long"
)
@click.option("--unique/--not-unique", default=None, help="Refuse the task while an equal one has not ended")
@click.option(
    "--unique-by",
    metavar="FIELD",
    multiple=True,
    help="Like --unique, by this field of the payload; may be repeated  [default: all fields]",
)
@click.option("--unique-for", type=duration, help="Like --unique, and for this long after the first enqueue")
@click.option("--trace", metavar="TRACEPARENT", help="W3C traceparent to continue")
@click.option("--stdin", "from_stdin", is_flag=True, help="Read a payload per line; enqueue all or none")
@click.option("--wait", is_flag=True, help="Wait until the task has ended and print its result")
@click.option("--wait-at-most", type=duration, help="Wait up to this long for the result (implies --wait)")
@reveal_option("Show secret fields of the result")
@pass_cli
def enqueue(
    cli: Cli,
    /,
    *,
    type: str,
    payload: str | None,
    from_stdin: bool,
    undeclared: bool,
    wait: bool,
    wait_at_most: timedelta | None,
    reveal: bool,
    unique_by: tuple[str, ...],
    after: tuple[TaskId, ...],
    result_into: str | None,
    **given: Any,
) -> None:
    """Enqueue a task of TYPE and print its id.

    JSON is the payload, an object. The id is printed once the task is durable. With --app the payload is
    checked against the handler's parameters. The defaults are those of the type, as --app declares it or as
    an app has published it.
    """
    options = cast("Options", {name: value for name, value in given.items() if value is not None})
    if unique_by:
        if "unique" in options:
            raise InvalidOption("--unique-by excludes --unique and --not-unique")
        options["unique"] = unique_by
    waits = wait or wait_at_most is not None
    if from_stdin and (payload is not None or waits or "idempotency_key" in options):
        raise InvalidOption("--stdin excludes a payload argument, --key and --wait")
    texts = _stdin_lines() if from_stdin else iter([("", payload or "{}")])
    spec = declared_type(cli, type, undeclared=undeclared)
    payloads = [_payload(text, spec, where, result_into) for where, text in texts]

    async def work() -> None:
        client = cli.app.client
        if waits or cli.as_json:
            never_tell_enqueuer(cli.app.store)  # who waits is told later; and programs read no hints
        await client.refresh_types()
        defaults = client.types.defaults(type)
        ready = await client.resolved({**options, "after": after}) if after else options
        client.types.check_secret(type, options)
        batch = [client.builder.build(type, one, ready, defaults, result_into) for one in payloads]
        handles = await client.enqueue_tasks(batch)
        if waits:
            await _print_result(cli, handles[0], wait_at_most, reveal=reveal)
            return
        for handle in handles:
            cli.output.say(handle.id, {"id": handle.id, "created": handle.created, "following": []})
            if not handle.created:
                cli.output.note("no task was created: the idempotency key was used before")

    cli.run(work, create=True)


def declared_type(cli: Cli, type: str, *, undeclared: bool) -> HandlerSpec | None:
    """The type as the app declares it; None without an app, or for another type if `undeclared`."""
    return cli.app.types.find(type) if undeclared or not cli.app.types else cli.app.declared(type)


def _stdin_lines() -> Iterator[tuple[str, str | bytes]]:
    """The lines of stdin that are not blank, each with its number for messages; overlong ones are cut."""
    lines = iter(lambda: sys.stdin.buffer.readline(2 * MAX_BYTES), b"")
    for number, line in enumerate(lines, start=1):
        if number > MAX_BATCH:
            raise InvalidOption(f"--stdin takes at most {MAX_BATCH:,} lines; split the input")
        if line.strip():
            yield f"line {number}: ", line


def _payload(text: str | bytes, spec: HandlerSpec | None, where: str, result_into: str | None) -> bytes:
    """Check a payload; `where` names its line in the message of InvalidPayload."""
    try:
        return checked_payload(text, spec, result_into)
    except InvalidPayload as error:
        raise InvalidPayload(f"{where}{error}", pointer=error.pointer) from None


async def _print_result(cli: Cli, handle: Handle[Any], at_most: timedelta | None, *, reveal: bool) -> None:
    """Wait for the end of a task and print its result; any other end than completion exits with 1."""
    cli.output.note(f"enqueued {handle.id}")
    store, note = cli.app.store, partial(cli.output.note, warning=True)
    async with told_if_unserved(store, handle.task, lambda _, why: note(why)):
        ended = await handle.wait(at_most or MAX_DELAY)  # with a limit it does not log the same
    (task,) = await shown_tasks(cli, [ended], reveal=reveal)
    if cli.as_json:
        cli.output.document(task_document(task, reveal=True))
        if task.state is not State.COMPLETED:
            raise click.exceptions.Exit(ExitCode.NEGATIVE)
        return
    await handle.result(at_most)  # raises the error of a task that died
    cli.output.document(None if task.result is None else decode(task.result))
