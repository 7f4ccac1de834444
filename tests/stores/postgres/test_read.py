"""Asking: by index, in one order over both tables, in any script; and counting without scanning."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from tests.examples import sample
from tests.servers.postgres import Postgres
from windlass._model.filter import By, CancelTasks, Count, Dimension, Filter, Page
from windlass._model.limit import Limit
from windlass._model.queue import QueueSettings
from windlass._model.record import Audit, Session
from windlass._model.state import PENDING, State
from windlass._model.verdict import Receipt
from windlass._stores.postgres import PostgresStore, schema
from windlass._stores.postgres.connection.address import parse
from windlass._stores.postgres.connection.client import Connections
from windlass._stores.postgres.read import count as counts
from windlass._stores.postgres.read import find
from windlass._stores.postgres.rows import Row
from windlass._stores.postgres.script import Query
from windlass.errors import StoreError
from windlass.testing.conformance.steps import cancel, retry, settle, some_tasks, worker_on

from .conftest import new_schema

STATE, QUEUE = Dimension.STATE, Dimension.QUEUE
NOW = datetime.now(UTC)

FILL = """
INSERT INTO {schema}.task (
    id, root, run_at, created_at, boost, priority, max_attempts, state, type, queue, tenant, payload,
    enqueued_by, finished_at, idempotency_key, rank
)
SELECT
    u.id, CASE WHEN n % 10 = 7 THEN '00000000-0000-7000-8000-000000000001' ELSE u.id END, now(), now(), 0, 0,
    5, u.state, 't' || n % 3, CASE WHEN n % 500 = 1 THEN 'short' ELSE 'long' END, '', '{{}}', '',
    CASE WHEN u.state = 'dead' THEN now() END, CASE WHEN n % 100 = 3 THEN 'k' || n END, n
FROM generate_series(1, $1) AS n
CROSS JOIN LATERAL (
    SELECT
        ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid AS id,
        (ARRAY['ready', 'ready', 'scheduled', 'ready', 'dead', 'running', 'waiting'])[n % 7 + 1] AS state
) AS u
"""
HISTORY = """
INSERT INTO {schema}.history (
    id, root, run_at, created_at, claimed_at, finished_at, boost, fence, duration, priority, attempt,
    max_attempts, cancel_requested, state, type, queue, tenant, payload, enqueued_by
)
SELECT
    u.id, u.id, now(), now(), now(), now() - interval '1 day' * (n % 2), 0, 1, 0, 0, 1, 5, false,
    CASE WHEN n % 50 = 0 THEN 'cancelled' ELSE 'completed' END, 't' || n % 3, 'long', '', '{{}}', ''
FROM generate_series(1, $1) AS n
CROSS JOIN LATERAL (SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 11, '0') || 'a')::uuid AS id) AS u
"""
# So that nobody analyses the tables meanwhile.
UNVACUUMED = """
DO $$
DECLARE name regclass;
BEGIN
    FOR name IN
        SELECT oid FROM pg_class WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'r'
    LOOP
        EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', name);
    END LOOP;
END $$
"""


class Watched(Connections):
    """Connections that keep the plan of every statement that was put together."""

    plans: list[str]

    async def fetch(self, query: Query) -> Sequence[Row]:
        if query.sql is not None:
            async with self.one() as connection:
                rows = await connection.fetch(f"EXPLAIN {query.sql}", *query.parameters)
                self.plans.append("\n".join(row[0] for row in rows))
        return await super().fetch(query)


async def run(connections: Connections, sql: str, *parameters: Any) -> list[Any]:
    async with connections.one() as connection:
        rows = await connection.fetch(sql.format(schema=connections.address.schema), *parameters)
        return [row[0] for row in rows]


@pytest.fixture
async def made(connections: Connections) -> Connections:
    await schema.ensure(connections)
    return connections


@pytest.fixture(scope="module")
def kept(postgres15: Postgres) -> Mapping[str, str]:
    """URLs of two schemas that `filled` makes when it is first asked for them."""
    return {name: new_schema(postgres15.url) for name in ("never analysed", "analysed")}


@pytest.fixture
async def filled(request: pytest.FixtureRequest, kept: Mapping[str, str]) -> AsyncIterator[Connections]:
    """3,500 tasks of seven parts and 1,000 in the history, their ids between each other's. Read only."""
    statistics = getattr(request, "param", "never analysed")
    connections = Connections(parse(kept[statistics]))
    await schema.ensure(connections)
    if not await run(connections, "SELECT id FROM {schema}.task LIMIT 1"):
        await run(connections, UNVACUUMED)
        await run(connections, FILL, 3500)
        await run(connections, HISTORY, 1000)
        if statistics == "analysed":
            await run(connections, "ANALYZE {schema}.task, {schema}.history")
    yield connections
    await connections.close()


async def every(connections: Connections, where: Filter, **page: Any) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    while True:
        part = await find.find_ids(connections, where, Page(cursor=cursor, **page))
        whole = await find.find(connections, where, Page(cursor=cursor, **page))
        assert [task.id for task in whole.items] == list(part.items)
        assert whole.cursor == part.cursor
        found += part.items
        cursor = part.cursor
        if cursor is None:
            return found


class TestPages:
    @pytest.mark.parametrize("newest_first", [False, True])
    @pytest.mark.parametrize("few", [0, 10_000])
    @pytest.mark.parametrize(
        "states",
        [
            None,
            (State.READY,),
            (State.RUNNING, State.COMPLETED),
            (State.DEAD,),
            (State.CANCELLED, State.WAITING),
        ],
    )
    async def test_both_tables_are_one_list(
        self,
        filled: Connections,
        monkeypatch: pytest.MonkeyPatch,
        states: tuple[State, ...] | None,
        few: int,
        *,
        newest_first: bool,
    ) -> None:
        monkeypatch.setattr(find, "FEW", few)
        wanted = list(State if states is None else states)
        expected = await run(
            filled,
            "SELECT id::text FROM (SELECT id, state FROM {schema}.task UNION ALL "
            "SELECT id, state FROM {schema}.history) AS t WHERE state = ANY ($1) ORDER BY t.id",
            [state.value for state in wanted],
        )

        found = await every(filled, Filter(states=states), limit=700, newest_first=newest_first)

        assert found == (expected[::-1] if newest_first else expected)

    @pytest.mark.parametrize("cursor", ["", "x", "\0"])
    async def test_a_cursor_that_is_no_id_leads_nowhere(self, filled: Connections, cursor: str) -> None:
        assert (await find.find_ids(filled, Filter(), Page(cursor=cursor))).items == ()


PLANS = [
    (Filter(ids=(str(uuid4()), str(uuid4()))), {"task_pkey", "_id_idx"}),
    (Filter(root=str(uuid4())), {"task_pkey", "task_root", "_id_idx", "_root_idx"}),
    (Filter(idempotency_key="k3"), {"task_key", "_key_idx"}),
    (Filter(states=(State.DEAD,)), {"task_dead"}),
    (Filter(states=(State.DEAD,), failures=("0123456789abcdef",)), {"task_failure"}),
    (Filter(states=(State.DEAD,), failures=("",)), {"task_failure"}),
    (Filter(states=(State.WAITING,)), {"task_waiting"}),
    (Filter(states=(State.RUNNING,)), {"task_running"}),
    (Filter(states=(State.READY,)), {"task_ready"}),
    (Filter(states=(State.READY,), queues=("short",)), {"task_ready"}),
    (Filter(states=(State.RUNNING, State.SCHEDULED)), {"task_running", "task_scheduled"}),
    (Filter(states=tuple(PENDING), expires_before=datetime(2026, 1, 1, tzinfo=UTC)), {"task_expiring"}),
    (Filter(), {"task_pkey", "_id_idx"}),
    (Filter(states=(State.COMPLETED,)), {"_id_idx"}),
]


@pytest.mark.parametrize(("where", "indexes"), PLANS)
@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("filled", sample(["analysed"], ["never analysed"]), indirect=True)
async def test_pages_are_found_by_index(
    filled: Connections, where: Filter, indexes: set[str], *, newest_first: bool
) -> None:
    watched = Watched(filled.address)
    watched.plans = []

    await find.find(watched, where, Page(newest_first=newest_first))
    await watched.close()

    plan = watched.plans[-1]
    used = set(re.findall(r"Index (?:Only )?Scan(?: Backward)? using (\w+)", plan))
    assert "Seq Scan" not in plan
    assert {
        re.sub(r"^history_\w+?(?=_(?:id|root|idempotency_key)_idx)", "", index) for index in used
    } <= indexes | {"_idempotency_key_idx"}


ERRORS = [
    "Straße ist GESPERRT",
    "ÄRGER mit Ünicode",
    "100% of it_is gone",
    "ΟΔΥΣΣΕΥΣ",
    "İstanbul",
    "300 \u212a",  # the sign for kelvin
    "Дом",
    "",
]
PARTS = [
    "strasse", "STRASSE", "Straße", "ärger", "Ärger", "ünI", "0% O", "t_i", "дОМ", "300 k", "i\u0307st",
    "İST", "οδυσσευς", "δυσσ", "ΣΕΥΣ", "E", "", "nothing", "odd", "\0", "e\0", "\ud800",
]  # fmt: skip
FAILED = """
INSERT INTO {schema}.task (
    id, root, run_at, created_at, boost, priority, max_attempts, state, type, queue, tenant, payload,
    enqueued_by, error_type, error_message, rank
) VALUES ($1, $1, now(), now(), 0, 0, 5, 'scheduled', 't', 'q', '', '{{}}', '', 'Odd', $2, 0)
"""


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
async def test_errors_are_found_in_any_script_whatever_the_locale(postgres15: Postgres, locale: str) -> None:
    """As memory finds them; but a final sigma is a sigma."""
    name = f"in_{uuid4().hex[:12]}"
    owner = await asyncpg.connect(postgres15.url)
    await owner.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LOCALE '{locale}'")
    await owner.close()
    connections = Connections(parse(urlsplit(postgres15.url)._replace(path=f"/{name}").geturl()))
    await schema.ensure(connections)
    for number, message in enumerate(ERRORS):
        await run(connections, FAILED, f"00000000-0000-7000-8000-{number:012}", message)

    found = {
        part: [
            task.error.message
            for task in (await find.find(connections, Filter(error=part), Page())).items
            if task.error is not None
        ]
        for part in PARTS
    }
    await connections.close()

    assert found == {part: [error for error in ERRORS if _mentions(error, part)] for part in PARTS}


def _mentions(error: str, part: str) -> bool:
    folded = part.lower().replace("\u03c2", "\u03c3")
    return any(folded in text.lower().replace("\u03c2", "\u03c3") for text in (error, "Odd"))


class TestNothing:
    """What cannot be in the database is not found, and no error."""

    @pytest.mark.parametrize(
        "where",
        [
            Filter(ids=("no id", "")),
            Filter(root="no id"),
            Filter(idempotency_key="\0"),
            Filter(queues=("\0",)),
            Filter(types=("a\0", "\ud800")),
            Filter(tenants=()),
            Filter(states=()),
            Filter(states=(State.READY,), finished_after=NOW),
        ],
    )
    async def test_is_found(self, filled: Connections, where: Filter) -> None:
        assert (await find.find(filled, where, Page())).items == ()
        assert await counts.count(filled, where, ()) == [Count(values=(), number=0)]
        assert await counts.count(filled, where, (QUEUE,)) == []

    async def test_of_a_list_the_rest_counts(self, filled: Connections) -> None:
        mixed = Filter(queues=("short", "\0"))

        assert await counts.count(filled, mixed, ()) == await counts.count(
            filled, Filter(queues=("short",)), ()
        )

    async def test_attempts_and_records(self, filled: Connections) -> None:
        assert await find.attempts(filled, "no id") == []
        for kind in (QueueSettings, Session, Audit):
            assert (await find.records(filled, kind, Page(cursor="\0"))).items == ()


async def numbers(connections: Connections, where: Filter, *by: Dimension) -> dict[tuple[str, ...], int]:
    """How many match, all of them exact."""
    found = await counts.count(connections, where, by)
    assert all(count.exact for count in found)
    return {count.values: count.number for count in found}


class TestCount:
    COUNTS = "SELECT t.state, t.queue, count(*), min(greatest(t.run_at, t.created_at)) FROM (SELECT state, \
queue, run_at, created_at FROM {schema}.task UNION ALL SELECT state, queue, run_at, created_at \
FROM {schema}.history) AS t GROUP BY 1, 2 ORDER BY 1, 2"

    async def expected(self, connections: Connections) -> list[Count]:
        async with connections.one() as connection:
            rows = await connection.fetch(self.COUNTS.format(schema=connections.address.schema))
        return [
            Count(values=tuple(values), number=number, oldest_at=oldest) for *values, number, oldest in rows
        ]

    async def test_exact_up_to_the_bound(self, filled: Connections) -> None:
        assert await counts.count(filled, Filter(), (STATE, QUEUE)) == await self.expected(filled)
        assert await numbers(filled, Filter()) == {(): 4500}

    async def test_by_root_key_and_ids(self, filled: Connections) -> None:
        root = "00000000-0000-7000-8000-000000000001"

        assert await numbers(filled, Filter(root=root)) == {(): 351}
        assert await numbers(filled, Filter(idempotency_key="k103")) == {(): 1}
        both = Filter(ids=(root, "00000000-0000-7000-8000-00000000001a", str(uuid4())))
        assert await numbers(filled, both, STATE) == {("completed",): 1, ("ready",): 1}

    async def test_beyond_it_what_is_little_stays_exact(
        self, filled: Connections, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """More ready tasks than are looked at, but not in the short queue."""
        monkeypatch.setattr(counts, "MAX_COUNTED", 600)
        monkeypatch.setattr(counts, "SAMPLED_PAGES", 10)

        found = {count.values: count for count in await counts.count(filled, Filter(), (STATE, QUEUE))}

        expected = {count.values: count for count in await self.expected(filled)}
        estimated = {values for values, count in found.items() if not count.exact}
        assert estimated == {("ready", "long"), ("completed", "long"), ("cancelled", "long")}
        for values in set(expected) - estimated:
            assert found[values] == expected[values]

    async def test_each_of_a_thousand_queues_is_found_beside_a_long_one(
        self, made: Connections, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A worker for all queues finds them by this count: one that a sample missed would wait for long."""
        monkeypatch.setattr(counts, "MAX_COUNTED", 2_000)
        monkeypatch.setattr(counts, "SAMPLED_PAGES", 1)
        await run(made, FILL, 10_000)
        await run(made, "UPDATE {schema}.task SET queue = 'q' || rank WHERE rank <= 2000 AND state = 'ready'")

        found = await counts.count(made, Filter(states=(State.READY,)), (QUEUE,))

        names = await run(made, "SELECT DISTINCT queue FROM {schema}.task WHERE state = 'ready'")
        assert len(names) > counts.MIN_COUNTED
        assert {count.values[0] for count in found} == set(names)

    async def test_rare_failures_stay_exact_beside_a_frequent_one(
        self, filled: Connections, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(counts, "MAX_COUNTED", 300)
        monkeypatch.setattr(counts, "SAMPLED_PAGES", 10)
        rare = "UPDATE {schema}.task SET failure = CASE WHEN id = (SELECT id FROM {schema}.task \
WHERE state = 'dead' ORDER BY id DESC LIMIT 1) THEN 'rare' ELSE 'frequent' END WHERE state = 'dead'"
        await run(filled, rare)

        found = await counts.count(filled, Filter(states=(State.DEAD,)), (Dimension.FAILURE,))
        (one,) = await counts.count(filled, Filter(states=(State.DEAD,), failures=("rare",)), ())

        assert [(count.values, count.exact) for count in found] == [(("frequent",), False), (("rare",), True)]
        assert found[1].number == one.number == 1
        assert one.exact

    async def test_estimates_are_near(self, made: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(counts, "MAX_COUNTED", 500)
        monkeypatch.setattr(counts, "SAMPLED_PAGES", 100)
        await run(made, FILL, 30_000)

        (count,) = await counts.count(made, Filter(states=(State.READY,)), ())

        assert not count.exact
        assert 0.6 < count.number / (30_000 * 3 / 7) < 1.6

    async def test_a_sample_of_everything_is_exact(
        self, filled: Connections, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(counts, "MAX_COUNTED", 100)

        assert await counts.count(filled, Filter(), (STATE, QUEUE)) == await self.expected(filled)

    async def test_days_choose_the_partitions(
        self, filled: Connections, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(counts, "MAX_COUNTED", 600)
        (today,) = await run(
            filled, "SELECT date_trunc('day', max(finished_at), 'UTC') FROM {schema}.history"
        )
        ended = (State.COMPLETED, State.CANCELLED)

        for where in (
            Filter(states=ended, finished_after=today),
            Filter(states=ended, finished_before=today),
        ):
            assert await numbers(filled, where) == {(): 500}

    @pytest.mark.parametrize("by", [(), (STATE, QUEUE)])
    @pytest.mark.parametrize("crowded", [False, True])
    async def test_no_plan_reads_a_whole_table(
        self,
        filled: Connections,
        monkeypatch: pytest.MonkeyPatch,
        by: tuple[Dimension, ...],
        *,
        crowded: bool,
    ) -> None:
        monkeypatch.setattr(counts, "MAX_COUNTED", 100 if crowded else 20_000)
        watched = Watched(filled.address)
        watched.plans = []

        await counts.count(watched, Filter(types=("t1",)), by)
        await watched.close()

        for plan in watched.plans:
            assert "Seq Scan on task" not in plan
            assert "Seq Scan" not in plan or "Limit" in plan


@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.find(Filter(ids=("x",)), Page(limit=1)),
        lambda store: store.find(Filter(), Page(limit=1, cursor="x")),
        lambda store: store.count(Filter(ids=("x",)), ()),
        lambda store: store.attempts("x"),
        lambda store: store.ended(("x",)),
        lambda store: store.apply(CancelTasks(by=By(who="ann")), Filter(), 0),
        lambda store: store.records(Limit, Page(limit=1, cursor="x")),
    ],
    ids=["find", "find after", "count", "attempts", "ended", "apply", "records"],
)
async def test_a_closed_store_is_reported_even_if_nothing_can_match(
    store: PostgresStore, read: Callable[[PostgresStore], Awaitable[object]]
) -> None:
    await store.close()

    with pytest.raises(StoreError, match="closed"):
        await read(store)


async def test_an_infinite_run_at_of_an_older_version_is_read_like_any_other(store: PostgresStore) -> None:
    late, early, ended = some_tasks(3, delay=timedelta(days=1))
    await store.enqueue([late, early, ended])
    async with store.connections.one() as connection:
        task = f"{store.address.schema}.task"
        await connection.execute(f"UPDATE {task} SET run_at = 'infinity' WHERE id <> $1", early.id)
        past = "run_at = '-infinity', state = 'ready', rank = 0"
        await connection.execute(f"UPDATE {task} SET {past} WHERE id = $1", early.id)
    await cancel(store, ended.id)
    worker = await worker_on(store)

    found = (await store.find(Filter(), Page())).items
    counted = await store.count(Filter(), [Dimension.STATE])
    promoted = await store.promote(10)
    claimed = await worker.claim_one()

    now = await store.now()
    assert [one.run_at > now for one in found] == [True, False, True]
    assert {one.values[0]: one.number for one in counted} == {"scheduled": 1, "ready": 1, "cancelled": 1}
    assert promoted.next_at is not None
    assert promoted.next_at > now
    assert claimed.task.run_at < now
    assert (await settle(store, retry(claimed))) == (Receipt.APPLIED,)
    assert len((await store.apply(CancelTasks(by=By(who="ann")), Filter(), 10)).ids) == 2
