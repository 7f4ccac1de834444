"""One task: its facts, states, attempts, payload and result; cancel, replay, edit and discard it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ..._documents.tasks import AttemptDocument, ErrorDocument, TaskDocument
from ..._documents.workers import StuckDocument, WorkerDocument, last_stuck
from ..._http.resources.tasks import (
    cancel_task,
    discard_dead_letter,
    get_task,
    list_attempts,
    replay_task,
)
from ..._http.resources.work import list_workers
from ..._http.web.body import decode_json
from ..._http.web.problems import Problem
from ..._model.brief import Brief
from ..._model.key import Scope
from ..._model.state import ENDED, REPLAYABLE, State
from ..._policy.failure import is_own_code
from ..._policy.input.trace import Trace, parse_trace
from ..._policy.secrets.fields import MASK
from ...errors import NotFound
from ..page import Done, Pages
from ..tasks.chain_graph import Graph
from ..tasks.state_path import draw_path, state_path
from ..view import View
from .chains import read_graph

task = Pages()

MAX_PRETTY = 64_000
"""Bytes of JSON that are shown with colours and line breaks; more is cut."""


class Document(Brief, Struct, frozen=True):
    """JSON to show; `cut` is its beginning if it is too large, else empty."""

    value: Any
    cut: str = ""


@task.screen("/tasks/{id}", "task.html", "Task", bound=True)
async def show_task(view: View) -> Mapping[str, Any]:
    """Show a task."""
    try:
        found = await view.call(get_task, id=view.path("id"))
        attempts = (await view.call(list_attempts, id=found.id)).items
    except NotFound:
        return {"task": None, "id": view.path("id"), "status": 404}
    trace = parse_trace(found.trace)
    return {
        "task": found,
        "id": found.id,
        "attempts": attempts,
        "failure": _failed_attempt(view.query("attempt"), found, attempts),
        "diagram": draw_path(state_path(found, attempts)),
        "graph": await _graph(view, found),
        "waited": _waited(found),
        "stuck": await _stuck(view, found, attempts),
        "payload": _shown(found.payload),
        "result": None if found.result is None else _shown(found.result),
        "is_masked": MASK in msgspec.json.encode([found.payload, found.result]).decode(),
        "trace": trace,
        "trace_url": _trace_url(view, trace),
        "can": {
            "cancel": found.state not in ENDED,
            "replay": found.state in REPLAYABLE,
            "discard": found.state is State.DEAD,
        },
    }


@task.screen(
    "/tasks/{id}/secrets", "task_secrets.html", "Secrets", scope=Scope.REVEAL, bound=True, live=False
)
async def show_secrets(view: View) -> Mapping[str, Any]:
    """Show a task's payload and result with their secrets; the audit log records it."""
    found = await view.call(get_task, query={"reveal": True}, id=view.path("id"))
    return {"task": found, "payload": _shown(found.payload), "result": _shown(found.result)}


@task.screen("/tasks/{id}/edit", "task_edit.html", "Replay with another payload", bound=True, live=False)
async def show_edit(view: View) -> Mapping[str, Any]:
    """Show the form in which a payload is edited, or again what was sent."""
    found = await view.call(get_task, id=view.path("id"))
    text = view.field("payload") or pretty(found.payload)
    return {"task": found, "text": text, "is_masked": MASK in text, "can_replay": found.state in REPLAYABLE}


@task.action("/tasks/{id}/edit", form="/tasks/{id}/edit")
async def replay_edited(view: View) -> Done:
    """Replay a task with another payload."""
    id = view.path("id")
    body = {"payload": read_payload(view.field("payload")), "why": view.why}
    await view.call(replay_task, body=body, id=id)
    return Done("The task is replayed with the new payload.", f"tasks/{id}")


@task.action("/tasks/{id}/replay")
async def replay(view: View) -> Done:
    """Replay a task."""
    id = view.path("id")
    await view.call(replay_task, body={"why": view.why}, id=id)
    return Done("The task is ready again.", f"tasks/{id}")


@task.action("/tasks/{id}/cancel")
async def cancel(view: View) -> Done:
    """Cancel a task."""
    id = view.path("id")
    done = await view.call(cancel_task, query={"why": view.why}, id=id)
    text = "The task is cancelled." if done.state in ENDED else "The task is asked to stop."
    return Done(text, f"tasks/{id}")


@task.action("/tasks/{id}/discard")
async def discard(view: View) -> Done:
    """Delete a dead letter."""
    await view.call(discard_dead_letter, query={"why": view.why}, id=view.path("id"))
    return Done(f"Task {view.path('id')} is deleted.", "tasks?state=dead")


def read_payload(text: str) -> Raw:
    """Return a payload that was typed; raise 422 with the place of what is wrong."""
    if MASK in text:
        raise Problem(
            "invalid-payload",
            f"the payload contains {MASK}, which stands for a secret; write the secret itself",
        )
    raw = text.encode("utf-8", "surrogatepass")
    try:
        decode_json(raw, msgspec.json.decode)
    except Problem as problem:
        raise Problem("invalid-payload", f"the payload is not valid JSON: {problem.detail}") from None
    return Raw(raw)


def pretty(value: Any) -> str:
    """Return JSON with line breaks, to edit it."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _shown(value: Any) -> Document:
    text = msgspec.json.encode(value)
    return Document(value, "" if len(text) <= MAX_PRETTY else text[:MAX_PRETTY].decode("utf-8", "ignore"))


def _failed_attempt(
    chosen: str, task: TaskDocument, attempts: list[AttemptDocument]
) -> Mapping[str, Any] | None:
    """Return the error to show: that of the chosen attempt, or else the last one."""
    failed = [(number, one) for number, one in enumerate(attempts) if one.error is not None]
    for number, one in failed:
        if str(number) == chosen:
            return _failure(one.error, number, one.number)
    if task.error is not None:
        number, of = (failed[-1][0], failed[-1][1].number) if failed else (-1, task.attempt)
        return _failure(task.error, number, of)
    return _failure(failed[-1][1].error, failed[-1][0], failed[-1][1].number) if failed else None


def _failure(error: ErrorDocument | None, index: int, number: int) -> Mapping[str, Any]:
    assert error is not None
    return {
        "error": error,
        "index": index,
        "number": number,
        "parts": traceback_parts(error.traceback or ""),
    }


async def _graph(view: View, task: TaskDocument) -> Graph | None:
    """Return the graph of the task's chain or group; None if it is alone."""
    graph = await read_graph(view, task.root)
    return graph if len(graph.nodes) > 1 else None


async def _stuck(
    view: View, task: TaskDocument, attempts: list[AttemptDocument]
) -> tuple[WorkerDocument, StuckDocument] | None:
    """Return its last handler that runs on after its timeout, and the worker; None if none is listed."""
    has_overrun = any(one.outcome == "timedout" for one in attempts)
    may_be = task.timeout is not None and (task.state is State.RUNNING or has_overrun)
    if not may_be or not view.may_call(list_workers):
        return None
    return last_stuck((await view.call(list_workers)).items, task.id)


def _waited(task: TaskDocument) -> float | None:
    """Return the seconds from when it was due to its start; None if it has not started since."""
    due = max(task.run_at, task.created_at)
    if task.claimed_at is None or task.claimed_at < due:
        return None
    return (task.claimed_at - due).total_seconds()


def _trace_url(view: View, trace: Trace | None) -> str:
    url = view.settings.trace_url
    if trace is None or not url.startswith(("https://", "http://")):
        return ""
    return url.replace("{trace}", trace.trace_id)


# -- tracebacks in parts, so that a page can mark the frames of the program's own code -----------------


_FRAME = re.compile(r'( *)File "([^"]{1,1000})", line \d+')


class Part(Brief, Struct, frozen=True):
    """Lines of a traceback. `kind`: "own" or "foreign" for a frame, and "" for what is between frames."""

    text: str
    kind: str = ""


def traceback_parts(traceback: str) -> Sequence[Part]:
    """Divide a traceback into its frames and what is between them; together they are its text."""
    parts: list[Part] = []
    lines: list[str] = []
    kind, depth = "", -1

    def end() -> None:
        if lines:
            parts.append(Part("".join(lines), kind))
            lines.clear()

    for line in traceback.splitlines(keepends=True):
        if found := _FRAME.match(line):
            end()
            kind, depth = ("own" if is_own_code(found[2]) else "foreign"), len(found[1])
        elif kind and _indent(line) <= depth:
            end()
            kind, depth = "", -1
        lines.append(line)
    end()
    return parts


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
