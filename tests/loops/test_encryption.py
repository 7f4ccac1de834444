"""Secret fields are encrypted in the store, on every path, and in plain text for handlers and clients."""

import json
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.contents import contents
from tests.loops import child_tasks
from tests.loops.workers import dead_worker, drained, tasks
from windlass import (
    RESULT,
    App,
    By,
    Context,
    Filter,
    InvalidOption,
    InvalidPayload,
    Page,
    Refused,
    State,
    chain,
)
from windlass._documents.tasks import task_document
from windlass._encryption import encrypted_store
from windlass._encryption.encrypted_store import EncryptedStore
from windlass._encryption.keys import Keyring
from windlass._model.limit import Limit
from windlass._model.options import DeclaredType
from windlass._model.record import Audit, Declaration
from windlass._model.schedule import Schedule
from windlass._model.verdict import Complete, Settlement
from windlass._policy.secrets.encrypted import MARKER
from windlass._store.protocol import Store, all_records
from windlass._stores.memory import MemoryStore
from windlass.errors import DuplicateTask, IdempotencyConflict
from windlass.tasktype import TaskType
from windlass.testing.clock import ManualClock

CANARY = "canary-4111-1111"
OLD, NEW = ("k1", b"1" * 32), ("k2", b"2" * 32)
RING, BOTH = Keyring([OLD]), Keyring([NEW, OLD])


def program(store: Any, keyring: Keyring | None = RING, **options: Any) -> App:
    """A program with types whose card is secret."""
    app = App(store, encryption=keyring, **options)

    @app.task(name="pay", secret=["card"], max_attempts=1)
    async def pay(card: str, amount: int = 0, *, ctx: Context) -> dict[str, Any]:
        assert card == CANARY
        return {"card": card, "amount": amount, "text": f"paid with {card}"}

    @app.task(name="report")
    async def report(paid: Any, title: str = "") -> int:
        return len(str(paid))

    @app.task(name="decline", secret=["card"], max_attempts=1)
    async def decline(card: str) -> None:
        raise ValueError(f"declined {card}")

    @app.task(name="once", secret=["card"], unique=True)
    async def once(card: str) -> None: ...

    return app


@pytest.fixture
def store(bare_store: Store) -> Store:
    return bare_store


async def stored(store: Store) -> bytes:
    """All that the store has of its tasks, schedules, declarations and audit log, as text."""
    page = Page(limit=1000)
    kinds = (Schedule, Declaration, Audit, DeclaredType)
    found = [*(await store.find(Filter(), page)).items]
    kept = [contents(one) for kind in kinds for one in (await store.records(kind, page)).items]
    attempts = [contents(await store.attempts(task.id)) for task in found]
    return "\n".join([*map(contents, found), *kept, *attempts]).encode()


def everything_in(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


async def test_the_file_of_a_store_without_keys_has_the_secret(tmp_path: Path) -> None:
    file = tmp_path / "windlass.db"
    app = program(f"sqlite:///{file}", None)
    await app.client.send("pay", {"card": CANARY})
    await drained(app)
    await app.close()

    assert CANARY.encode() in file.read_bytes()


async def test_no_file_of_an_encrypted_store_has_the_secret(tmp_path: Path) -> None:
    file = tmp_path / "windlass.db"
    app = program(f"sqlite:///{file}")
    handle = await app.client.send("pay", {"card": CANARY, "amount": 5})
    await app.client.send("decline", {"card": CANARY})
    await app.client.send(
        "pay",
        {"card": CANARY},
        next=app.builder.step("pay", b'{"card":"%s"}' % CANARY.encode(), {}, app.types["pay"].defaults),
    )
    await drained(app)

    assert await handle.result(timeout=5) == {"card": CANARY, "amount": 5, "text": f"paid with {CANARY}"}
    assert [task.state for task in await tasks(app)] == [State.COMPLETED, State.DEAD, *[State.COMPLETED] * 2]
    await app.close()
    assert CANARY.encode() not in everything_in(tmp_path)


async def test_what_a_store_gets_has_no_secret_on_any_path(store: Store) -> None:
    app = program(store)
    card = {"card": CANARY}
    await app.publish()
    pay, report = (app.types[name] for name in ("pay", "report"))
    step = app.builder.step("pay", b'{"card":"%s"}' % CANARY.encode(), {}, pay.defaults)
    last = replace(app.builder.step("report", b"{}", {}, report.defaults), result_into="paid")
    await app.client.enqueue(chain(step, last), idempotency_key="a")
    await app.client.enqueue_group([step, step], last)
    await app.client.send("decline", card, on_failure=step)
    await app.operator.schedules.add("nightly", "pay", "0 3 * * *", card)
    app.schedule("hourly", step, "1h")
    await app.publish()
    await app.operator.schedules.trigger("nightly")
    await drained(app)
    (dead,) = await tasks(app, State.DEAD)
    edited = b'{"card":"%s"}' % CANARY.encode()
    await app.operator.replay(Filter(ids=(dead.id,)), by=By(who="ann"), payload=edited)
    await drained(app)
    await app.operator.schedules.pause("nightly")
    assert {task.type for task in await tasks(app, State.COMPLETED)} == {"pay", "report"}
    assert CANARY.encode() not in await stored(store)
    await app.operator.discard(Filter(states=(State.DEAD,)), by=By(who="ann", why="test"))
    assert CANARY.encode() not in await stored(store)


async def test_results_reach_successors_and_groups_in_plain_text(store: Store) -> None:
    app = program(store)
    seen: list[Any] = []

    @app.task(name="look")
    async def look(paid: Any) -> None:
        seen.append(paid)

    step = app.builder.step("pay", b'{"card":"%s"}' % CANARY.encode(), {}, app.types["pay"].defaults)
    await app.client.enqueue(chain(step, look.step(paid=RESULT)))
    await app.client.enqueue_group([step, step], look.step(paid=RESULT))
    await drained(app)

    paid = {"card": CANARY, "amount": 0, "text": f"paid with {CANARY}"}
    assert sorted(seen, key=str) == sorted([paid, [paid, paid]], key=str)
    assert CANARY.encode() not in await stored(store)


@pytest.fixture
def joining(store: Store) -> tuple[App, TaskType[Any, Any, Any]]:
    """A program, and its type that returns what it takes under other names."""
    app = program(store)

    @app.task(name="join")
    async def join(taken: Any) -> dict[str, Any]:
        assert CANARY in str(taken)
        return {"note": f"charged {CANARY}", "all": [taken], CANARY: 1}

    return app, join


@pytest.mark.parametrize("way", ["then", "after", "group of chains", "then of then"])
async def test_what_a_fan_in_repeats_is_encrypted_and_masked(
    way: str, joining: tuple[App, TaskType[Any, Any, Any]], store: Store
) -> None:
    app, declared = joining
    join = declared.step(taken=RESULT)
    paid = app.builder.step("pay", b'{"card":"%s"}' % CANARY.encode(), {}, app.types["pay"].defaults)
    if way == "after":
        first = await app.client.send("pay", {"card": CANARY})
        last = await app.client.enqueue(join, after=[first.id])
    elif way == "group of chains":
        *_, last = await app.client.enqueue_group([chain(paid, join), paid], join)
    elif way == "then of then":
        *_, middle = await app.client.enqueue_group([paid], join)
        last = await app.client.enqueue(join, after=[middle.id])
    else:
        *_, last = await app.client.enqueue_group([paid], join)
    await drained(app)

    result = await last.result(timeout=5)
    assert result["note"] == f"charged {CANARY}"
    assert CANARY.encode() not in await stored(store)
    for reader in (app, App(store, encryption=None)):
        (shown,) = await reader.client.types.with_result_secrets([await reader.operator.task(last.id)])
        assert CANARY not in contents(task_document(shown))

    (alone,) = (await app.store.find(Filter(ids=(last.id,)), Page())).items  # as if the others were pruned
    assert CANARY not in contents(task_document(alone))


async def test_what_follows_a_fan_in_is_encrypted_too(
    joining: tuple[App, TaskType[Any, Any, Any]], store: Store
) -> None:
    app, declared = joining
    paid = app.builder.step("pay", b'{"card":"%s"}' % CANARY.encode(), {}, app.types["pay"].defaults)
    join = declared.step(taken=RESULT)
    await app.client.enqueue_group([paid, paid], chain(join, join, join))
    await drained(app)

    assert [task.state for task in await tasks(app)] == [State.COMPLETED] * 5
    assert CANARY.encode() not in await stored(store)


async def test_what_a_result_repeats_of_its_own_secret_field_is_encrypted(store: Store) -> None:
    """As of a card number that the handler has made: the payload does not have it."""
    app = program(store)

    @app.task(name="issue", secret=["card"])
    async def issue(n: int) -> dict[str, Any]:
        return {"card": CANARY, "text": f"issued {CANARY}", "by": {CANARY: n}}

    @app.task(name="tell")
    async def tell(taken: Any) -> str:
        return json.dumps(json.dumps(taken))

    await app.client.enqueue(chain(issue.step(n=1), tell.step(taken=RESULT), tell.step(taken=RESULT)))
    first = await issue.aenqueue(n=1)
    await app.client.enqueue(tell.step(taken=RESULT), after=[first.id])
    await drained(app)

    assert [task.state for task in await tasks(app)] == [State.COMPLETED] * 5
    assert CANARY.encode() not in await stored(store)
    assert (await first.result(timeout=5))["text"] == f"issued {CANARY}"


async def test_a_fan_in_in_a_transaction_is_encrypted(tmp_path: Path) -> None:
    file = tmp_path / "windlass.db"
    app = program(f"sqlite:///{file}")

    @app.task(name="join")
    def join(taken: Any, *, ctx: Context) -> None:
        with ctx.transaction(result={"note": taken}):
            pass

    paid = app.builder.step("pay", b'{"card":"%s"}' % CANARY.encode(), {}, app.types["pay"].defaults)
    *_, last = await app.client.enqueue_group([paid], join.step(taken=RESULT))
    await drained(app)

    assert CANARY in str(await last.result(timeout=5))
    await app.close()
    assert CANARY.encode() not in file.read_bytes()


async def test_a_rotation_encrypts_what_fan_ins_have_stored_in_plain_text(
    joining: tuple[App, TaskType[Any, Any, Any]], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, join = joining
    monkeypatch.setattr(encrypted_store, "repeatable", lambda values: ())  # as earlier versions did
    monkeypatch.setattr(encrypted_store, "values_of", lambda payload, secret: ())
    paid = app.builder.step("pay", b'{"card":"%s"}' % CANARY.encode(), {}, app.types["pay"].defaults)
    *_, last = await app.client.enqueue_group([paid], join.step(taken=RESULT))
    await drained(app)
    assert CANARY.encode() in await stored(store)
    monkeypatch.undo()

    await app.operator.encryption.rotate()

    assert CANARY.encode() not in await stored(store)
    assert (await last.result(timeout=5))["note"] == f"charged {CANARY}"


async def test_pausing_a_schedule_is_audited_as_such(store: Store) -> None:
    app = program(store)
    await app.publish()
    await app.operator.schedules.add("nightly", "pay", "0 3 * * *", {"card": CANARY})
    before = (await all_records(store, Schedule))[0]

    await app.operator.schedules.pause("nightly")

    assert (await all_records(store, Schedule))[0].payload == before.payload
    assert (await app.operator.audit()).items[0].action == "pause"
    assert b"canary" in (await app.operator.schedules.get("nightly")).schedule.payload


async def test_a_declared_schedule_is_stored_once_and_its_digest_is_keyed(store: Store) -> None:
    def declared(keyring: Keyring) -> App:
        app = program(store, keyring)
        pay = app.types["pay"]
        app.schedule("hourly", app.builder.step("pay", b'{"card":"1"}', {}, pay.defaults), "1h")
        return app

    await declared(RING).publish()
    (before,) = await all_records(store, Schedule)
    (declaration,) = await all_records(store, Declaration)
    await declared(BOTH).publish()

    assert await all_records(store, Schedule) == [before]
    assert await all_records(store, Declaration) == [declaration]


# -- keys that are missing ------------------------------------------------------------------------------


async def test_a_worker_without_keys_hands_tasks_back_and_says_so_once(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    producer, worker = program(store), program(store, None)
    for _ in range(3):
        await producer.client.send("pay", {"card": CANARY})
    await producer.client.send("report", {"paid": 1})

    with caplog.at_level(logging.WARNING, "windlass.worker"):
        await drained(worker)

    waiting = await tasks(worker, State.SCHEDULED)
    assert [(task.attempt, task.error.type) for task in waiting] == [(0, "MissingKey")] * 3
    assert not any([await store.attempts(task.id) for task in waiting])
    said = [record.getMessage() for record in caplog.records if "encryption key" in record.getMessage()]
    assert len(said) == 1
    assert "lacks the encryption key k1" in said[0]
    assert "WINDLASS_ENCRYPTION_KEYS" in said[0]
    assert len(await tasks(worker, State.COMPLETED)) == 1


async def test_a_worker_without_keys_does_not_complete_what_encrypted_steps_follow(store: Store) -> None:
    producer, worker = program(store), program(store, None)
    pay = producer.builder.step("once", b'{"card":"1"}', {}, producer.types["once"].defaults)
    first = producer.builder.step("report", b'{"paid":1}', {}, producer.types["report"].defaults)
    await producer.client.enqueue(chain(first, pay))
    await drained(worker)

    (task,) = await tasks(worker)
    assert task.state is State.SCHEDULED
    assert MARKER in task.next


async def test_a_group_whose_results_cannot_be_decrypted_is_handed_back() -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    producer, worker = program(store), program(store, None)
    step = producer.builder.step(
        "pay", b'{"card":"%s"}' % CANARY.encode(), {}, producer.types["pay"].defaults
    )
    last = producer.builder.step("report", b"{}", {"queue": "last"}, producer.types["report"].defaults)
    last = replace(last, result_into="paid")
    await producer.client.enqueue_group([step, step], last)
    await drained(producer)

    await drained(worker, queues=("last",))
    (task,) = await tasks(worker, State.SCHEDULED)
    assert (task.type, task.error.type) == ("report", "MissingKey")
    clock.advance(60)
    await store.promote(10)
    await drained(producer, queues=("last",))

    assert len(await tasks(producer, State.COMPLETED)) == 3


async def test_a_changed_value_buries_its_task_and_no_handler_gets_it() -> None:
    store = MemoryStore()
    app = program(store)
    await app.client.send("pay", {"card": CANARY})
    await program(store, Keyring([("k1", b"x" * 32)])).client.send("pay", {"card": CANARY})
    await drained(app)

    assert [task.state for task in await tasks(app)] == [State.COMPLETED, State.DEAD]
    (dead,) = await tasks(app, State.DEAD)
    assert dead.error.type == "DecryptionFailed"


async def test_a_reader_without_keys_shows_encrypted_values_as_such(store: Store) -> None:
    handle = await program(store).client.send("pay", {"card": CANARY, "amount": 3})
    await drained(program(store))
    reader = program(store, None)

    task = await reader.operator.task(handle.id)

    assert task_document(task, reveal=True).payload == {"card": "[encrypted]", "amount": 3}
    assert task_document(task).result == {"card": "[secret]", "amount": 3, "text": "[encrypted]"}


async def test_a_result_whose_key_is_missing_is_refused(store: Store) -> None:
    handle = await program(store).client.send("pay", {"card": CANARY})
    await drained(program(store))

    for keyring in (None, Keyring([NEW])):
        waiting = await program(store, keyring).client.get(handle.id)
        with pytest.raises(Refused, match="needs the encryption key k1, which is missing here"):
            await waiting.result(timeout=5)
    known = await program(store, BOTH).client.get(handle.id)
    assert (await known.result(timeout=5))["card"] == CANARY


async def test_a_program_without_keys_cannot_enqueue_plain_secrets_of_an_encrypted_type(store: Store) -> None:
    await program(store).publish()
    producer = program(store, None)
    pay = producer.builder.step("pay", b'{"card":"1"}', {}, producer.types["pay"].defaults)
    plain = producer.builder.step("report", b'{"paid":1}', {}, producer.types["report"].defaults)

    for attempt in (
        lambda: producer.client.send("pay", {"card": CANARY}),
        lambda: App(store, encryption=None).client.send("pay", {"card": CANARY}),
        lambda: producer.client.enqueue(pay),
        lambda: producer.client.enqueue(chain(plain, plain, pay)),
        lambda: producer.client.enqueue_group([chain(plain, pay)], plain),
        lambda: producer.operator.schedules.add("s", "pay", "1h", {"card": CANARY}),
    ):
        with pytest.raises(Refused, match="no encryption keys"):
            await attempt()
    await producer.client.enqueue(chain(plain, plain))
    assert len(await tasks(producer)) == 1


async def test_an_edited_payload_without_keys_is_refused(store: Store) -> None:
    app = program(store)
    await app.publish()
    await app.client.send("decline", {"card": CANARY})
    await drained(app)
    (dead,) = await tasks(app, State.DEAD)

    with pytest.raises(Refused, match="no encryption keys"):
        await program(store, None).operator.replay_one(dead.id, by=By(who="ann"), payload=b'{"card":"1"}')


async def test_a_worker_without_keys_does_not_take_the_mark_off(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    await program(store).publish()

    await program(store, None).publish()

    marks = {one.name: one.encrypted for one in await all_records(store, DeclaredType)}
    assert marks == {"pay": True, "decline": True, "once": True, "report": False}
    assert "pay" in caplog.text
    assert "has no encryption keys" in caplog.text


@pytest.mark.parametrize("keyring", [None, RING])
async def test_a_caller_cannot_pass_an_encrypted_value(store: Store, keyring: Keyring | None) -> None:
    forged = "~windlass-encrypted:1:k1:AAAA"
    app = program(store, keyring)

    for attempt in (
        lambda: app.client.send("report", {"paid": [forged]}),
        lambda: app.client.send(
            "report",
            {"paid": 1},
            next=app.builder.step(
                "report", b'{"paid":"%s"}' % forged.encode(), {}, app.types["report"].defaults
            ),
        ),
        lambda: app.operator.schedules.add("s", "report", "1h", {"paid": forged}),
    ):
        with pytest.raises(InvalidPayload, match="marks encrypted values"):
            await attempt()


async def test_a_result_cannot_be_an_encrypted_value(store: Store) -> None:
    app = App(store, encryption=RING)

    @app.task(name="forge", max_attempts=1)
    async def forge() -> str:
        return "~windlass-encrypted:1:k1:AAAA"

    await forge.aenqueue()
    await drained(app)

    assert [task.state for task in await tasks(app)] == [State.DEAD]


# -- digests ----------------------------------------------------------------------------------------------


async def test_equal_secrets_are_duplicates_also_across_a_rotation(store: Store) -> None:
    before, after = program(store), program(store, BOTH)
    await before.client.send("once", {"card": "1"})
    with pytest.raises(DuplicateTask):
        await after.client.send("once", {"card": "1"})
    await after.client.send("once", {"card": "2"})

    await before.client.send("pay", {"card": "1"}, idempotency_key="a")
    again = await after.client.send("pay", {"card": "1"}, idempotency_key="a")
    assert not again.created
    with pytest.raises(IdempotencyConflict):
        await after.client.send("pay", {"card": "2"}, idempotency_key="a")


async def test_a_stored_digest_does_not_tell_the_secret(store: Store) -> None:
    encrypted, plain = program(store), program(MemoryStore(), None)
    await encrypted.client.send("once", {"card": "1"})
    await plain.client.send("once", {"card": "1"})
    (guessed,), (kept,) = await tasks(plain), (await store.find(Filter(), Page())).items

    assert kept.fingerprint != guessed.fingerprint
    assert len(kept.fingerprint) == len(guessed.fingerprint)


async def test_a_keeper_without_keys_fires_unique_schedules_as_one_with_keys(store: Store) -> None:
    app = program(store)
    await app.publish()
    await app.operator.schedules.add("s", "once", "1s", {"card": CANARY})
    await program(store, None).operator.schedules.trigger("s")

    with pytest.raises(DuplicateTask):
        await app.client.send("once", {"card": CANARY})
    await drained(app)
    assert [task.state for task in await tasks(app)] == [State.COMPLETED]


# -- ways to run ------------------------------------------------------------------------------------------


async def test_a_child_process_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    store, app = MemoryStore(), child_tasks.app
    before = app.use_store(EncryptedStore(store, RING))
    try:
        handle = await child_tasks.echo_pin.aenqueue(pin=CANARY)
        await drained(app)
        assert await handle.result(timeout=5) == {"pin": CANARY, "said": f"it is {CANARY}"}
    finally:
        app.use_store(before)
    assert CANARY.encode() not in await stored(store)


async def test_a_transaction_encrypts_the_result_and_joined_tasks(tmp_path: Path) -> None:
    file = tmp_path / "windlass.db"
    app = App(f"sqlite:///{file}", encryption=RING)

    @app.task(name="pay", secret=["card"])
    def pay(card: str, *, ctx: Context) -> None:
        with ctx.transaction(result={"card": card}) as connection:
            connection.execute("CREATE TABLE paid (n)")

    await app.open()
    handle = await pay.aenqueue(card=CANARY)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("BEGIN IMMEDIATE")
        await pay.using(within=connection, queue="later").aenqueue(card=CANARY)
    await drained(app)

    assert await handle.result(timeout=5) == {"card": CANARY}
    assert sorted(task.state for task in await tasks(app)) == [State.COMPLETED, State.READY]
    await app.close()
    assert CANARY.encode() not in file.read_bytes()


async def test_a_task_claimed_through_another_handle_is_settled_encrypted(store: Store) -> None:
    app, other = program(store), EncryptedStore(store, RING)
    await app.client.send("pay", {"card": CANARY})
    (claimed,) = await dead_worker(app, lease=60)
    verdict = Complete(result=b'{"card":"%s"}' % CANARY.encode())
    await other.settle([Settlement(lease=claimed.lease, verdict=verdict, outcome="returned")])

    assert CANARY.encode() not in await stored(store)
    assert (await tasks(app))[0].result == verdict.result


async def test_tasks_of_many_leases_are_forgotten() -> None:
    store = EncryptedStore(MemoryStore(), RING)
    task = (await _task(store)).task
    for number in range(encrypted_store._MAX_RUNNING + 5):
        store._remember(replace(task, id=str(number)))

    assert len(store._running) == encrypted_store._MAX_RUNNING
    assert "0" not in store._running


async def _task(store: Store) -> Any:
    app = program(store, None)
    await app.client.send("pay", {"card": CANARY})
    (claimed,) = await dead_worker(app, lease=60)
    return claimed


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEYS", "k1:" + "MTEx" * 10 + "MTE=")

    app = App("memory://")

    assert app.keyring.ids == ("k1",)
    assert App("memory://", encryption="k9:" + "MTEx" * 10 + "MTE=").keyring.ids == ("k9",)
    assert isinstance(app.store.inner, EncryptedStore)
    app.use_keyring(BOTH)
    assert app.store.inner.keyring is BOTH
    assert isinstance(app.store.inner.inner, MemoryStore)


async def test_a_limit_cannot_count_by_an_encrypted_field(store: Store) -> None:
    app = program(store)
    await store.put(Limit(name="cards", type="pay", by="card", running=1))  # before it was secret
    await app.publish()
    limits = app.operator.limits

    for options in ({"by": "card"}, {"by": "card", "type": "pay"}):
        with pytest.raises(InvalidOption, match="which is secret"):
            await limits.set("others", create=True, all="type" not in options, running=1, **options)
    await limits.set("others", create=True, type="elsewhere", by="card", running=1)
    await limits.set("amounts", create=True, type="pay", by="amount", running=1)
    with pytest.raises(InvalidOption, match="which is secret"):
        await limits.change("amounts", by="card")
    found = [one.message for one in await app.operator.encryption.check()]
    assert len(found) == 2
    assert "limit 'cards' counts by 'card'" in found[1]
