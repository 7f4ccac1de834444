"""Count the tasks that match exactly, with their bytes and following steps: one scan of both tables.

A scan, as no index has the sizes. The statement sees one moment, so a task that ends meanwhile counts once.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from ...._model.filter import Count, Dimension, Filter
from ...._model.state import State
from ...rules.sizes import STEP, WITHOUT_STEPS
from ..script import Query, Source
from ..statements import compose
from .filters import Parameters, Search, conditions, grouped, in_states, search_for

_STEPS = """CASE WHEN t.next IS NOT NULL THEN (
    SELECT count(*) FROM regexp_matches(convert_from(t.next, 'UTF8'), {step}, 'g')
) END"""


async def measure(source: Source, where: Filter, by: Sequence[Dimension]) -> list[Count]:
    """Count for each combination of values that occurs, in the order of the values."""
    search, parameters = search_for(where), Parameters()
    parts = [
        _part(source, search, by, table, held, parameters)
        for table, held in (("task", search.task), ("history", search.history))
        if held
    ]
    numbers: Counter[tuple[str, ...]] = Counter({} if by else {(): 0})
    steps: Counter[tuple[str, ...]] = Counter()
    sizes: Counter[tuple[str, ...]] = Counter()
    oldest: dict[tuple[str, ...], datetime] = {}
    rows = await source.fetch(Query("measure", parameters.all, "\nUNION ALL\n".join(parts))) if parts else ()
    for number, due_at, following, size, *values in rows:
        key = tuple(values)
        numbers[key] += number
        steps[key] += following
        sizes[key] += size
        if due_at is not None:
            oldest[key] = min(due_at, oldest.get(key, due_at))
    return [
        Count(values=key, number=number, oldest_at=oldest.get(key), steps=steps[key], bytes=sizes[key])
        for key, number in sorted(numbers.items())
    ]


def _part(
    source: Source,
    search: Search,
    by: Sequence[Dimension],
    table: str,
    held: tuple[State, ...],
    parameters: Parameters,
) -> str:
    """Return the statement for one table."""
    has_steps = not set(held) <= set(WITHOUT_STEPS)
    dimensions = ", ".join(map(grouped, by))
    return compose(
        "measure",
        source.address.schema,
        table=f"windlass.{table}",
        steps=_STEPS.format(step=parameters.add(STEP, "text")) if has_steps else "0",
        dimensions=f", {dimensions}" if by else "",
        conditions=" AND ".join([in_states(held, "t"), *conditions(search, parameters, "t")]),
        group_by=f"GROUP BY {dimensions}" if by else "",
    )
