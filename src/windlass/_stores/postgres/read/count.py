"""Count the tasks that match: exactly up to a bound, beyond it by an estimate that is marked as one.

Each state is counted by its own index, so a state with few tasks is exact however many the others have. For a
state with more rows than the bound a sample of the table's pages is scaled up. Ready tasks are first counted
queue by queue and dead ones failure by failure, so that few of them are not lost beside many.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from msgspec import Struct, field

from ...._model.filter import Count, Dimension, Filter
from ...._model.state import State
from ..script import Query, Source
from ..statements import in_schema
from ..upkeep.partitions import day_of
from .filters import (
    Parameters,
    Search,
    by_state_index,
    conditions,
    grouped,
    in_states,
    is_text,
    named,
    search_for,
)

MAX_COUNTED = 20_000
"""Rows of a state that are read before an estimate takes the place of the exact number."""

SAMPLED_PAGES = 2_000
"""Pages of a table that an estimate reads: about 16 MB."""

MAX_LINES = 10_000
"""Queues or failures that are counted one by one: their share of MAX_COUNTED rows, at least two."""

MIN_COUNTED = 100
"""Rows of each line that are counted at least, unless that makes more than three times MAX_COUNTED."""

_DAY = timedelta(days=1)
Key: TypeAlias = tuple[str, ...]
"""A state, and the values of the requested dimensions."""

_DUE = "min(least(greatest(t.run_at, t.created_at), '9999-01-01 00:00:00+00'))"  # not infinity: see rows.py
_COUNT = """
SELECT {number}, count(*), count(*) FILTER (WHERE {rest}), {due} FILTER (WHERE {rest}), {groups}
FROM ({rows} LIMIT {limit}) AS t
GROUP BY {groups}
"""
_COUNT_LINES = """
SELECT line.name, count(*), count(*) FILTER (WHERE {rest}), {due} FILTER (WHERE {rest}), {groups}
FROM unnest({names}) AS line (name)
CROSS JOIN LATERAL (
    SELECT {columns} FROM windlass.task AS t
    WHERE t.state = '{state}' AND t.{column} = line.name
    ORDER BY {order}
    LIMIT {limit}
) AS t
GROUP BY line.name, {groups}
"""
_SAMPLE = """
SELECT count(*), {due}, {groups}
FROM windlass.{table} AS t TABLESAMPLE SYSTEM ({percent})
WHERE {rest}
GROUP BY {groups}
"""


class Part(Struct, frozen=True):
    """Tasks that one index leads to, by one or more branches of conditions."""

    table: str
    states: tuple[State, ...]
    branches: list[list[str]]


class Line(Struct, frozen=True):
    """A dimension by whose values the tasks of a state are indexed, and the statement that lists them."""

    dimension: Dimension
    names: str
    order: str

    def wanted(self, where: Filter) -> Sequence[str] | None:
        """Return the values that a filter names; None if it names none."""
        return where.queues if self.dimension is Dimension.QUEUE else where.failures


LINES = {
    State.READY: Line(Dimension.QUEUE, "ready_queues", "t.stripe, t.rank"),
    State.DEAD: Line(Dimension.FAILURE, "dead_failures", "t.id"),
}


class Tally(Struct):
    """The counts so far, the states counted only in part, and the values of their lines that are exact."""

    numbers: Counter[Key] = field(default_factory=Counter)
    oldest: dict[Key, datetime] = field(default_factory=dict)
    crowded: set[State] = field(default_factory=set)
    short: dict[State, set[str]] = field(default_factory=dict)

    def was_due(self, key: Key, due_at: datetime | None) -> None:
        if due_at is not None:
            self.oldest[key] = min(due_at, self.oldest.get(key, due_at))

    def is_short(self, state: State, values: Mapping[Dimension, str]) -> bool:
        """Whether all tasks of this state with these values were counted, as their line is short."""
        return state in LINES and values.get(LINES[state].dimension) in self.short.get(state, ())


class CountQuery:
    """A filter and the dimensions to count by, on one database."""

    def __init__(self, source: Source, search: Search, by: tuple[Dimension, ...]) -> None:
        self.by = by
        self._source = source
        self._search = search
        self._groups = ", ".join(grouped(name) for name in (Dimension.STATE, *by))
        columns = dict.fromkeys(["state", "run_at", "created_at", *by, *_filtered(search.where)])
        self._columns = ", ".join(f"t.{name}" for name in columns)

    async def count(self) -> Tally:
        """Count by index, up to MAX_COUNTED rows of each state."""
        parameters, tally = Parameters(), Tally()
        parts = list(self._parts(parameters))
        if not parts:
            return tally
        limit = parameters.add(MAX_COUNTED + 1, "bigint")
        sql = "\nUNION ALL\n".join(
            _COUNT.format(
                number=number,
                due=_DUE,
                rest=self._rest(part.states, parameters),
                groups=self._groups,
                rows=self._rows(part),
                limit=limit,
            )
            for number, part in enumerate(parts)
        )
        read: Counter[int] = Counter()
        for part_number, seen, matching, due_at, *key in await self._fetch(sql, parameters):
            read[part_number] += seen
            tally.numbers[tuple(key)] += matching
            tally.was_due(tuple(key), due_at)
        tally.crowded.update(
            *(part.states for number, part in enumerate(parts) if read[number] > MAX_COUNTED)
        )
        return tally

    async def count_lines(self, tally: Tally, state: State) -> None:
        """Count the tasks of each queue or failure of a state, up to its share of MAX_COUNTED rows."""
        line = LINES[state]
        names = line.wanted(self._search.where)
        if names is None:
            rows = await self._source.fetch(Query(line.names, (MAX_LINES + 1,)))
            names = [row[0] for row in rows]
        names = [name for name in dict.fromkeys(names) if name and is_text(name)]
        if not 0 < len(names) <= MAX_LINES:
            return
        parameters = Parameters()
        least = MIN_COUNTED if len(names) * MIN_COUNTED <= 3 * MAX_COUNTED else 2
        limit = max(MAX_COUNTED // len(names), least)
        sql = _COUNT_LINES.format(
            due=_DUE,
            rest=self._rest((state,), parameters),
            groups=self._groups,
            names=parameters.add(names, "text[]"),
            columns=self._columns,
            state=state.value,
            column=line.dimension.value,
            order=line.order,
            limit=parameters.add(limit, "bigint"),
        )
        numbers: Counter[Key] = Counter()
        read: Counter[str] = Counter()
        for name, seen, matching, due_at, *key in await self._fetch(sql, parameters):
            read[name] += seen
            numbers[tuple(key)] = matching
            tally.was_due(tuple(key), due_at)
        tally.short[state] = {name for name in names if read[name] < limit}
        for found, number in numbers.items():
            tally.numbers[found] = max(number, tally.numbers[found])

    async def estimate(self, tally: Tally, table: str) -> None:
        """Sample the pages of a table for the states that have too many rows."""
        held = self._search.task if table == "task" else self._search.history
        wanted = tuple(state for state in held if state in tally.crowded)
        if not wanted:
            return
        pages = await self._pages(table)
        percent = min(100.0, 100.0 * SAMPLED_PAGES / max(pages, 1))
        parameters = Parameters()
        sql = _SAMPLE.format(
            due=_DUE,
            groups=self._groups,
            table=table,
            percent=parameters.add(percent, "real"),
            rest=self._rest(wanted, parameters),
        )
        for number, due_at, *key in await self._fetch(sql, parameters):
            tally.was_due(tuple(key), due_at)
            if tally.is_short(State(key[0]), self._values(key[1:])):
                continue
            counted = tally.numbers[tuple(key)]
            tally.numbers[tuple(key)] = max(counted, round(number * 100.0 / percent))
        if percent == 100.0:
            tally.crowded -= set(wanted)

    def is_exact(self, tally: Tally, key: Sequence[str]) -> bool:
        """Whether no state that was only estimated contributes to this number."""
        mine = self._values(key)
        return not any(
            mine.get(Dimension.STATE, state) == state and not tally.is_short(state, mine)
            for state in tally.crowded
        )

    # -- parts ---------------------------------------------------------------------------------------

    def _parts(self, parameters: Parameters) -> Iterator[Part]:
        search = self._search
        if search.is_named:
            for table, held in (("task", search.task), ("history", search.history)):
                if held:
                    yield Part(table, held, named(search, parameters, "t"))
            return
        for state in search.task:
            yield Part("task", (state,), [by_state_index(search, state, parameters)])
        if search.history:
            yield Part("history", search.history, [self._days(parameters)])

    def _days(self, parameters: Parameters) -> list[str]:
        """Return conditions on whole days, by which the planner chooses the history's partitions."""
        bounds = zip((">=", "<"), self._between(), strict=True)
        return [
            f"t.finished_at {sign} {parameters.add(at, 'timestamptz')}"
            for sign, at in bounds
            if at is not None
        ]

    def _between(self) -> tuple[datetime | None, datetime | None]:
        """Return the midnights between which the days of the filter are; None: without a bound."""
        after, before = self._search.where.finished_after, self._search.where.finished_before
        first = None if after is None else _midnight(after)
        return first, None if before is None else _midnight(before) + _DAY

    def _rows(self, part: Part) -> str:
        table = f"SELECT {self._columns} FROM windlass.{part.table} AS t WHERE "  # noqa: S608 - no values in it
        branches = [table + (" AND ".join(branch) or "true") for branch in part.branches]
        return branches[0] if len(branches) == 1 else " UNION ALL ".join(f"({branch})" for branch in branches)

    def _rest(self, held: Sequence[State], parameters: Parameters) -> str:
        return " AND ".join([in_states(held, "t"), *conditions(self._search, parameters, "t")])

    def _values(self, key: Sequence[str]) -> dict[Dimension, str]:
        return dict(zip(self.by, key, strict=True))

    async def _pages(self, table: str) -> int:
        """Return the number of pages of the table, of the history only those of the filter's days."""
        first, last = (None if at is None else at.date() for at in self._between())
        total = 0
        for name, pages in await self._source.fetch(Query("table_pages")):
            day = day_of(name)
            wanted = day is None or ((first is None or day >= first) and (last is None or day < last))
            if wanted and (name == "task") == (table == "task"):
                total += pages
        return total

    async def _fetch(self, sql: str, parameters: Parameters) -> Sequence[Sequence[Any]]:
        sql = in_schema(sql, self._source.address.schema)
        return await self._source.fetch(Query("count", parameters.all, sql))


async def count(source: Source, where: Filter, by: Sequence[Dimension]) -> list[Count]:
    """Count the tasks that match for each combination of values that occurs, in the order of the values."""
    query = CountQuery(source, search_for(where), tuple(by))
    tally = await query.count()
    for crowded in [state for state in LINES if state in tally.crowded]:
        if LINES[crowded].dimension in query.by:
            await query.count_lines(tally, crowded)
    for table in ("task", "history"):
        await query.estimate(tally, table)
    total = Tally(numbers=Counter({} if by else {(): 0}))
    for (state, *rest), number in tally.numbers.items():
        key = tuple(rest)
        if number or not by:
            total.numbers[key] += number
        total.was_due(key, tally.oldest.get((state, *rest)))
    return [
        Count(values=key, number=number, exact=query.is_exact(tally, key), oldest_at=total.oldest.get(key))
        for key, number in sorted(total.numbers.items())
    ]


def _filtered(where: Filter) -> Iterator[str]:
    """Yield the columns that a filter reads."""
    for columns, value in (
        ("id", where.ids),
        ("root", where.root),
        ("idempotency_key", where.idempotency_key),
        ("type", where.types),
        ("queue", where.queues),
        ("tenant", where.tenants),
        ("error_type error_message", where.error),
        ("failure", where.failures),
        ("next root id", where.chained or None),
        ("created_at", where.created_after or where.created_before),
        ("finished_at", where.finished_after or where.finished_before),
        ("expires_at attempt", where.expires_before),
    ):
        if value is not None:
            yield from columns.split()


def _midnight(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
