"""Rank ready tasks anew after the ageing of their queue has changed, some at a time.

A store ranks new tasks by the ageing that it has read last, up to a few seconds ago. When it reads another
one it ranks the queue's tasks once more, its own among them. What then remains, of transactions that were
open for longer, the keeper finds: strict ranks and ranks with ageing are far apart.
"""

from collections.abc import Awaitable, Callable, Sequence

from ...._model.queue import STRICT_MS
from ..queue_layout import START
from ..rows import Row
from ..script import Query
from ..statements import statement

AT_ONCE = 1000
"""Tasks that one statement ranks, so that none holds many locks for long."""

_BORDER = STRICT_MS // 2
"""Between the ranks of a strict queue and those of one with ageing, above and below 0."""

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_LEVELS = ("t.priority > 0", "t.priority < 0")  # Priority 0 has no head start.


async def rerank(
    fetch: Callable[[Query], Awaitable[Sequence[Row]]], schema: str, queue: str, head_start: int
) -> None:
    """Rank all ready tasks of a queue by this head start of one priority, in milliseconds."""
    for level in _LEVELS:
        sql, after = statement("rerank", schema, level=level), START
        while True:
            ((seen, rank, task_id),) = await fetch(
                Query(f"rerank {level}", (queue, head_start, *after, AT_ONCE), sql)
            )
            if seen < AT_ONCE:
                break
            after = rank, task_id


async def rerank_mixed(fetch: Callable[[Query], Awaitable[Sequence[Row]]], schema: str) -> None:
    """Rank the tasks of queues in which strict ranks and ranks with ageing are mixed."""
    for queue, head_start in await fetch(Query("aged_queues")):
        if head_start == STRICT_MS:
            wrong = (-_BORDER, _HIGHEST, _LOWEST, _BORDER)
        else:
            wrong = (_LOWEST, -_BORDER, _BORDER, _HIGHEST)
        if (await fetch(Query("misranked", (queue, *wrong))))[0][0]:
            await rerank(fetch, schema, queue, head_start)
