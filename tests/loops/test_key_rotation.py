"""The rotation of encryption keys: what is stored is encrypted with the first key, whatever interrupts it."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.loops.test_encryption import BOTH, CANARY, NEW, RING, program, stored
from tests.loops.workers import dead_worker, drained, tasks
from windlass import App, Filter, InvalidOption, Page, State, StoreUnavailable, chain
from windlass._client import encryption
from windlass._client.encryption import Rotation
from windlass._encryption.keys import Keyring
from windlass._model.filter import Action, Rewrite
from windlass._model.record import Audit
from windlass._model.schedule import Schedule
from windlass._model.transition import Applied
from windlass._policy.secrets.encrypted import MARKER, key_ids
from windlass._store.forward import ForwardingStore
from windlass._store.protocol import Severity, Store, all_records
from windlass._stores.memory import MemoryStore
from windlass.testing.faults import Fault, FaultyStore, scripted

NEWEST = Keyring([NEW])


@pytest.fixture
def store(bare_store: Store) -> Store:
    return bare_store


async def some_of_everything(app: App) -> None:
    """Tasks in several states with secrets in payload, steps and result, and schedules."""
    await app.publish()
    step = app.builder.step("pay", b'{"card":"%s"}' % CANARY.encode(), {}, app.types["pay"].defaults)
    for _ in range(2):
        await app.client.enqueue(chain(step, step))
    await app.client.send("decline", {"card": CANARY})
    await drained(app)
    await app.client.enqueue(chain(step, step))
    await dead_worker(app, lease=60)
    await app.client.send("pay", {"card": CANARY}, delay=60)
    await app.client.send("report", {"paid": 1}, delay=60)
    await app.operator.schedules.add("nightly", "pay", "0 3 * * *", {"card": CANARY})
    await app.operator.schedules.add("once", "once", "0 3 * * *", {"card": CANARY})


async def keys_in(store: Store) -> set[str]:
    found = (await store.find(Filter(), Page(limit=1000))).items
    schedules = await all_records(store, Schedule)
    documents = [part for one in found for part in (one.payload, one.next, one.result)]
    documents += [part for one in schedules for part in (one.payload, one.next)]
    return {*key_ids(*documents)}


async def test_everything_is_encrypted_with_the_first_key_and_the_former_is_not_needed(store: Store) -> None:
    await some_of_everything(program(store))
    before = await tasks(program(store))
    schedules = await all_records(program(store).store, Schedule)
    assert await keys_in(store) == {"k1"}

    done = await program(store, BOTH).operator.encryption.rotate()

    assert done == Rotation(read=8, rewritten=7, schedules=2)
    assert await keys_in(store) == {"k2"}
    assert await tasks(program(store, NEWEST)) == before
    assert await all_records(program(store, NEWEST).store, Schedule) == schedules
    again = await program(store, BOTH).operator.encryption.rotate()
    assert (again.rewritten, again.schedules) == (0, 0)


async def test_what_was_stored_in_plain_text_is_encrypted(store: Store) -> None:
    await some_of_everything(program(store, None))
    assert CANARY.encode() in await stored(store)

    done = await program(store).operator.encryption.rotate()

    assert done.rewritten == 7
    assert CANARY.encode() not in await stored(store)
    worker = program(store)
    await drained(worker)
    assert {task.state for task in await tasks(worker)} >= {State.COMPLETED, State.RUNNING, State.DEAD}


async def test_a_rotation_that_is_stopped_goes_on_and_skips_what_is_done(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encryption, "_BATCH", 2)
    await some_of_everything(program(store))
    reports: list[Rotation] = []

    class Killed(Exception):
        pass

    def report(done: Rotation) -> None:
        reports.append(done)
        if len(reports) == 2:
            raise Killed

    with pytest.raises(Killed):
        await program(store, BOTH).operator.encryption.rotate(report=report)
    assert await keys_in(store) == {"k1", "k2"}
    assert not [task for task in await tasks(program(store, BOTH)) if MARKER in task.payload]
    behind = await program(store, BOTH).operator.encryption.rotate(after=reports[-1].cursor)
    assert (behind.read, await keys_in(store)) == (4, {"k2"})
    whole = await program(store, BOTH).operator.encryption.rotate()
    assert (whole.read, whole.rewritten) == (8, 0)


class Racing(ForwardingStore):
    """A store in which workers go on between what a rotation reads and what it writes."""

    def __init__(self, inner: Store, work: Callable[[], Awaitable[object]]) -> None:
        super().__init__(inner)
        self._work = work
        self.times = 2

    async def apply(self, action: Action, where: Filter, limit: int) -> Applied:
        if isinstance(action, Rewrite) and self.times:
            self.times -= 1
            await self._work()
        return await super().apply(action, where, limit)


async def test_tasks_that_change_meanwhile_are_rotated_too(store: Store) -> None:
    """Workers complete them between what it reads and what it writes; one rotation is enough."""
    app = program(store)
    step = app.builder.step("pay", b'{"card":"%s"}' % CANARY.encode(), {}, app.types["pay"].defaults)
    for _ in range(3):
        await app.client.enqueue(chain(step, step))

    racing = Racing(store, lambda: drained(program(store, BOTH)))
    done = await program(racing, BOTH).operator.encryption.rotate()

    assert done.rewritten >= 3
    assert await keys_in(store) == {"k2"}


async def test_a_lost_reply_loses_nothing() -> None:
    inner = MemoryStore()
    await some_of_everything(program(inner))
    before = await tasks(program(inner))
    failing = FaultyStore(inner, scripted(apply=[Fault.AFTER]))

    with pytest.raises(StoreUnavailable):
        await program(failing, BOTH).operator.encryption.rotate()
    await program(inner, BOTH).operator.encryption.rotate()

    assert await keys_in(inner) == {"k2"}
    assert await tasks(program(inner, NEWEST)) == before


async def test_what_no_key_decrypts_stays_and_is_counted(store: Store) -> None:
    await program(store).client.send("pay", {"card": CANARY})
    await program(store, NEWEST).client.send("pay", {"card": CANARY})
    before = await keys_in(store)

    done = await program(store, Keyring([("k3", b"3" * 32), NEW])).operator.encryption.rotate()

    assert (done.rewritten, done.locked) == (1, 1)
    assert (before, await keys_in(store)) == ({"k1", "k2"}, {"k1", "k3"})


async def test_a_rotation_leaves_one_audit_line_a_step(store: Store) -> None:
    app = program(store)
    for _ in range(3):
        await app.client.send("pay", {"card": CANARY})

    await program(store, BOTH).operator.encryption.rotate()

    (line,) = await all_records(store, Audit)
    assert (line.action, line.detail) == ("rewrite", '{"tasks":3}')


async def test_a_rotation_needs_keys(store: Store) -> None:
    with pytest.raises(InvalidOption, match="no encryption keys"):
        await program(store, None).operator.encryption.rotate()


async def test_check_reports_missing_and_former_keys(store: Store) -> None:
    async def found(keyring: Keyring | None) -> list[tuple[Severity, str]]:
        return [
            (one.severity, one.message) for one in await program(store, keyring).operator.encryption.check()
        ]

    assert await found(None) == []
    await program(store).publish()
    await program(store).client.send("pay", {"card": CANARY})

    assert await found(RING) == [(Severity.OK, "secret fields are encrypted with key k1")]
    ((severity, message),) = await found(BOTH)
    assert severity is Severity.WARNING
    assert "1 task of the newest 5,000 need the former key k1; run `windlass encryption rotate`" in message
    ((_, message),) = await found(NEWEST)
    assert "key k1 is missing here" in message
    messages = [message for _, message in await found(None)]
    assert "there are no keys here, and secret fields of decline, once, pay are encrypted" in messages[0]
    assert "key k1 is missing here" in messages[1]


def test_the_blocking_operator_rotates_too(tmp_path: Path) -> None:
    app = program(f"sqlite:///{tmp_path}/windlass.db")
    app.sync_client.send("pay", {"card": CANARY})

    assert app.sync_operator.encryption.rotate() == Rotation(read=1)
