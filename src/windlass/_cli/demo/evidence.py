"""Gathering the evidence: the store's side through the operator, the handlers' side from their own log."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from ... import App, Page
from ..._model.attempt import Attempt
from ..._model.filter import MAX_PAGE
from ..._model.record import Audit
from ..._model.task import TaskId
from .proof import Evidence, Execution, Settlement
from .shop import EXECUTIONS, SETTLEMENTS


async def gather(
    app: App, folder: Path, ledger: frozenset[TaskId], gone: Mapping[TaskId, Sequence[Attempt]]
) -> Evidence:
    """Everything there is. `gone` are the attempts of tasks that were discarded, read before they were."""
    tasks = {task.id: task async for task in app.operator.every()}
    attempts = {task_id: await app.operator.attempts(task_id) for task_id in tasks}
    return Evidence(
        ledger=ledger,
        tasks=tasks,
        attempts={**gone, **attempts},
        audits=await _audits(app),
        executions=[
            Execution(task_id, int(fence), int(attempt))
            for task_id, fence, attempt in _noted(folder / EXECUTIONS)
        ],
        settlements=[Settlement(task_id, event) for task_id, event in _noted(folder / SETTLEMENTS)],
    )


def _noted(path: Path) -> list[list[str]]:
    """The words of each line of a log."""
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


async def _audits(app: App) -> list[Audit]:
    found: list[Audit] = []
    page = Page(limit=MAX_PAGE)
    while True:
        some = await app.operator.audit(page)
        found += some.items
        if some.cursor is None:
            return found
        page = replace(page, cursor=some.cursor)
