"""Complete tasks that nothing else is known by, in the round trip that claims the next ones.

The rule of settlements decides what becomes of a task; of what follows from that, there is nothing to do for
most tasks. So one script writes these, instead of a unit of work.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from ...._model.state import State
from ...._model.task import TaskId, may_need_results
from ...._model.verdict import Complete, Settlement
from ...rules.settlement import settled
from ..connection.link import Argument
from ..keys import packed
from ..rows import Stored, changing_part, instant, version_of


def completions(
    batch: Sequence[Settlement], kept: Mapping[TaskId, Stored], now: datetime
) -> list[Argument] | None:
    """Return what `complete` takes of these settlements; None if one of them takes more.

    `kept`: the tasks as they were claimed. The script refuses if one has changed.
    """
    if len(kept) < len(batch):
        return None
    arguments: list[Argument] = [instant(now), len(batch)]
    for settlement in batch:
        stored = kept[settlement.lease.task_id]
        if not _is_simple(settlement, stored):
            return None
        _, _, fields = settled(stored.task, settlement, now)
        task = replace(stored.task, state=State.COMPLETED, unhandled_since=None, **fields)
        changing = changing_part(task, stored.due, settlement.outcome)
        arguments += (packed(task.id), version_of(stored), changing)
    return arguments


def _is_simple(settlement: Settlement, stored: Stored) -> bool:
    """Whether a task completes by this, and only its row and the indexes of every task change."""
    verdict, task = settlement.verdict, stored.task
    return (
        type(verdict) is Complete
        and not verdict.successors
        and settlement.notes is None
        and settlement.progress is None
        and task.fence == settlement.lease.fence
        and not stored.has_dependents
        and not may_need_results(task)
        and task.fingerprint is None
        and task.expires_at is None
    )
