"""Records: put, remove and list; and the sessions and audit entries that the store writes itself."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from msgspec.structs import replace

from ..._client.operator import Operator
from ..._ids import new_id
from ..._model.alert import Alert, AlertState
from ..._model.filter import By
from ..._model.key import ApiKey, FormerSecret, Login, Scope
from ..._model.limit import Limit, Quota
from ..._model.options import DeclaredType, Defaults
from ..._model.queue import Fairness, Ordering, QueueSettings, Retention
from ..._model.record import Audit, Session, StoredRecord, Worker
from ..._model.schedule import Schedule, Tick
from ...errors import Conflict, NotSupported
from .steps import OPERATOR, ManualWorker, StoreTest, all_pages

FULL = QueueSettings(
    name="reports/ünï",
    paused=True,
    ordering=Ordering(ageing=timedelta(seconds=90)),
    retention=Retention(completed=None, cancelled=timedelta(hours=1), dead=timedelta(days=400)),
)


HASH, FORMER_HASH = "0f" * 32, "1e" * 32
KEY = ApiKey(
    name="k1k1k1k1k1k1",
    label="web",
    hash=HASH,
    scopes=(Scope.READ,),
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
    tenant="acme",
    queues=("mail",),
    rate=2.5,
    rotated_at=datetime(2026, 2, 1, tzinfo=UTC),
    former=(FormerSecret(hash=FORMER_HASH, expires_at=datetime(2026, 2, 2, tzinfo=UTC)),),
    last_used_at=datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
)

LOGIN = Login(
    name="2d" * 32,
    key=KEY.name,
    secret=HASH,
    created_at=KEY.created_at,
    expires_at=KEY.created_at + timedelta(hours=8),
)

KEPT: tuple[QueueSettings | StoredRecord, ...] = (
    FULL,
    Limit(name="mail", queue="mail", by="tenant", running=3, rate=0.5, burst=7),
    Quota(name="acme", tasks=1_000_000, bytes=10**12),
    Schedule(
        name="nightly", type="report", payload=b'{"a":"\xc3\xbc"}', cron="0 3 * * *", zone="Europe/Zurich"
    ),
    Tick(name="nightly", at=datetime(2026, 3, 29, 1, 30, tzinfo=UTC), task_id=new_id()),
    Alert(name="mail", queue="mail", count=3, window=timedelta(minutes=5)),
    AlertState(name="mail", raised_at=datetime(2026, 3, 29, 1, 30, tzinfo=UTC), number=4),
    DeclaredType(
        name="shop.welcome",
        defaults=Defaults(queue="mail", timeout=timedelta(seconds=1.5), secret=("card.number",)),
        aliases=("welcome",),
        backoff={"base": 0.5},
        delays=(1.0, 2.5),
        retention=Retention(dead=None),
    ),
    KEY,
)


every_kind = pytest.mark.parametrize("record", KEPT, ids=lambda record: type(record).__name__)


class TestStoredRecords(StoreTest):
    @every_kind
    async def test_a_record_is_returned_as_it_was_put(self, record: QueueSettings | StoredRecord) -> None:
        await self.store.put(record)

        assert await self.all_records(type(record)) == (record,)

    @every_kind
    async def test_a_record_is_replaced_and_removed_by_name(
        self, record: QueueSettings | StoredRecord
    ) -> None:
        other, changed = replace(record, name="other0000000"), replace(record)
        for one in (record, other, changed):
            await self.store.put(one)

        removed = [await self.store.remove(type(record), record.name) for _ in range(2)]

        assert removed == [True, False]
        assert await self.all_records(type(record)) == (other,)

    async def test_kinds_do_not_share_names(self) -> None:
        for record in KEPT:
            await self.store.put(replace(record, name="same00000000"))

        await self.store.remove(Limit, "same00000000")

        kept = [len(await self.all_records(type(record))) for record in KEPT]
        assert kept == [int(not isinstance(record, Limit)) for record in KEPT]

    @pytest.mark.parametrize("newest_first", [False, True])
    @every_kind
    async def test_pages_are_complete_and_in_order(
        self, record: QueueSettings | StoredRecord, *, newest_first: bool
    ) -> None:
        names = [f"name{letter}0000000" for letter in "dbeac"]  # an id of a key has 12 letters
        for name in names:
            await self.store.put(replace(record, name=name))

        pages = await all_pages(partial(self.store.records, type(record)), limit=2, newest_first=newest_first)

        assert [one.name for part in pages for one in part] == sorted(names, reverse=newest_first)
        assert [len(part) for part in pages] == [2, 2, 1]


class TestExpectedRecords(StoreTest):
    """Compare and set: a change is refused if someone else has changed the record meanwhile."""

    @every_kind
    async def test_a_record_that_is_as_expected_is_replaced(
        self, record: QueueSettings | StoredRecord
    ) -> None:
        changed = _changed(record)
        await self.store.put(record, None, None)
        await self.store.put(changed, None, record)

        assert await self.all_records(type(record)) == (changed,)

    @every_kind
    async def test_a_record_that_has_changed_is_not_replaced(
        self, record: QueueSettings | StoredRecord
    ) -> None:
        changed = _changed(record)
        await self.store.put(changed)

        for expected in (None, record):
            async with self.refused(Conflict):
                await self.store.put(_changed(changed), OPERATOR, expected)

        assert await self.all_records(type(record)) == (changed,)

    @every_kind
    async def test_a_record_that_was_removed_is_not_put_back(
        self, record: QueueSettings | StoredRecord
    ) -> None:
        async with self.refused(Conflict):
            await self.store.put(_changed(record), OPERATOR, record)

        assert await self.all_records(type(record)) == ()

    @every_kind
    async def test_repeating_a_change_after_a_lost_reply_is_harmless(
        self, record: QueueSettings | StoredRecord
    ) -> None:
        changed = _changed(record)
        await self.store.put(record)

        for _ in range(2):
            await self.store.put(changed, None, record)

        assert await self.all_records(type(record)) == (changed,)

    async def test_of_changes_at_the_same_time_one_is_stored(self) -> None:
        stripes = range(2, 10)

        async def attempt(number: int) -> bool:
            try:
                await self.store.put(QueueSettings(name="q", stripes=number), None, None)
            except Conflict:
                return False
            return True

        stored = await asyncio.gather(*(attempt(number) for number in stripes))

        (found,) = await self.all_records(QueueSettings)
        assert [number for number, was in zip(stripes, stored, strict=True) if was] == [found.stripes]

    async def test_changes_to_different_fields_at_the_same_time_all_stand(self) -> None:
        operator = Operator(self.store, OPERATOR)
        await operator.set_queue("q", fairness="round_robin", create=True)

        await asyncio.gather(
            operator.pause("q"),
            operator.set_queue("q", ageing=60),
            *(operator.set_queue("q", weights={tenant: 7}) for tenant in "abcd"),
        )

        (found,) = await self.all_records(QueueSettings)
        assert (found.paused, found.ordering.ageing) == (True, timedelta(minutes=1))
        assert found.weights == dict.fromkeys("abcd", 7)


def _changed(record: QueueSettings | StoredRecord) -> QueueSettings | StoredRecord:
    """Another value of the same name."""
    match record:
        case QueueSettings(stripes=stripes):
            return replace(record, stripes=stripes + 1)
        case Limit(running=running):
            return replace(record, running=(running or 0) + 1)
        case Quota(tasks=tasks):
            return replace(record, tasks=(tasks or 0) + 1)
        case Schedule(type=type_):
            return replace(record, type=f"{type_}s")
        case Tick(at=at):
            return replace(record, at=at + timedelta(hours=1))
        case Alert(count=count):
            return replace(record, count=count + 1)
        case AlertState(number=number):
            return replace(record, number=number + 1)
        case DeclaredType(delays=delays):
            return replace(record, delays=(*delays, 9.0))
        case ApiKey(label=label):
            return replace(record, label=f"{label}s")
        case _:
            raise AssertionError(record)


class TestRecords(StoreTest):
    async def test_putting_again_replaces(self) -> None:
        await self.store.put(FULL)
        changed = QueueSettings(name=FULL.name)

        await self.store.put(changed)

        assert await self.all_records(QueueSettings) == (changed,)

    async def test_removing_a_session_says_whether_there_was_one(self, worker: ManualWorker) -> None:
        assert [await self.store.remove(Session, worker.session) for _ in range(2)] == [True, False]
        assert await self.all_records(Session) == ()

    async def test_the_store_alone_writes_sessions_and_audits(self) -> None:
        now = self.clock.now()
        session = Session(id="s", worker=Worker(name="w"), started_at=now, beat_at=now, expires_at=now)

        for record in (session, Audit(id="a", at=now, who="eve", why="", action="cancel", task_id="t")):
            async with self.refused(NotSupported):
                await self.store.put(record)

    async def test_the_audit_log_cannot_be_shortened(self) -> None:
        await self.cancel(await self.enqueue_one())
        (line,) = await self.all_records(Audit)

        with pytest.raises(NotSupported):
            await self.store.remove(Audit, line.id)

        assert await self.all_records(Audit) == (line,)


class TestAuditedRecords(StoreTest):
    """Operators' changes to records are logged in the same transaction; those of programs are not."""

    @every_kind
    async def test_put_and_remove_by_an_operator_are_logged(
        self, record: QueueSettings | StoredRecord
    ) -> None:
        await self.store.put(record, By(who="ada", why="too much mail"))
        self.clock.advance(1)
        removed = await self.store.remove(type(record), record.name, By(who="bob"))

        put, gone = await self.all_records(Audit)
        assert removed
        assert (put.action, put.who, put.why) == (
            "set" if isinstance(record, QueueSettings) else "create",
            "ada",
            "too much mail",
        )
        assert (gone.action, gone.who, gone.why) == ("remove", "bob", "")
        assert gone.at - put.at == timedelta(seconds=1)
        assert put.subject == gone.subject
        assert put.subject.endswith(f" {record.name}")
        assert (put.task_id, gone.task_id, gone.detail) == (None, None, "")
        assert put.detail.startswith("{")

    async def test_an_entry_tells_a_pause_from_a_change_and_shows_both_values(self) -> None:
        for settings in (
            QueueSettings(name="mail", paused=True),
            QueueSettings(name="mail"),
            QueueSettings(name="mail", stripes=4),
            QueueSettings(name="mail", stripes=4),
        ):
            await self.store.put(settings, OPERATOR)
        await self.store.put(Limit(name="calls", rate=0.5, by="tenant"), OPERATOR)
        await self.store.put(Limit(name="calls", rate=0.5, running=3), OPERATOR)

        lines = [(line.action, line.subject, line.detail) for line in await self.all_records(Audit)]
        assert lines == [
            ("pause", "queue mail", ""),
            ("resume", "queue mail", ""),
            ("set", "queue mail", '{"stripes":[1,4]}'),
            ("set", "queue mail", "{}"),
            ("create", "limit calls", '{"by":"tenant","rate":0.5}'),
            ("set", "limit calls", '{"running":[null,3],"by":["tenant",null]}'),
        ]

    @every_kind
    async def test_changes_without_an_operator_are_not_logged(
        self, record: QueueSettings | StoredRecord
    ) -> None:
        await self.store.put(record)
        await self.store.remove(type(record), record.name)

        assert await self.all_records(Audit) == ()

    @pytest.mark.parametrize("kind", [Session, *map(type, KEPT)], ids=lambda kind: kind.__name__)
    async def test_removing_nothing_is_not_logged(self, kind: type[QueueSettings]) -> None:
        assert not await self.store.remove(kind, "nothing", OPERATOR)

        assert await self.all_records(Audit) == ()

    async def test_ending_a_session_is_logged(self, worker: ManualWorker) -> None:
        assert await self.store.remove(Session, worker.session, OPERATOR)

        (line,) = await self.all_records(Audit)
        assert (line.action, line.subject) == ("remove", f"session {worker.session}")

    async def test_refused_changes_are_not_logged(self) -> None:
        with pytest.raises(NotSupported):
            await self.store.put(
                Audit(id="a", at=self.clock.now(), who="eve", why="", action="cancel"), OPERATOR
            )
        with pytest.raises(NotSupported):
            await self.store.remove(Audit, "a", OPERATOR)

        assert await self.all_records(Audit) == ()

    async def test_entries_contain_no_secrets(self) -> None:
        secrets = (HASH, FORMER_HASH, LOGIN.name, "s3cret", "p4th", "qu3ry")
        await self.store.put(KEY, OPERATOR)
        await self.store.put(LOGIN, OPERATOR)
        await self.store.put(
            Schedule(name="s", type="t", cron="0 3 * * *", payload=b'{"card":"s3cret"}', secret=("card",)),
            OPERATOR,
        )
        await self.store.put(Alert(name="a", webhook="https://hooks.example:8443/p4th?k=qu3ry"), OPERATOR)

        lines = await self.all_records(Audit)
        said = "".join(f"{line.subject} {line.detail}" for line in lines)
        assert len(lines) == 4
        assert [secret for secret in secrets if secret in said] == []
        assert '"label":"web"' in said
        assert '"type":"t"' in said
        assert f"login {LOGIN.id} " in said
        assert '"webhook":"hooks.example:8443"' in said

    async def test_entries_tell_that_a_key_was_rotated_or_revoked(self) -> None:
        now = datetime(2026, 3, 1, tzinfo=UTC)
        former = FormerSecret(hash=HASH, expires_at=now + timedelta(hours=1))
        rotated = replace(KEY, hash=FORMER_HASH, rotated_at=now, former=(former,))
        alone = replace(rotated, rotated_at=now + timedelta(hours=1), former=())
        revoked = replace(alone, revoked_at=now + timedelta(hours=2), hash="0" * 64)
        await self.store.put(KEY)
        for changed in (rotated, replace(rotated, rate=None), alone, revoked):
            await self.store.put(changed, OPERATOR)

        lines = [(line.action, line.subject, line.detail) for line in await self.all_records(Audit)]
        assert lines == [
            ("rotate", f"key {KEY.name}", '{"former_expires_at":"2026-03-01T01:00:00Z"}'),
            ("set", f"key {KEY.name}", '{"rate":[2.5,null]}'),
            ("rotate", f"key {KEY.name}", ""),
            ("revoke", f"key {KEY.name}", ""),
        ]

    async def test_entries_are_bounded_in_size(self) -> None:
        fair = QueueSettings(
            name="q", fairness=Fairness.ROUND_ROBIN, weights={f"tenant-{n}": 2 for n in range(1_000)}
        )
        await self.store.put(fair, OPERATOR)

        (line,) = await self.all_records(Audit)
        assert len(line.detail) == 2_000
        assert await self.all_records(QueueSettings) == (fair,)

    async def test_a_prune_by_an_operator_is_logged_and_the_keepers_is_not(self) -> None:
        await self.store.prune(Retention(dead=None), 10)
        await self.store.prune(Retention(dead=None, completed=timedelta(hours=1)), 10, OPERATOR)

        (line,) = await self.all_records(Audit)
        assert (line.action, line.subject, line.task_id) == ("prune", "tasks", None)
        assert line.detail == '{"completed":3600.0,"cancelled":604800.0,"dead":null}'

    @pytest.mark.parametrize("newest_first", [False, True])
    async def test_entries_about_tasks_and_records_share_pages(self, *, newest_first: bool) -> None:
        ids = [await self.enqueue_one() for _ in range(3)]
        for number, task_id in enumerate(ids):
            await self.cancel(task_id)
            await self.store.put(QueueSettings(name=f"q{number}"), OPERATOR)

        pages = await all_pages(partial(self.store.records, Audit), limit=2, newest_first=newest_first)

        subjects = [line.task_id or line.subject for part in pages for line in part]
        expected = [about for number, task_id in enumerate(ids) for about in (task_id, f"queue q{number}")]
        assert subjects == (expected[::-1] if newest_first else expected)
        assert [len(part) for part in pages] == [2, 2, 2]
