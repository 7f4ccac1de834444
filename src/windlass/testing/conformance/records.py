"""Records: put, remove and list; and the sessions and audit entries that the store writes itself."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from ..._model.alert import Alert, AlertState
from ..._model.filter import By, Page
from ..._model.key import ApiKey, Scope
from ..._model.limit import Limit
from ..._model.queue import Fairness, Ordering, QueueSettings, Retention
from ..._model.record import Audit, Session, StoredRecord, Worker
from ..._model.schedule import Schedule, Tick
from ..._store.protocol import Store
from ...errors import NotSupported
from ..clock import ManualClock
from .steps import OPERATOR, all_records, cancel, dump, enqueue_one, worker_on

FULL = QueueSettings(
    name="reports/ünï",
    paused=True,
    ordering=Ordering(ageing=timedelta(seconds=90)),
    retention=Retention(completed=None, cancelled=timedelta(hours=1), dead=timedelta(days=400)),
)


KEPT = (
    Limit(name="mail", queue="mail", by="tenant", running=3, rate=0.5, burst=7),
    Schedule(
        name="nightly", type="report", payload=b'{"a":"\xc3\xbc"}', cron="0 3 * * *", zone="Europe/Zurich"
    ),
    Tick(name="nightly", at=datetime(2026, 3, 29, 1, 30, tzinfo=UTC), task_id="t"),
    Alert(name="mail", queue="mail", count=3, window=timedelta(minutes=5)),
    AlertState(name="mail", raised_at=datetime(2026, 3, 29, 1, 30, tzinfo=UTC), number=4),
)


class TestStoredRecords:
    @pytest.mark.parametrize("record", KEPT, ids=lambda record: type(record).__name__)
    async def test_a_record_is_returned_as_it_was_put(self, store: Store, record: StoredRecord) -> None:
        await store.put(record)

        assert await all_records(store, type(record)) == (record,)

    @pytest.mark.parametrize("record", KEPT, ids=lambda record: type(record).__name__)
    async def test_a_record_is_replaced_and_removed_by_name(self, store: Store, record: StoredRecord) -> None:
        other, changed = replace(record, name="other"), replace(record)
        for one in (record, other, changed):
            await store.put(one)

        removed = [await store.remove(type(record), record.name) for _ in range(2)]

        assert removed == [True, False]
        assert await all_records(store, type(record)) == (other,)

    async def test_kinds_do_not_share_names(self, store: Store) -> None:
        for record in KEPT:
            await store.put(replace(record, name="same"))

        await store.remove(Limit, "same")

        assert [len(await all_records(store, type(record))) for record in KEPT] == [0, 1, 1, 1, 1]

    @pytest.mark.parametrize("newest_first", [False, True])
    async def test_pages_are_complete_and_in_order(self, store: Store, *, newest_first: bool) -> None:
        names = [f"limit-{letter}" for letter in "dbeac"]
        for name in names:
            await store.put(Limit(name=name, running=1))
        page = Page(limit=2, newest_first=newest_first)

        found: list[str] = []
        while True:
            part = await store.records(Limit, page)
            found += [limit.name for limit in part.items]
            if part.cursor is None:
                break
            page = replace(page, cursor=part.cursor)

        assert found == sorted(names, reverse=newest_first)


class TestRecords:
    async def test_queue_settings_are_returned_as_they_were_put(self, store: Store) -> None:
        plain = QueueSettings(name="plain")
        await store.put(FULL)
        await store.put(plain)

        assert await all_records(store, QueueSettings) == (plain, FULL)

    async def test_putting_again_replaces(self, store: Store) -> None:
        await store.put(FULL)
        changed = replace(FULL, paused=False, retention=None)

        await store.put(changed)

        assert await all_records(store, QueueSettings) == (changed,)

    async def test_removing_says_whether_there_was_one(self, store: Store) -> None:
        await store.put(FULL)

        assert [await store.remove(QueueSettings, FULL.name) for _ in range(2)] == [True, False]
        assert await all_records(store, QueueSettings) == ()

    async def test_removing_a_session_says_whether_there_was_one(self, store: Store) -> None:
        worker = await worker_on(store)

        assert [await store.remove(Session, worker.session) for _ in range(2)] == [True, False]
        assert await all_records(store, Session) == ()

    @pytest.mark.parametrize("newest_first", [False, True])
    async def test_pages_of_records_are_complete_and_in_order(
        self, store: Store, *, newest_first: bool
    ) -> None:
        names = [f"queue-{letter}" for letter in "dbeac"]
        for name in names:
            await store.put(QueueSettings(name=name))
        page = Page(limit=2, newest_first=newest_first)
        pages = [await store.records(QueueSettings, page)]
        while (cursor := pages[-1].cursor) is not None:
            pages.append(await store.records(QueueSettings, replace(page, cursor=cursor)))

        found = [settings.name for part in pages for settings in part.items]
        assert found == sorted(names, reverse=newest_first)
        assert [len(part.items) for part in pages] == [2, 2, 1]

    async def test_the_store_alone_writes_sessions_and_audits(self, store: Store, clock: ManualClock) -> None:
        now = clock.now()
        before = await dump(store)

        with pytest.raises(NotSupported):
            await store.put(
                Session(id="s", worker=Worker(name="w"), started_at=now, beat_at=now, expires_at=now)
            )
        with pytest.raises(NotSupported):
            await store.put(Audit(id="a", at=now, who="eve", why="", action="cancel", task_id="t"))

        assert await dump(store) == before

    async def test_the_audit_log_cannot_be_shortened(self, store: Store) -> None:
        await cancel(store, await enqueue_one(store))
        (line,) = await all_records(store, Audit)

        with pytest.raises(NotSupported):
            await store.remove(Audit, line.id)

        assert await all_records(store, Audit) == (line,)


HASH = "0f" * 32
CHANGED = (
    QueueSettings(name="mail", paused=True),
    *KEPT,
    ApiKey(
        name="k1", label="web", hash=HASH, scopes=(Scope.READ,), created_at=datetime(2026, 1, 1, tzinfo=UTC)
    ),
)


class TestAuditedRecords:
    """Operators' changes to records are logged in the same transaction; those of programs are not."""

    @pytest.mark.parametrize("record", CHANGED, ids=lambda record: type(record).__name__)
    async def test_put_and_remove_by_an_operator_are_logged(
        self, store: Store, clock: ManualClock, record: QueueSettings | StoredRecord
    ) -> None:
        await store.put(record, By(who="ada", why="too much mail"))
        clock.advance(1)
        removed = await store.remove(type(record), record.name, By(who="bob"))

        put, gone = await all_records(store, Audit)
        assert removed
        assert (put.action, put.who, put.why) == ("put", "ada", "too much mail")
        assert (gone.action, gone.who, gone.why) == ("remove", "bob", "")
        assert gone.at - put.at == timedelta(seconds=1)
        assert put.subject == gone.subject
        assert put.subject.endswith(f" {record.name}")
        assert (put.task_id, gone.task_id, gone.detail) == (None, None, "")
        assert put.detail.startswith("{")

    async def test_an_entry_names_the_record_and_its_new_value(self, store: Store) -> None:
        await store.put(QueueSettings(name="mail", paused=True), OPERATOR)
        await store.put(Limit(name="calls", rate=0.5, by="tenant"), OPERATOR)

        paused, limited = await all_records(store, Audit)
        assert (paused.subject, limited.subject) == ("queue mail", "limit calls")
        assert '"paused":true' in paused.detail
        assert '"by":"tenant","rate":0.5' in limited.detail

    @pytest.mark.parametrize("record", CHANGED, ids=lambda record: type(record).__name__)
    async def test_changes_without_an_operator_are_not_logged(
        self, store: Store, record: QueueSettings | StoredRecord
    ) -> None:
        await store.put(record)
        await store.remove(type(record), record.name)

        assert await all_records(store, Audit) == ()

    @pytest.mark.parametrize("kind", [Session, *map(type, CHANGED)], ids=lambda kind: kind.__name__)
    async def test_removing_nothing_is_not_logged(self, store: Store, kind: type[QueueSettings]) -> None:
        assert not await store.remove(kind, "nothing", OPERATOR)

        assert await all_records(store, Audit) == ()

    async def test_ending_a_session_is_logged(self, store: Store) -> None:
        worker = await worker_on(store)

        assert await store.remove(Session, worker.session, OPERATOR)

        (line,) = await all_records(store, Audit)
        assert (line.action, line.subject) == ("remove", f"session {worker.session}")

    async def test_refused_changes_are_not_logged(self, store: Store, clock: ManualClock) -> None:
        with pytest.raises(NotSupported):
            await store.put(Audit(id="a", at=clock.now(), who="eve", why="", action="cancel"), OPERATOR)
        with pytest.raises(NotSupported):
            await store.remove(Audit, "a", OPERATOR)

        assert await all_records(store, Audit) == ()

    async def test_entries_contain_no_secrets(self, store: Store) -> None:
        secrets = (HASH, "s3cret", "p4th", "qu3ry", "us3r")
        await store.put(CHANGED[-1], OPERATOR)
        await store.put(
            Schedule(name="s", type="t", payload=b'{"card":"s3cret"}', secret=("card",)), OPERATOR
        )
        await store.put(Alert(name="a", webhook="https://us3r@hooks.example:8443/p4th?k=qu3ry"), OPERATOR)

        lines = await all_records(store, Audit)
        said = "".join(f"{line.subject} {line.detail}" for line in lines)
        assert len(lines) == 3
        assert [secret for secret in secrets if secret in said] == []
        assert '"label":"web"' in said
        assert '"type":"t"' in said
        assert '"webhook":"hooks.example:8443"' in said

    async def test_entries_are_bounded_in_size(self, store: Store) -> None:
        fair = QueueSettings(
            name="q", fairness=Fairness.ROUND_ROBIN, weights={f"tenant-{n}": 2 for n in range(1_000)}
        )
        await store.put(fair, OPERATOR)

        (line,) = await all_records(store, Audit)
        assert len(line.detail) == 2_000
        assert await all_records(store, QueueSettings) == (fair,)

    async def test_a_prune_by_an_operator_is_logged_and_the_keepers_is_not(self, store: Store) -> None:
        await store.prune(Retention(dead=None), 10)
        await store.prune(Retention(dead=None, completed=timedelta(hours=1)), 10, OPERATOR)

        (line,) = await all_records(store, Audit)
        assert (line.action, line.subject, line.task_id) == ("prune", "tasks", None)
        assert line.detail == '{"completed":3600.0,"cancelled":604800.0,"dead":null}'

    @pytest.mark.parametrize("newest_first", [False, True])
    async def test_entries_about_tasks_and_records_share_pages(
        self, store: Store, *, newest_first: bool
    ) -> None:
        ids = [await enqueue_one(store) for _ in range(3)]
        for number, task_id in enumerate(ids):
            await cancel(store, task_id)
            await store.put(QueueSettings(name=f"q{number}"), OPERATOR)
        page = Page(limit=2, newest_first=newest_first)

        pages = [await store.records(Audit, page)]
        while (cursor := pages[-1].cursor) is not None:
            pages.append(await store.records(Audit, replace(page, cursor=cursor)))

        subjects = [line.task_id or line.subject for part in pages for line in part.items]
        expected = [about for number, task_id in enumerate(ids) for about in (task_id, f"queue q{number}")]
        assert subjects == (expected[::-1] if newest_first else expected)
        assert [len(part.items) for part in pages] == [2, 2, 2]
