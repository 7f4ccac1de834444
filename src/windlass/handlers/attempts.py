"""The earlier attempts of a running task, since it was enqueued or replayed."""

from typing import TYPE_CHECKING, Any

import msgspec

from .._handler.context import Context

if TYPE_CHECKING:
    from ..app import App

_NOT_COUNTED = ("released", "snoozed", "stopped")  # after these the next attempt has the same number


async def earlier_notes(app: "App", ctx: Context) -> list[dict[str, Any]]:
    """Return the notes of each earlier attempt, the newest first; {} for one that noted nothing.

    Attempts before a replay are left out: who replays a task wants it to run again.
    """
    if ctx.fence == 1:
        return []
    notes: list[dict[str, Any]] = []
    expected = ctx.attempt
    for one in reversed(await app.operator.attempts(ctx.task_id)):
        repeats = one.number == expected and one.outcome in _NOT_COUNTED
        if not repeats and one.number != expected - 1:
            break
        expected = one.number
        notes.append({} if one.notes is None else msgspec.json.decode(one.notes))
    return notes
