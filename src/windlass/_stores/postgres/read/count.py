"""How many tasks match. Counting never scans: exact up to a bound, beyond it estimated, and marked as such.

Each state is counted by its own index, so that what is little is exact, whatever else there is much of. Of a
state with more rows than are looked at, a sample of the table's pages is taken and scaled up; but ready tasks
are counted queue by queue first, lest a short queue vanish beside a long one.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from msgspec import Struct

from ...._model.filter import Count, Dimension, Filter
from ...._model.state import State
from ..connection.client import Connections
from ..script import Ask
from ..statements import in_schema
from ..upkeep.partitions import day_of
from .filters import Sought, Values, conditions, is_text, names, of_state, sought, states

LOOKED_AT = 20_000
"""Rows of a state that are looked at before an estimate takes the place of the exact number."""

SAMPLED_PAGES = 2_000
"""Pages of a table that an estimate looks at: some 16 MB."""

MAX_QUEUES = 500
"""So many queues are counted one by one, at least `MIN_LOOKED_AT` rows of each."""

MIN_LOOKED_AT = 100

_DAY = timedelta(days=1)
Key: TypeAlias = tuple[str, ...]
"""A state, and the values of the dimensions asked for."""

_DUE = "min(greatest(t.run_at, t.created_at))"
_LOOK = """
SELECT {number}, count(*), count(*) FILTER (WHERE {rest}), {due} FILTER (WHERE {rest}), {groups}
FROM ({rows} LIMIT {limit}) AS t
GROUP BY {groups}
"""
_LOOK_AT_QUEUES = """
SELECT count(*), count(*) FILTER (WHERE {rest}), {due} FILTER (WHERE {rest}), {groups}
FROM unnest({queues}) AS q (name)
CROSS JOIN LATERAL (
    SELECT {columns} FROM windlass.task AS t
    WHERE t.state = 'ready' AND t.queue = q.name
    ORDER BY t.stripe, t.rank
    LIMIT {limit}
) AS t
GROUP BY {groups}
"""
_SAMPLE = """
SELECT count(*), {due}, {groups}
FROM windlass.{table} AS t TABLESAMPLE SYSTEM ({percent})
WHERE {rest}
GROUP BY {groups}
"""


class Part(Struct, frozen=True):
    """Tasks that one index leads to, with an arm for each condition that it answers."""

    table: str
    states: tuple[State, ...]
    arms: list[list[str]]


class Tally(Struct):
    """What has been counted so far; which states only in part; and the queues whose ready tasks were few."""

    numbers: Counter[Key]
    oldest: dict[Key, datetime]
    crowded: set[State]
    short: set[str]

    def was_due(self, key: Key, due_at: datetime | None) -> None:
        """One of these was due then."""
        if due_at is not None:
            self.oldest[key] = min(due_at, self.oldest.get(key, due_at))


class Counting:
    """One question: the filter, the dimensions, and where it is asked."""

    def __init__(self, connections: Connections, of: Sought, by: tuple[Dimension, ...]) -> None:
        self.by = by
        self._connections = connections
        self._of = of
        self._groups = ", ".join(f"t.{name}" for name in ("state", *by))
        columns = dict.fromkeys(["state", "run_at", "created_at", *by, *_filtered(of.where)])
        self._columns = ", ".join(f"t.{name}" for name in columns)

    async def look(self) -> Tally:
        """Count by index, as far as we look."""
        values = Values()
        parts = list(self._parts(values))
        if not parts:
            return Tally(Counter(), {}, set(), set())
        limit = values.put(LOOKED_AT + 1, "bigint")
        sql = "\nUNION ALL\n".join(
            _LOOK.format(
                number=number,
                due=_DUE,
                rest=self._rest(part.states, values),
                groups=self._groups,
                rows=self._rows(part),
                limit=limit,
            )
            for number, part in enumerate(parts)
        )
        tally = Tally(Counter(), {}, set(), set())
        looked: Counter[int] = Counter()
        for part_number, seen, matching, due_at, *key in await self._fetch(sql, values):
            looked[part_number] += seen
            tally.numbers[tuple(key)] += matching
            tally.was_due(tuple(key), due_at)
        crowded = (part.states for number, part in enumerate(parts) if looked[number] > LOOKED_AT)
        tally.crowded.update(*crowded)
        return tally

    async def look_at_queues(self, tally: Tally) -> None:
        """Count the ready tasks of each queue, as far as we look."""
        if self._of.where.queues is None:
            rows = await self._connections.fetch(Ask("ready_queues", (MAX_QUEUES + 1,)))
            queues = [row[0] for row in rows]
        else:
            queues = [queue for queue in dict.fromkeys(self._of.where.queues) if is_text(queue)]
        if not 0 < len(queues) <= MAX_QUEUES:
            return
        values = Values()
        limit = max(LOOKED_AT // len(queues), MIN_LOOKED_AT)
        sql = _LOOK_AT_QUEUES.format(
            due=_DUE,
            rest=self._rest((State.READY,), values),
            groups=self._groups,
            queues=values.put(queues, "text[]"),
            columns=self._columns,
            limit=values.put(limit, "bigint"),
        )
        numbers: Counter[Key] = Counter()
        looked: Counter[str | None] = Counter()
        for seen, matching, due_at, *key in await self._fetch(sql, values):
            looked[self._queue(key)] += seen
            numbers[tuple(key)] = matching
            tally.was_due(tuple(key), due_at)
        tally.short = {queue for queue in queues if looked[queue] < limit}
        for found, number in numbers.items():
            tally.numbers[found] = max(number, tally.numbers[found])

    async def estimate(self, tally: Tally, table: str) -> None:
        """Sample the pages of a table for the states of which there are too many."""
        held = self._of.task if table == "task" else self._of.history
        wanted = tuple(state for state in held if state in tally.crowded)
        if not wanted:
            return
        pages = await self._pages(table)
        percent = min(100.0, 100.0 * SAMPLED_PAGES / max(pages, 1))
        values = Values()
        sql = _SAMPLE.format(
            due=_DUE,
            groups=self._groups,
            table=table,
            percent=values.put(percent, "real"),
            rest=self._rest(wanted, values),
        )
        for number, due_at, *key in await self._fetch(sql, values):
            tally.was_due(tuple(key), due_at)
            if key[0] == State.READY and self._queue(key) in tally.short:
                continue
            guess = round(number * 100.0 / percent)
            tally.numbers[tuple(key)] = max(tally.numbers[tuple(key)], guess)  # No fewer than were seen.
        if percent == 100.0:
            tally.crowded -= set(wanted)

    def is_exact(self, tally: Tally, key: Sequence[str]) -> bool:
        """Whether no state of which there are too many has a part in this number."""
        mine = dict(zip(self.by, key, strict=True))
        return not any(
            mine.get(Dimension.STATE, state) == state
            and not (state is State.READY and mine.get(Dimension.QUEUE) in tally.short)
            for state in tally.crowded
        )

    # -- pieces --------------------------------------------------------------------------------------

    def _parts(self, values: Values) -> Iterator[Part]:
        of = self._of
        if of.is_named:
            for table, held in (("task", of.task), ("history", of.history)):
                if held:
                    yield Part(table, held, names(of, values, "t"))
            return
        for state in of.task:
            yield Part("task", (state,), [of_state(of, state, values)])
        if of.history:
            yield Part("history", of.history, [self._days(values)])

    def _days(self, values: Values) -> list[str]:
        """The whole days in which the tasks ended: they choose the history's partitions."""
        first, last = self._between()
        bounds = []
        if first is not None:
            bounds.append(f"t.finished_at >= {values.put(first, 'timestamptz')}")
        if last is not None:
            bounds.append(f"t.finished_at < {values.put(last, 'timestamptz')}")
        return bounds

    def _between(self) -> tuple[datetime | None, datetime | None]:
        after, before = self._of.where.finished_after, self._of.where.finished_before
        return None if after is None else _midnight(after), None if before is None else _midnight(
            before
        ) + _DAY

    def _rows(self, part: Part) -> str:
        table = f"SELECT {self._columns} FROM windlass.{part.table} AS t WHERE "  # noqa: S608  ours
        arms = [table + (" AND ".join(arm) or "true") for arm in part.arms]
        return arms[0] if len(arms) == 1 else " UNION ALL ".join(f"({arm})" for arm in arms)

    def _rest(self, held: Sequence[State], values: Values) -> str:
        return " AND ".join([states(held, "t"), *conditions(self._of, values, "t")])

    def _queue(self, key: Sequence[str]) -> str | None:
        return key[1 + self.by.index(Dimension.QUEUE)] if Dimension.QUEUE in self.by else None

    async def _pages(self, table: str) -> int:
        """How many pages those of its tables have that the filter leads to."""
        first, last = self._between()
        total = 0
        for name, pages in await self._connections.fetch(Ask("sizes")):
            day = day_of(name)
            left_out = day is not None and (
                (first is not None and day < first.date()) or (last is not None and day >= last.date())
            )
            if (name == "task") == (table == "task") and not left_out:
                total += pages
        return total

    async def _fetch(self, sql: str, values: Values) -> Sequence[Sequence[Any]]:
        return await self._connections.fetch(
            Ask("count", values.all, in_schema(sql, self._connections.address.schema))
        )


async def count(connections: Connections, where: Filter, by: Sequence[Dimension]) -> list[Count]:
    """How many match, for each combination of values that occurs, in order of the values."""
    counting = Counting(connections, sought(where), tuple(by))
    tally = await counting.look()
    if State.READY in tally.crowded and Dimension.QUEUE in counting.by:
        await counting.look_at_queues(tally)
    for table in ("task", "history"):
        await counting.estimate(tally, table)
    totals: Counter[Key] = Counter({} if by else {(): 0})
    oldest: dict[Key, list[datetime]] = defaultdict(list)
    for (state, *key), number in tally.numbers.items():
        if number or not by:
            totals[tuple(key)] += number
        if (state, *key) in tally.oldest:
            oldest[tuple(key)].append(tally.oldest[state, *key])
    return [
        Count(
            values=key,
            number=totals[key],
            exact=counting.is_exact(tally, key),
            oldest_at=min(oldest[key], default=None),
        )
        for key in sorted(totals)
    ]


def _filtered(where: Filter) -> Iterator[str]:
    """The columns that a filter looks at."""
    for columns, asked in (
        ("id", where.ids),
        ("root", where.root),
        ("idempotency_key", where.idempotency_key),
        ("type", where.types),
        ("queue", where.queues),
        ("tenant", where.tenants),
        ("error_type error_message", where.error),
        ("created_at", where.created_after or where.created_before),
        ("finished_at", where.finished_after or where.finished_before),
    ):
        if asked is not None:
            yield from columns.split()


def _midnight(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
