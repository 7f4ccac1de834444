"""The checker itself: it lets a sound history pass, and finds each violation that is put into one."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from tests.system.checker import Report, check
from tests.system.history import Acknowledged, Ended, Fault, History, Refused, Started, Tried, Wanted
from windlass import State, Task
from windlass._model.attempt import Attempt
from windlass._model.record import Session, Worker
from windlass._model.task import Error

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
LOST = Error(type="WorkerLost", message="fell silent")
BOOM = Error(type="Unlucky", message="boom")


class Sound:
    """A history in which everything went as it should; scenes are added one by one."""

    def __init__(self) -> None:
        self.history = History(wall=int(BEGAN.timestamp() * 1e9))
        self.notes: list[Started | Ended] = []
        self.moment = 0

    def task(self, key: str, **changes: object) -> None:
        """A task that stands as completed at its first attempt, unless changes say otherwise."""
        fields: dict[str, object] = {
            "id": f"id-{key}",
            "type": "t",
            "payload": json.dumps({"key": key}).encode(),
            "root": f"id-{key}",
            "queue": "default",
            "tenant": "",
            "priority": 0,
            "boost": 0,
            "state": State.COMPLETED,
            "attempt": 1,
            "max_attempts": 3,
            "fence": 1,
            "run_at": BEGAN,
            "created_at": BEGAN,
        }
        self.history.tasks.append(Task(**{**fields, **changes}))

    def wish(self, key: str, *, acknowledged: bool = True, **wanted: object) -> None:
        self.history.tried.append(Tried(wish=key, tasks={key: Wanted(**{"kind": "quick", **wanted})}))
        if acknowledged:
            self.history.acknowledged.append(Acknowledged(wish=key, ids={key: f"id-{key}"}))

    def run(self, key: str, fence: int = 1, *, worker: str = "w1", how: str | None = "returned") -> None:
        about = {"task_id": f"id-{key}", "fence": fence, "worker": worker}
        self.moment += 10
        self.notes.append(Started(attempt=1, at=self.moment, **about))
        if how is not None:
            self.moment += 10
            self.notes.append(Ended(at=self.moment, how=how, **about))

    def line(
        self, key: str, fence: int = 1, number: int = 1, outcome: str = "returned", **more: object
    ) -> None:
        fields: dict[str, object] = {
            "task_id": f"id-{key}",
            "number": number,
            "fence": fence,
            "worker": "w1",
            "claimed_at": BEGAN,
            "finished_at": BEGAN,
            "duration": 0.0,
            "outcome": outcome,
        }
        lines = self.history.attempts.setdefault(f"id-{key}", [])
        lines.append(Attempt(**{**fields, **more}))  # type: ignore[attr-defined]

    def fault(self, kind: str, worker: str, at: int | None = None) -> None:
        moment = self.moment if at is None else at
        self.history.faults.append(Fault(kind=kind, worker=worker, began=moment, ended=moment))

    def done(self, key: str, **wanted: object) -> None:
        """The usual: wished, run, settled, completed."""
        self.wish(key, **wanted)
        self.task(key)
        self.run(key)
        self.line(key)

    def change(self, key: str, **changes: object) -> None:
        self.history.tasks = [
            replace(task, **changes) if task.id == f"id-{key}" else task for task in self.history.tasks
        ]

    def crashed(self, key: str) -> None:
        """Its worker was killed under it; rescued, and completed at the second attempt."""
        self.wish(key)
        self.task(key, attempt=2, fence=3)
        self.run(key, 1, how=None)
        self.fault("kill", "w1")
        self.line(key, 2, 1, "crashed", error=LOST)
        self.run(key, 3, worker="w2")
        self.line(key, 3, 2, worker="w2")

    def report(self) -> Report:
        self.history.hear(self.notes)
        return check(self.history)


@pytest.fixture
def sound() -> Sound:
    """One plain task, one that failed first, one that snoozed, one whose worker was killed, one dead."""
    sound = Sound()
    sound.done("plain")
    sound.wish("failed")
    sound.task("failed", attempt=2, fence=2)
    sound.run("failed", 1, how="Unlucky")
    sound.line("failed", 1, 1, "failed", error=BOOM)
    sound.run("failed", 2)
    sound.line("failed", 2, 2)
    sound.wish("drowsy")
    sound.task("drowsy", attempt=1, fence=2)
    sound.run("drowsy", 1, how="Snooze")
    sound.line("drowsy", 1, 1, "snoozed")
    sound.run("drowsy", 2)
    sound.line("drowsy", 2, 1)
    sound.crashed("crashed")
    sound.wish("dead", kind="doomed")
    sound.task("dead", state=State.DEAD, attempt=1, max_attempts=1)
    sound.run("dead", how="Unlucky")
    sound.line("dead", 1, 1, "failed", error=BOOM)
    return sound


def test_a_sound_history_passes(sound: Sound) -> None:
    report = sound.report()

    assert report.violations == []
    assert report.numbers["tasks"] == 5
    assert report.numbers["runs again"] == 3
    assert report.numbers["attempts lost with a worker"] == 1


def test_what_was_not_acknowledged_may_be_there_or_not(sound: Sound) -> None:
    sound.wish("maybe", acknowledged=False)
    sound.wish("perhaps", acknowledged=False)
    sound.task("perhaps")
    sound.run("perhaps")
    sound.line("perhaps")

    report = sound.report()

    assert report.violations == []
    assert report.numbers["there though not acknowledged"] == 1


def test_a_chain_that_broke_with_its_first_task_passes(sound: Sound) -> None:
    sound.history.tried.append(
        Tried(wish="c", tasks={"dead": Wanted(kind="doomed"), "c2": Wanted(kind="quick", follows="dead")})
    )
    sound.history.acknowledged.append(Acknowledged(wish="c", ids={"dead": "id-dead", "c2": "id-c2"}))

    assert sound.report().violations == []


def test_a_frozen_worker_may_overlap(sound: Sound) -> None:
    sound.wish("frozen")
    sound.task("frozen", attempt=2, fence=3)
    about = {"task_id": "id-frozen", "fence": 1, "worker": "w1"}
    sound.notes.append(Started(attempt=1, at=1000, **about))
    sound.notes.append(Started(attempt=2, at=2000, task_id="id-frozen", fence=3, worker="w2"))
    sound.notes.append(Ended(at=2010, how="returned", task_id="id-frozen", fence=3, worker="w2"))
    sound.notes.append(Ended(at=3000, how="returned", **about))
    sound.line("frozen", 2, 1, "crashed", error=LOST)
    sound.line("frozen", 3, 2, worker="w2")
    sound.fault("freeze", "w1", at=1100)

    report = sound.report()

    assert report.violations == []
    assert report.numbers["overlaps"] == 1


def test_a_worker_that_is_killed_long_after_its_child_does_not_overlap(sound: Sound) -> None:
    sound.wish("alone")
    sound.task("alone", attempt=2, fence=2)
    sound.run("alone", 1, how=None, worker="w5")
    sound.fault("child", "w5")
    sound.line("alone", 1, 1, "crashed", worker="w5", error=Error(type="ProcessDied", message="killed"))
    sound.run("alone", 2, worker="w2")
    sound.line("alone", 2, 2, worker="w2")
    sound.moment += 1000
    sound.fault("kill", "w5")

    report = sound.report()

    assert report.violations == []
    assert report.numbers["overlaps"] == 0


EXPLAINS = [
    ("kill", "w9", True),
    ("kill", "w2", False),
    ("freeze", "w2", True),  # it may have held the file
    ("halt", "w9", True),
    ("halt", "w2", False),
    ("full", "", True),
    ("restart", "", True),
    ("outage", "", True),
    ("network", "", True),
    ("cut", "", False),
    ("cut after commit", "", False),
    ("ended connections", "", False),
    ("terminate", "w9", False),
]


@pytest.mark.parametrize(("kind", "worker", "explains"), EXPLAINS)
def test_a_lost_lease_is_explained_by_what_can_cost_it(kind: str, worker: str, explains: bool) -> None:
    sound = Sound()
    sound.wish("lost")
    sound.task("lost", attempt=2, fence=3)
    sound.run("lost", 1, worker="w9", how=None)
    sound.fault(kind, worker)
    sound.line("lost", 2, 1, "crashed", error=LOST, worker="w9")
    sound.run("lost", 3, worker="w2")
    sound.line("lost", 3, 2, worker="w2")

    rules = {violation.rule for violation in sound.report().violations}

    assert rules == (set() if explains else {"rescued without cause", "taken over without cause"})


def test_an_outage_long_ago_explains_nothing() -> None:
    sound = Sound()
    sound.fault("restart", "", at=0)
    sound.moment = 60 * 10**9
    sound.wish("lost")
    sound.task("lost", attempt=2, fence=3)
    sound.run("lost", 1, worker="w9", how=None)
    later = BEGAN + timedelta(seconds=61)
    sound.line("lost", 2, 1, "crashed", error=LOST, worker="w9", claimed_at=later, finished_at=later)
    sound.moment += 2 * 10**9
    sound.run("lost", 3, worker="w2")
    later += timedelta(seconds=2)
    sound.line("lost", 3, 2, worker="w2", claimed_at=later, finished_at=later)

    rules = {violation.rule for violation in sound.report().violations}

    assert {"rescued without cause", "taken over without cause"} <= rules


def _lost(sound: Sound) -> None:
    sound.history.tasks = [task for task in sound.history.tasks if task.id != "id-plain"]
    sound.notes = [note for note in sound.notes if note.task_id != "id-plain"]


def _chain_lost(sound: Sound) -> None:
    sound.history.tried.append(
        Tried(wish="c", tasks={"plain": Wanted(kind="quick"), "c2": Wanted(kind="quick", follows="plain")})
    )
    sound.history.acknowledged.append(Acknowledged(wish="c", ids={"plain": "id-plain", "c2": "id-c2"}))


def _chain_too_soon(sound: Sound) -> None:
    sound.history.tried.append(
        Tried(wish="c", tasks={"dead": Wanted(kind="doomed"), "c2": Wanted(kind="quick", follows="dead")})
    )
    sound.history.acknowledged.append(Acknowledged(wish="c", ids={"dead": "id-dead", "c2": "id-c2"}))
    sound.task("c2")
    sound.run("c2")
    sound.line("c2")


def _unexpected(sound: Sound) -> None:
    sound.task("stranger")
    sound.run("stranger")
    sound.line("stranger")


def _twice(sound: Sound) -> None:
    sound.task("plain", id="id-again")
    sound.history.attempts["id-again"] = [replace(sound.history.attempts["id-plain"][0], task_id="id-again")]
    sound.notes.append(Started(task_id="id-again", fence=1, attempt=1, worker="w1", at=5000))
    sound.notes.append(Ended(task_id="id-again", fence=1, worker="w1", at=5001, how="returned"))


def _half(sound: Sound) -> None:
    both = {"plain": Wanted(kind="quick"), "other": Wanted(kind="quick")}
    sound.history.tried.append(Tried(wish="half", tasks=both))


def _refused(sound: Sound) -> None:
    sound.wish("no", acknowledged=False)
    sound.history.refused.append(Refused(wish="no"))
    sound.task("no")
    sound.run("no")
    sound.line("no")


def _two_answers(sound: Sound) -> None:
    sound.history.acknowledged.append(Acknowledged(wish="plain", ids={"plain": "id-failed"}))


def _two_tasks_a_key(sound: Sound) -> None:
    sound.change("plain", idempotency_key="k")
    sound.change("failed", idempotency_key="k")


def _second_start(sound: Sound) -> None:
    sound.run("plain", worker="w1")


def _falling_fence(sound: Sound) -> None:
    sound.notes.append(Started(task_id="id-failed", fence=1, attempt=1, worker="w1", at=9000))


def _fence_beyond(sound: Sound) -> None:
    sound.run("plain", 7)


def _uncounted(sound: Sound) -> None:
    sound.change("crashed", attempt=1)


def _crash_without_line(sound: Sound) -> None:
    """A crash that did not count: its rescue left no line, and the next attempt has the same number."""
    sound.history.attempts["id-crashed"] = [
        replace(sound.history.attempts["id-crashed"][1], number=1),
    ]
    sound.change("crashed", attempt=1)


def _too_many(sound: Sound) -> None:
    sound.change("failed", max_attempts=1)


def _rescued_without_cause(sound: Sound) -> None:
    sound.history.faults.clear()


def _start_without_trace(sound: Sound) -> None:
    sound.history.attempts["id-dead"] = []
    sound.change("dead", attempt=0, max_attempts=0)


def _settled_by_another(sound: Sound) -> None:
    sound.history.attempts["id-plain"] = [replace(sound.history.attempts["id-plain"][0], worker="w9")]


def _ran_after_end(sound: Sound) -> None:
    sound.change("plain", fence=2, attempt=2)
    sound.run("plain", 2)
    sound.line("plain", 2, 2)


def _never_ran(sound: Sound) -> None:
    sound.notes = [note for note in sound.notes if note.task_id != "id-plain"]


def _died_too_soon(sound: Sound) -> None:
    sound.change("dead", max_attempts=2)


def _wrong_end(sound: Sound) -> None:
    sound.history.tried = [
        replace(tried, tasks={"dead": Wanted(kind="quick")}) if tried.wish == "dead" else tried
        for tried in sound.history.tried
    ]


def _overlap(sound: Sound) -> None:
    ends = [note for note in sound.notes if note.task_id == "id-failed" and isinstance(note, Ended)]
    sound.notes[sound.notes.index(ends[0])] = replace(ends[0], at=10**6)


def _limbo(sound: Sound) -> None:
    sound.wish("stuck")
    sound.task("stuck", state=State.RUNNING, attempt=0, fence=0)


def _waits_for_ever(sound: Sound) -> None:
    sound.wish("stuck")
    sound.task("stuck", state=State.WAITING, attempt=0, fence=0, after=("id-plain",))


def _leaked_session(sound: Sound) -> None:
    worker = Worker(name="w1")
    session = Session(id="s", worker=worker, started_at=BEGAN, beat_at=BEGAN, expires_at=BEGAN)
    sound.history.sessions.append(session)


def _leaked_lease(sound: Sound) -> None:
    sound.change("plain", session="s")


def _early(sound: Sound) -> None:
    sound.history.tried[0] = replace(sound.history.tried[0], tasks={"plain": Wanted(kind="quick", delay=5)})


def _end_without_start(sound: Sound) -> None:
    sound.notes.append(Ended(task_id="id-plain", fence=1, worker="w5", at=1, how="returned"))


def _settled_too_soon(sound: Sound) -> None:
    ends = [note for note in sound.notes if note.task_id == "id-plain" and isinstance(note, Ended)]
    sound.notes[sound.notes.index(ends[0])] = replace(ends[0], at=10**9)


SEEDED: list[tuple[Callable[[Sound], None], str]] = [
    (_lost, "lost"),
    (_chain_lost, "lost"),
    (_chain_too_soon, "came too soon"),
    (_unexpected, "unexpected"),
    (_twice, "twice"),
    (_half, "half enqueued"),
    (_refused, "refused but there"),
    (_two_answers, "one key, several answers"),
    (_two_tasks_a_key, "one key, several tasks"),
    (_second_start, "one fence, two starts"),
    (_falling_fence, "fences do not rise"),
    (_fence_beyond, "fences do not rise"),
    (_uncounted, "attempts not accounted for"),
    (_crash_without_line, "start not counted"),
    (_too_many, "too many attempts"),
    (_rescued_without_cause, "rescued without cause"),
    (_rescued_without_cause, "taken over without cause"),
    (_start_without_trace, "start without a trace"),
    (_settled_by_another, "settled by another"),
    (_settled_too_soon, "settled before it ended"),
    (_ran_after_end, "ran after its end"),
    (_ran_after_end, "ended twice"),
    (_never_ran, "completed without a run"),
    (_died_too_soon, "died too soon"),
    (_wrong_end, "wrong end"),
    (_overlap, "overlap"),
    (_limbo, "not ended"),
    (_waits_for_ever, "not ended"),
    (_leaked_session, "leaked session"),
    (_leaked_lease, "leaked lease"),
    (_early, "early"),
    (_end_without_start, "ended without a start"),
]


@pytest.mark.parametrize(("seed", "rule"), SEEDED, ids=[f"{s.__name__[1:]}: {r}" for s, r in SEEDED])
def test_a_seeded_violation_is_found(sound: Sound, seed: Callable[[Sound], None], rule: str) -> None:
    seed(sound)

    assert rule in {violation.rule for violation in sound.report().violations}


def test_a_task_that_waits_for_a_dead_one_is_not_in_limbo(sound: Sound) -> None:
    sound.wish("waits")
    sound.task("waits", state=State.WAITING, attempt=0, fence=0, after=("id-dead",))

    assert sound.report().violations == []


def test_a_task_on_time_is_not_early(sound: Sound) -> None:
    sound.wish("later", delay=5)
    sound.task("later")
    sound.run("later")
    sound.line("later", claimed_at=BEGAN + timedelta(seconds=5))

    assert sound.report().violations == []
