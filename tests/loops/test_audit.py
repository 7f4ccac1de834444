"""The audit log: records every change of an operator, and none of programs."""

import inspect
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.loops.workers import drained
from windlass import App, By, NotFound, Retention
from windlass._client.alerts import Alerts
from windlass._client.keys import Keys
from windlass._client.limits import Limits
from windlass._client.operator import Operator
from windlass._client.schedules import Schedules
from windlass._documents.audit import summary
from windlass._model.options import DeclaredType
from windlass._model.queue import QueueSettings
from windlass._model.record import Archive, Audit

ANN = By(who="ann", why="too much mail")

READS = {
    *(
        (Operator, name)
        for name in (
            "task",
            "attempts",
            "find",
            "every",
            "count",
            "failures",
            "history",
            "workers",
            "queues",
            "types",
            "audit",
            "export",
        )
    ),
    *((Operator, name) for name in ("now", "check", "migrations", "export", "export_sync", "archive")),
    *((Keys, name) for name in ("list", "logins")),
    *((Limits, name) for name in ("list", "get", "usages", "declared")),
    *((Alerts, name) for name in ("list", "get", "test")),
    *((Schedules, name) for name in ("list", "get", "make", "changed", "past", "upcoming")),
}
OF_TASKS = {(Operator, verb + one) for verb in ("cancel", "replay", "discard") for one in ("", "_one")}
APART = {
    (Operator, "reveal"): "of tasks, and tried by the conformance suite",
    (Operator, "acting_as"): "gives another operator",
    (Operator, "migrate"): "the log is part of what is migrated",
    (Keys, "sign_out"): "an entry for each login that it removes",
    (Schedules, "put"): "`add`, of a schedule that is made already",
    (Schedules, "trigger"): "the task says who enqueued it",
    (Schedules, "trigger_once"): "the task says who enqueued it",
}

Deed = Callable[[Operator], Awaitable[Any]]


async def revoke(operator: Operator) -> None:
    (key,) = await operator.keys.list()
    await operator.keys.revoke(key.name)


async def rotate(operator: Operator) -> None:
    (key,) = await operator.keys.list()
    await operator.keys.rotate(key.name)


DEEDS: dict[tuple[type, str], tuple[Deed, str, str]] = {
    (Operator, "pause"): (lambda o: o.pause("mail", create=True), "pause", "queue mail"),
    (Operator, "resume"): (lambda o: o.resume("paused"), "resume", "queue paused"),
    (Operator, "stripe"): (lambda o: o.stripe("mail", 2, create=True), "set", "queue mail"),
    (Operator, "set_queue"): (lambda o: o.set_queue("mail", ageing=None, create=True), "set", "queue mail"),
    (Operator, "remove_type"): (lambda o: o.remove_type("standing"), "remove", "type standing"),
    (Operator, "remove_queue"): (lambda o: o.remove_queue("paused"), "remove", "queue paused"),
    (Operator, "stop_archiving"): (lambda o: o.stop_archiving(), "remove", "archive history"),
    (Operator, "prune"): (lambda o: o.prune(Retention()), "prune", "tasks"),
    (Schedules, "reveal"): (lambda o: o.schedules.reveal("standing"), "reveal", "schedule standing"),
    (Limits, "set"): (
        lambda o: o.limits.set("calls", create=True, queue="mail", running=1),
        "create",
        "limit calls",
    ),
    (Limits, "change"): (lambda o: o.limits.change("standing", running=2), "set", "limit standing"),
    (Limits, "remove"): (lambda o: o.limits.remove("standing"), "remove", "limit standing"),
    (Alerts, "add"): (lambda o: o.alerts.add("many"), "create", "alert many"),
    (Alerts, "reveal"): (lambda o: o.alerts.reveal(), "reveal", "alert hooked"),
    (Alerts, "remove"): (lambda o: o.alerts.remove("standing"), "remove", "alert standing"),
    (Schedules, "add"): (lambda o: o.schedules.add("nightly", "t", "1h"), "create", "schedule nightly"),
    (Schedules, "change"): (lambda o: o.schedules.change("standing", rule="2h"), "set", "schedule standing"),
    (Schedules, "pause"): (lambda o: o.schedules.pause("standing"), "pause", "schedule standing"),
    (Schedules, "resume"): (lambda o: o.schedules.resume("paused"), "resume", "schedule paused"),
    (Schedules, "remove"): (lambda o: o.schedules.remove("standing"), "remove", "schedule standing"),
    (Keys, "create"): (lambda o: o.keys.create("web", scopes=["read"]), "create", "key "),
    (Keys, "revoke"): (revoke, "revoke", "key "),
    (Keys, "rotate"): (rotate, "rotate", "key "),
}


@pytest.fixture
async def app() -> App:
    """Something of each kind stands; nobody in particular has put it."""
    app = App("memory://", identity="the shop")
    await app.store.put(QueueSettings(name="paused", paused=True))
    await app.store.put(Archive(until=datetime(2999, 1, 1, tzinfo=UTC)))
    await Limits(app.store).set("standing", create=True, all=True, running=1)
    await Alerts(app.store).add("standing")
    await Alerts(app.store).add("hooked", webhook="https://hooks.example.org/T0")
    await app.store.put(DeclaredType(name="standing"))
    await Keys(app.store).create("standing", scopes=["read"])
    for name in ("standing", "paused"):
        await Schedules(app.store).add(name, "t", "1h")
    await Schedules(app.store).pause("paused")
    assert (await app.operator.audit()).items == ()
    return app


def test_every_verb_of_an_operator_is_accounted_for() -> None:
    verbs = {
        (kind, name)
        for kind in (Operator, Keys, Limits, Alerts, Schedules)
        for name, value in vars(kind).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }

    assert verbs == READS | OF_TASKS | set(APART) | set(DEEDS)


@pytest.mark.parametrize(
    ("deed", "action", "subject"), DEEDS.values(), ids=[f"{kind.__name__}.{name}" for kind, name in DEEDS]
)
async def test_every_change_leaves_a_line_with_who_and_why(
    app: App, deed: Deed, action: str, subject: str
) -> None:
    await deed(app.operator.acting_as(ANN))

    (line,) = (await app.operator.audit()).items
    assert (line.who, line.why, line.action, line.task_id) == ("ann", "too much mail", action, None)
    assert line.subject.startswith(subject)


async def test_who_is_not_said_is_the_program(app: App) -> None:
    await app.operator.pause("mail", create=True)

    (line,) = (await app.operator.audit()).items
    assert (line.who, line.why) == ("the shop", "")


async def test_a_line_reads_as_what_was_done(app: App) -> None:
    operator = app.operator
    await operator.pause("mail", create=True)
    await operator.set_queue("mail", ageing="5m")
    await operator.set_queue("mail", ageing="10m", paused=False)
    await operator.set_queue("mail", retention=Retention(dead=None))
    await operator.set_queue("mail", windows="mon-fri 22:00-06:00 Europe/Berlin")
    await operator.limits.change("standing", running=2)
    await operator.limits.set("calls", create=True, all=True, by="tenant", rate=0.5)
    await operator.schedules.pause("standing")
    await operator.schedules.resume("standing")
    await operator.alerts.remove("standing")
    await revoke(operator)
    await operator.prune(Retention(completed=timedelta(hours=36), cancelled=timedelta(0), dead=None))

    said = [summary(line) for line in (await operator.audit()).items][::-1]
    assert said[:-2] == [
        "paused queue mail",
        "set ageing of queue mail: none → 5m",
        "set queue mail: paused yes → no, ageing 5m → 10m",
        "set retention of queue mail: none → {completed 7d, cancelled 7d, dead for ever}",
        "set windows of queue mail: always → mon-fri 22:00-06:00 Europe/Berlin",
        "set running of limit standing: 1 → 2",
        "created limit calls: by tenant, rate 0.5",
        "paused schedule standing",
        "resumed schedule standing",
        "removed alert standing",
    ]
    assert said[-2].startswith("revoked key ")
    assert said[-1] == "pruned tasks: completed 36h, cancelled 0s, dead for ever"


async def test_a_line_about_a_task_names_its_type_and_failure(app: App) -> None:
    @app.task(max_attempts=1, secret=["card"])
    async def charge(card: str, n: int) -> None:
        raise ValueError(f"refused {card}")

    first = await charge.aenqueue(card="4242-4242", n=1)
    second = await charge.aenqueue(card="4242-4242", n=2)
    await drained(app)
    await app.operator.replay_one(first.id, by=ANN, payload='{"card":"1111-1111","n":3}')
    await app.operator.cancel_one(first.id, by=ANN)
    await app.operator.discard_one(second.id, by=ANN)

    discarded, cancelled, replayed = (await app.operator.audit()).items
    assert summary(replayed) == f"replayed task {first.id} ({charge.name}) with an edited payload"
    assert summary(cancelled) == f"cancelled task {first.id} ({charge.name})"
    assert summary(discarded) == (f"discarded task {second.id} ({charge.name}): ValueError: refused [secret]")
    assert "4242" not in discarded.detail


def test_lines_of_earlier_versions_can_still_be_read() -> None:
    line = Audit(id="a", at=datetime.now(UTC), who="ann", why="", action="put", subject="queue mail")

    assert summary(replace(line, detail='{"paused":true}')) == "set queue mail: paused yes"
    assert summary(replace(line, detail='{"weights":{"a":1,…')) == "set queue mail"
    assert summary(replace(line, action="cancel", task_id="t")) == "cancelled task t"


async def test_pruning_is_one_line_however_many_steps_it_takes(app: App) -> None:
    for _ in range(3):
        handle = await app.client.send("t")
        await app.operator.cancel_one(handle.id, by=ANN)

    assert await app.operator.prune(Retention(cancelled=timedelta(0))) == 3

    assert [line.action for line in (await app.operator.audit()).items] == ["prune", *["cancel"] * 3]


async def test_whoever_triggers_a_schedule_has_enqueued_its_task(app: App) -> None:
    task_id = await app.operator.acting_as(ANN).schedules.trigger("standing")

    assert (await app.operator.task(task_id)).enqueued_by == "ann, schedule standing"


async def test_what_was_not_there_to_be_removed_is_not_logged(app: App) -> None:
    for remove in (app.operator.alerts.remove, app.operator.limits.remove, app.operator.keys.revoke):
        with pytest.raises(NotFound):
            await remove("nothing")

    assert (await app.operator.audit()).items == ()


async def test_what_a_program_declares_is_not_an_act() -> None:
    app = App("memory://")
    app.queue("mail", ageing="5m")
    app.limit("calls", running=1)
    app.alert("many")

    @app.task(schedule="1h")
    async def hourly() -> None: ...

    await app.open()

    assert len(await app.operator.queues()) == 1
    assert len(await app.operator.schedules.list()) == 1
    assert (await app.operator.audit()).items == ()


def test_blocking_operators_act_as_somebody_too() -> None:
    operator = App("memory://").sync_operator.acting_as(ANN)
    operator.pause("mail", create=True)
    operator.limits.set("calls", create=True, queue="mail", running=1)

    assert {(line.who, line.subject) for line in operator.audit().items} == {
        ("ann", "queue mail"),
        ("ann", "limit calls"),
    }
