"""Find tasks that cannot be read as they are stored."""

from msgspec.structs import replace

from .._model.filter import MAX_PAGE, Filter, Page
from .._model.task import DAMAGED
from .._policy.input.quote import counted
from .._policy.input.unreadable import shown_error
from .._store.protocol import Finding, Severity, Store

MAX_CHECKED = 5_000
"""Tasks that are looked at, newest first, so that a check of a large store ends."""

_EXAMPLES = 3


async def damaged_tasks(store: Store) -> tuple[Finding, ...]:
    """Return a warning that names damaged tasks; nothing if none of the newest is."""
    page, damaged, seen = Page(limit=MAX_PAGE, newest_first=True), [], 0
    while seen < MAX_CHECKED:
        found = await store.find(Filter(), page)
        seen += len(found.items)
        for task in found.items:
            error = shown_error(task)
            if error is not None and error.type == DAMAGED:
                damaged.append(task.id)
        if found.cursor is None:
            break
        page = replace(page, cursor=found.cursor)
    if not damaged:
        return ()
    message = (
        f"{counted(len(damaged), 'damaged task')} among the newest {seen:,}: {', '.join(damaged[:_EXAMPLES])}"
        f"{', …' if len(damaged) > _EXAMPLES else ''}; `windlass tasks show ID` says what cannot be read; "
        f"`windlass dead discard` deletes those that are dead"
    )
    return (Finding(severity=Severity.WARNING, subject="tasks", message=message),)
