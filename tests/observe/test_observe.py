"""ObservedStore: every step has its event, and none of them contains a secret."""

import asyncio
import json
import logging
from datetime import timedelta
from typing import Any

import pytest

from tests.contents import contents
from tests.loops.workers import dead_worker, drained, eventually, tasks, watched, working
from windlass import App, Backoff, Context, Fatal, Filter, Retry, Snooze, State, chain
from windlass._model.filter import By, Replay
from windlass._model.record import Session
from windlass._observe import observed_store as observed
from windlass._observe.logs import JsonFormatter

CANARY = "canary-7f3a-sings"
AT_ONCE = Backoff(base=0, jitter=0)


@pytest.fixture(autouse=True)
def _all_events(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="windlass")


@pytest.fixture
def app() -> App:
    return App("memory://", backoff=AT_ONCE)


def events(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if record.name == "windlass.events"]


def names(caplog: pytest.LogCaptureFixture, task_id: str | None = None) -> list[str]:
    return [one.event for one in events(caplog) if task_id in (None, one.task_id)]


async def test_every_step_of_a_life_has_its_event(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(queue="mail", max_attempts=2)
    async def eventful(*, ctx: Context) -> None:
        if ctx.fence == 1:
            raise Snooze(0)
        if ctx.fence == 2:
            raise Retry("busy", after=0)
        raise ValueError("the end")

    handle = await eventful.using(tenant="acme").aenqueue()  # type: ignore[call-arg]
    await drained(app)
    task = await handle.task()

    assert names(caplog, handle.id) == [
        "enqueued",
        "claimed",
        "snoozed",
        "claimed",
        "retried",
        "claimed",
        "buried",
    ]
    for one in events(caplog):
        assert (one.task_type, one.queue, one.tenant, one.trace) == (
            task.type,
            "mail",
            "acme",
            task.trace,
        )
        if one.event != "enqueued":
            assert one.worker == "alice"
            assert one.attempt >= 1
    last = events(caplog)[-1]
    assert (last.levelname, last.error_type, last.error_message) == ("ERROR", "ValueError", "the end")
    assert last.duration >= 0


async def test_the_steps_of_a_chain_are_enqueued_in_the_log_as_well(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def step(n: int) -> int:
        return n

    await app.client.enqueue(chain(step.step(1), step.step(2)))
    await drained(app)

    second = (await tasks(app))[1]
    assert names(caplog, second.id) == ["enqueued", "claimed", "completed"]
    assert len({one.trace for one in events(caplog)}) == 1


async def test_what_people_do_has_its_event_with_who_did_it(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(max_attempts=1, queue="mail")
    async def failing() -> None:
        raise ValueError

    by = By(who="ann", why="because")
    handle = await failing.aenqueue()
    await drained(app)
    await app.operator.replay_one(handle.id, by=by)
    await handle.cancel(by="ann")
    await app.operator.replay_one(handle.id, by=by)
    await drained(app)
    await app.operator.discard_one(handle.id, by=by)

    acts = [one for one in events(caplog) if getattr(one, "by", None) == "ann"]
    assert [one.event for one in acts] == ["replayed", "cancelled", "replayed", "discarded"]
    assert {(one.by, one.task_type, one.queue) for one in acts} == {("ann", failing.name, "mail")}
    assert all(one.trace for one in acts)


async def test_a_running_task_that_is_asked_to_stop_is_cancelled_once_in_the_log(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    entered = asyncio.Event()

    @app.task
    async def endless() -> None:
        entered.set()
        await asyncio.Event().wait()

    async with working(app):
        handle = await endless.aenqueue()
        await asyncio.wait_for(entered.wait(), 5)
        await handle.cancel()
        await handle.wait(timeout=5)

    assert names(caplog, handle.id).count("cancelled") == 1


async def test_releases_rescues_and_lost_leases_have_their_events(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    gate = asyncio.Event()

    @app.task
    async def slow() -> None:
        await gate.wait()

    handle = await slow.aenqueue()
    async with working(app, grace=0):
        await eventually(lambda: _running(app))
    assert names(caplog, handle.id)[-1] == "released"
    await dead_worker(app)
    async with working(app, keeper=True, queues=("nothing",)):
        await eventually(lambda: "rescued" in names(caplog))
        await eventually(lambda: "retried" in names(caplog))

    rescued = next(one for one in events(caplog) if one.event == "rescued")
    assert (rescued.worker, rescued.levelname) == ("ghost", "WARNING")


async def test_a_settlement_of_a_lost_lease_is_told_as_lost(caplog: pytest.LogCaptureFixture) -> None:
    app, watch = watched()
    gate, entered = asyncio.Event(), asyncio.Event()

    @app.task(backoff=lambda _attempt, _draw: timedelta(hours=1))
    async def slow() -> None:
        entered.set()
        await gate.wait()

    async with working(app, heartbeat=1.5, lease=5) as alice:
        await slow.aenqueue()
        await asyncio.wait_for(entered.wait(), 5)
        await eventually(lambda: watch.calls["heartbeat"] >= 2)  # the next one is far off
        await app.store.remove(Session, alice.held.session)
        async with working(app, keeper=True, queues=("nothing",), name="bob"):
            await eventually(lambda: "retried" in names(caplog))
            gate.set()
            await eventually(lambda: "lost" in names(caplog))

    assert "completed" not in names(caplog)


@pytest.mark.parametrize("blocking", [False, True])
async def test_secrets_appear_nowhere(app: App, caplog: pytest.LogCaptureFixture, blocking: bool) -> None:
    """Declared by name, declared by path, or named tellingly; as text, number, and inside what is raised."""

    def leak(password: str, card: dict[str, Any], pin: int, note: str) -> None:
        try:
            raise KeyError(password)
        except KeyError as cause:
            cause.add_note(f"card {card!r}")
            raise ValueError(f"{password} {card} {pin} {note}\n{json.dumps(card)}") from cause

    async def aleak(password: str, card: dict[str, Any], pin: int, note: str) -> None:
        leak(password, card, pin, note)

    declared = app.task(max_attempts=2, secret=("card.number", "pin"))(leak if blocking else aleak)
    handle = await declared.aenqueue(
        password=f'{CANARY}-"1"',
        card={"number": f"{CANARY}-ü2", "name": "Ann"},
        pin=70707070,
        note="harmless",
    )
    await drained(app)

    task = await handle.task()
    lines = await app.operator.attempts(handle.id)
    formatter = JsonFormatter()
    told = [
        contents(task.error),
        contents([line.error for line in lines]),
        *(repr(vars(record)) for record in caplog.records),
        *(formatter.format(record) for record in caplog.records),
        *(record.getMessage() for record in caplog.records),
    ]
    assert len(lines) == 2
    for text in told:
        assert CANARY not in text
        assert "70707070" not in text
    assert task.error is not None
    assert "harmless" in task.error.message
    assert "Ann" in task.error.message
    assert "[secret]" in task.error.message


async def test_results_and_payloads_are_in_no_event(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task
    async def echo(word: str) -> str:
        return word

    await echo.aenqueue(CANARY)
    await drained(app)

    assert len(events(caplog)) == 3
    assert CANARY not in caplog.text
    assert not [record for record in caplog.records if CANARY in repr(vars(record))]


async def test_a_message_cannot_forge_log_lines(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task
    async def forging() -> None:
        raise Fatal("red \x1b[31m\rINFO all is well\u2028\nsecond line")

    await forging.aenqueue()
    await drained(app)

    line = events(caplog)[-1].getMessage()
    assert line.isprintable()
    assert "second line" not in line


async def test_json_lines_parse_and_carry_every_field(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(max_attempts=1)
    async def odd(*, ctx: Context) -> None:
        ctx.logger.info("hello %s", "there", extra={"mine": {1, 2}})
        raise ValueError("line one\nline two \u2028 \x00")

    handle = await odd.aenqueue()  # type: ignore[call-arg]
    await drained(app)
    try:
        raise RuntimeError("shown")
    except RuntimeError:
        logging.getLogger("windlass.test").exception("with a traceback")

    formatter = JsonFormatter()
    parsed = [json.loads(formatter.format(record)) for record in caplog.records]
    assert all("\n" not in formatter.format(record) for record in caplog.records)
    assert {"time", "level", "logger", "message"} <= parsed[0].keys()
    (hello,) = [line for line in parsed if line["logger"] == "windlass.task"]
    assert (hello["task_id"], hello["attempt"], hello["message"]) == (handle.id, 1, "hello there")
    (buried,) = [line for line in parsed if line.get("event") == "buried"]
    assert buried["error_message"].startswith("line one\nline two")
    assert "RuntimeError: shown" in parsed[-1]["exception"]


async def test_every_attempt_leaves_a_line(app: App) -> None:
    @app.task(max_attempts=2)
    async def failing() -> None:
        raise ValueError("again")

    handle = await failing.aenqueue()
    await drained(app)

    task = await handle.task()
    lines = await app.operator.attempts(handle.id)
    assert [(line.number, line.fence, line.worker, line.outcome) for line in lines] == [
        (1, 1, "alice", "failed"),
        (2, 2, "alice", "failed"),
    ]
    assert all(line.trace == task.trace and line.duration >= 0 for line in lines)
    assert all(line.claimed_at <= line.finished_at for line in lines)


async def test_what_is_remembered_of_claimed_tasks_is_small_and_bounded(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed, "_MAX_CLAIMED", 5)

    @app.task
    async def note(word: str) -> None: ...

    handles = [await note.aenqueue(CANARY * 100) for _ in range(12)]
    for _ in range(3):
        await dead_worker(app, limit=4)  # never settled through here

    known = app.store._claimed_tasks  # type: ignore[attr-defined]
    assert [*known] == [handle.id for handle in handles[-5:]]
    assert CANARY not in contents(known)  # large payloads are not kept in memory


async def test_the_error_of_an_earlier_attempt_is_not_kept_in_memory(app: App) -> None:
    @app.task(max_attempts=1)
    async def note() -> None:
        raise ValueError(CANARY)

    handle = await note.aenqueue()
    await drained(app)
    await app.store.apply(Replay(by=By(who="ann")), Filter(), 1)
    await dead_worker(app)

    known = app.store._claimed_tasks  # type: ignore[attr-defined]
    assert [*known] == [handle.id]
    assert CANARY not in contents(known)


async def _running(app: App) -> bool:
    return bool(await tasks(app, State.RUNNING))
