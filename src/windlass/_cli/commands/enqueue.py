"""`windlass enqueue`: have work done later, from a shell. (P1, P2)"""

import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import click

from ..._client.builder import checked_payload
from ..._client.client import MAX_BATCH
from ..._model.options import Options
from ..._model.state import State
from ..._policy.input.payload import MAX_BYTES
from ...errors import InvalidOption, InvalidPayload
from ..command import Asked, Command, pass_asked
from ..documents import shown_payload, task_document
from ..exit_codes import ExitCode
from ..options import duration, instant, priority

if TYPE_CHECKING:
    from ..._client.handle import Handle
    from ..._handler.spec import HandlerSpec
    from ..._model.task import NewTask
    from ...app import App


@click.command("enqueue", cls=Command)
@click.argument("type")
@click.argument("payload", required=False, metavar="[JSON]")
@click.option("--queue", "-q", help="Into this queue (default: the type's own).")
@click.option("--tenant", help="On behalf of this tenant.")
@click.option("--priority", type=priority, help="Higher first: -100 to 100, or high, medium, low.")
@click.option("--delay", type=duration, help="Not before this much time: 90, 5m, 1h30m.")
@click.option("--run-at", type=instant, help="Not before this instant: 2026-11-15T08:00:00Z.")
@click.option("--max-attempts", type=int, help="Dead after so many failed attempts.")
@click.option("--timeout", type=duration, help="How long an attempt may run.")
@click.option("--key", "idempotency_key", help="Idempotency key: a repeat answers with the first task.")
@click.option("--key-for", "idempotency_for", type=duration, help="Keep the key for at least this long.")
@click.option("--unique/--not-unique", default=None, help="Refuse it while an equal task has not ended.")
@click.option("--trace", help="A W3C traceparent to go on with.")
@click.option("--stdin", "from_stdin", is_flag=True, help="A payload on each line of stdin; all or none.")
@click.option("--undeclared", is_flag=True, help="Of a type that the app does not declare.")
@click.option("--wait", is_flag=True, help="Wait for its end and print its result.")
@click.option("--wait-at-most", type=duration, help="Likewise, but no longer than this.")
@click.option("--reveal", is_flag=True, help="Show secrets in the result.")
@pass_asked
def enqueue(
    asked: Asked,
    /,
    *,
    type: str,
    payload: str | None,
    from_stdin: bool,
    undeclared: bool,
    wait: bool,
    wait_at_most: timedelta | None,
    reveal: bool,
    **given: Any,
) -> None:
    """Enqueue a task of TYPE with a JSON object as its payload, and print its id once it is durable.

    With an app (--app) the payload is checked against the handler's parameters, and the type's own queue,
    attempts and timeout apply.
    """
    options = cast("Options", {name: value for name, value in given.items() if value is not None})
    waits = wait or wait_at_most is not None
    if from_stdin and (payload is not None or waits or "idempotency_key" in options):
        raise InvalidOption("--stdin goes with neither a payload on the line, nor --key, nor --wait")
    texts = _lines() if from_stdin else iter([("", payload or "{}")])
    spec = None if undeclared or not asked.app.types else asked.app.declared(type)
    batch = [_task(asked.app, type, spec, options, text, where) for where, text in texts]

    async def work(app: "App") -> None:
        handles = await app.client.enqueue_tasks(batch)
        if waits:
            await _follow(asked, handles[0], wait_at_most, reveal=reveal)
            return
        for handle in handles:
            asked.output.say(handle.id, {"id": handle.id, "created": handle.created})
            if not handle.created:
                asked.output.note("it stood already: this idempotency key was used before")

    asked.run_anywhere(work)


def _lines() -> Iterator[tuple[str, str | bytes]]:
    """The lines of stdin that are not blank, each with its number; one that is far too long is cut."""
    number = 0
    while line := sys.stdin.buffer.readline(2 * MAX_BYTES):
        number += 1
        if number > MAX_BATCH:
            raise InvalidOption(f"--stdin takes at most {MAX_BATCH:,} lines at once; split it")
        if line.strip():
            yield f"line {number}: ", line


def _task(
    app: "App",
    type_name: str,
    spec: "HandlerSpec | None",
    options: Options,
    text: str | bytes,
    where: str,
) -> "NewTask":
    """One task, checked as far as this side can; nothing is stored unless all of them are."""
    try:
        data = checked_payload(text, spec)
    except InvalidPayload as error:
        raise InvalidPayload(f"{where}{error}", pointer=error.pointer) from None
    return app.builder.build(type_name, data, options, spec)


async def _follow(asked: Asked, handle: "Handle[Any]", at_most: timedelta | None, *, reveal: bool) -> None:
    """Wait for the end; a result goes to stdout, any other end is bad news."""
    asked.output.note(f"enqueued {handle.id}")
    task = await handle.wait(at_most)
    if asked.as_json:
        asked.output.document(task_document(task, reveal=reveal))
        if task.state is not State.COMPLETED:
            raise click.exceptions.Exit(ExitCode.BAD_NEWS)
        return
    await handle.result(at_most)  # raises what it died of
    result = None if task.result is None else shown_payload(task.result, task.secret, reveal=reveal)
    asked.output.document(result)
