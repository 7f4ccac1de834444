"""Real workers and producers on one store, what is done to them, and their end by their process ids."""

import asyncio
import fcntl
import itertools
import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from time import monotonic
from typing import Any

from tests.system import program
from tests.system.checker import Report, check
from tests.system.full import SIGN
from tests.system.history import Acknowledged, Diary, Fault, History, Run, Tried, Wanted, now, read
from windlass import App, Filter, Page, State, StoreUnavailable
from windlass._policy.input.payload import encode_payload

ROOT = Path(__file__).parent.parent.parent
UNENDED = (State.SCHEDULED, State.READY, State.RUNNING, State.WAITING)
START_SECONDS = 20.0
BYSTANDER = "bystander"
LEASE = 4.0 if "PYTEST_XDIST_WORKER" in os.environ else 2.0
"""Short enough to be lost in a test, long enough not to be lost for want of a processor."""
QUICK: dict[str, Any] = {"lease": LEASE, "heartbeat": LEASE / 5, "grace": 5.0, "slots": 16, "processes": 1}


def wait_until(condition: Callable[[], bool], seconds: float, *, what: str, every: float = 0.05) -> None:
    """Look now and then until it is so; AssertionError if it is not in time."""
    deadline = monotonic() + seconds
    while not condition():
        assert monotonic() < deadline, f"not within {seconds:g} s: {what}"
        threading.Event().wait(every)


@dataclass
class Member:
    """A process of ours."""

    name: str
    process: subprocess.Popen[bytes]
    errors: Path
    _said_ready: bool = False

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def was_ready(self) -> bool:
        """Whether it had come so far as to handle signals; for one that has exited."""
        assert self.process.stdout is not None
        self._said_ready = self._said_ready or bool(self.process.stdout.readline())
        return self._said_ready

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if readable else b""
        self._said_ready = line == b"ready\n"
        assert self._said_ready, f"{self.name} did not start: {self.errors.read_text()[-2000:]}"


@dataclass
class Fleet:
    """Workers and producers in one folder."""

    folder: Path
    settings: dict[str, Any] = field(default_factory=lambda: dict(QUICK))
    workers: list[Member] = field(default_factory=list)
    gone: list[Member] = field(default_factory=list)
    package: Path | None = None  # a folder with another windlass, for the processes to import
    server: str = ""  # the URL of a store on a server; none: a file in the folder
    way: str = ""  # the URL by which the processes reach it, if that is another

    def __post_init__(self) -> None:
        self.app = App(self.server or f"sqlite:///{self.folder.absolute()}/windlass.db")
        self.app.setup()
        self._diary = Diary(self.folder / "faults.jsonl")
        self._wish_diary = Diary(self.folder / "wishes-here.jsonl")
        self._wishes = 0
        self._numbers = 0
        self._frozen: dict[str, int] = {}
        self._leaving: list[Member] = []  # asked to stop
        self._full_since: int | None = None

    # -- processes -----------------------------------------------------------------------------------

    def start(self, **settings: Any) -> Member:
        """One more worker, without waiting for it to be ready."""
        worker = self._spawn("work", self._new_name("w"), self.settings | settings)
        self.workers.append(worker)
        return worker

    def start_program(self, name: str) -> Member:
        """A worker of one of the programs in programs.py, or a keeper of none of them, without waiting."""
        if name == BYSTANDER:
            options = {key: self.settings[key] for key in ("lease", "mistake") if key in self.settings}
            member = self._spawn("keep", self._new_name(name), options)
        else:
            options = self.settings | {"program": name}
            member = self._spawn("work", self._new_name(name), options)
        self.workers.append(member)
        return member

    def _new_name(self, kind: str) -> str:
        self._numbers += 1
        return f"{kind}{self._numbers}"

    def start_ready(self, number: int = 1, **settings: Any) -> list[Member]:
        """So many workers, all of them ready."""
        started = [self.start(**settings) for _ in range(number)]
        for worker in started:
            worker.wait_ready()
        return started

    def produce(self, name: str, **options: Any) -> Member:
        """A producer; see produce.py for its options."""
        return self._spawn("produce", name, {"name": name, **options})

    def _spawn(self, module: str, name: str, options: dict[str, Any]) -> Member:
        errors = self.folder / f"errors-{name}.log"
        environment = os.environ | {
            "WINDLASS_TEST_FOLDER": str(self.folder),
            "WINDLASS_TEST_WORKER": name,
            "WINDLASS_TEST_STORE": self.way or self.server,
            "PYTHONWARNINGS": "ignore",
            "PYTHONPATH": str(self.package or os.environ.get("PYTHONPATH", "")),
        }
        with errors.open("ab") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", f"tests.system.{module}", json.dumps(options)],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if module in ("work", "keep") else subprocess.DEVNULL,
                stderr=file,
                start_new_session=True,
            )
        member = Member(name, process, errors)
        self.gone.append(member)  # so that close() ends it, whatever happens
        return member

    def enqueue(self, kind: str, number: int = 1, *, delay: float = 0.0, **payload: Any) -> list[str]:
        """Enqueue tasks of a kind from here, written down as a producer would; answers with their ids."""
        self._wishes += 1
        wish = f"here{self._wishes}"
        keys = [f"{wish}.{n}" for n in range(number)]
        spec = program.app.declared(f"{program.__name__}.{kind}")
        options: Any = {"delay": delay} if delay else {}
        want = Wanted(kind=kind, delay=delay)
        self._wish_diary.write(Tried(wish=wish, tasks=dict.fromkeys(keys, want)))
        payloads = [encode_payload({"key": key, **payload}) for key in keys]
        named = [self.app.builder.build(spec.name, one, options, spec.defaults) for one in payloads]
        ids = [handle.id for handle in self.app.sync_client.enqueue_tasks(named)]
        self._wish_diary.write(Acknowledged(wish=wish, ids=dict(zip(keys, ids, strict=True))))
        return ids

    def runs(self) -> list[Run]:
        """Every run so far."""
        history = History()
        history.hear(read(self.folder.glob("runs-*.jsonl")))
        return history.runs

    def running(self) -> int:
        """How many tasks run."""
        return len(self.app.sync_operator.find(Filter(states=(State.RUNNING,)), Page(limit=1000)).items)

    def states(self, ids: Iterable[str]) -> list[str]:
        """Where these tasks are in their lives."""
        return [self.app.sync_operator.task(task_id).state.value for task_id in ids]

    # -- faults --------------------------------------------------------------------------------------

    def kill(self, worker: Member) -> None:
        """The end without a warning."""
        self.note("kill", worker.name)
        worker.process.kill()
        worker.process.wait()
        self._forget(worker)

    def freeze(self, worker: Member) -> None:
        """It stands still, until it is thawed."""
        self._frozen[worker.name] = now()
        worker.process.send_signal(signal.SIGSTOP)

    def freeze_unlocked(self, worker: Member) -> None:
        """Freeze it at a moment when it does not hold the file: with it held, everybody would stand still."""
        for _ in range(50):
            self.freeze(worker)
            if self._is_writable():
                return
            self.thaw(worker)
        raise AssertionError(f"{worker.name} always holds the file")

    def _is_writable(self) -> bool:
        """Whether those who are not frozen can write."""
        file = self.folder / "windlass.db"
        with (
            (self.folder / "windlass.db-turn").open("rb") as turn,
            (self.folder / "windlass.db-lock").open("rb") as lock,
            closing(sqlite3.connect(file, timeout=1)) as db,
        ):
            try:
                wait_until(lambda: _try_lock(turn.fileno()), 1, what="the turn", every=0.005)
                wait_until(lambda: _try_lock(lock.fileno()), 1, what="the lock", every=0.005)
                db.execute("BEGIN EXCLUSIVE")
            except (AssertionError, sqlite3.OperationalError):
                return False
            db.execute("ROLLBACK")
        return True

    def thaw(self, worker: Member) -> None:
        """It goes on, and knows nothing of the time between."""
        worker.process.send_signal(signal.SIGCONT)
        # On a file it may have held the lock, and all have stood still; on a server it is alone.
        kind = "halt" if self.server else "freeze"
        self.note(kind, worker.name, began=self._frozen.pop(worker.name))

    def terminate(self, worker: Member, seconds: float = 30.0) -> int:
        """Ask it to stop, and wait; answers with its exit code."""
        worker.process.terminate()
        code = worker.process.wait(seconds)
        self._forget(worker)
        return code

    def ask_to_stop(self, worker: Member) -> None:
        """Ask it to stop, without waiting; drain() waits for it."""
        self.note("terminate", worker.name)
        worker.process.terminate()
        self._forget(worker)
        self._leaving.append(worker)

    def bury(self, worker: Member) -> int:
        """It has died by itself; answers with its exit code."""
        code = worker.process.wait(0)
        self.note("kill", worker.name)
        self._forget(worker)
        return code

    def kill_child(self, worker: Member) -> bool:
        """End one child process of a worker; says whether it had one."""
        for pid in _children(worker.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.note("child", worker.name)
                return True
        return False

    def fill_disk(self) -> None:
        """No file of the store can grow any more."""
        self._full_since = now()
        (self.folder / SIGN).touch()

    def free_disk(self) -> None:
        """There is space again."""
        (self.folder / SIGN).unlink()
        assert self._full_since is not None
        self.note("full", "", began=self._full_since)

    def note(self, kind: str, worker: str = "", *, began: int | None = None) -> None:
        """Write down that this was done, to a worker or to all, from then until now."""
        moment = now()
        self._diary.write(Fault(kind=kind, worker=worker, began=began or moment, ended=moment))

    def _forget(self, worker: Member) -> None:
        if worker in self.workers:
            self.workers.remove(worker)

    # -- the end -------------------------------------------------------------------------------------

    def leader(self) -> Member | None:
        """The worker whose keeper said last that it leads."""
        told = []
        for worker in self.workers:
            lines = worker.errors.read_text().splitlines()
            told += [(line[:23], worker.name) for line in lines if line.endswith("leads")]
        last = max(told, default=("", ""))[1]
        return next((worker for worker in self.workers if worker.name == last), None)

    def is_drained(self) -> bool:
        """Whether every task has ended, but for what waits for a dead one."""
        return self._answers(self._is_drained)

    def _is_drained(self) -> bool:
        left = self.app.sync_operator.find(Filter(states=UNENDED[:3]), Page(limit=1)).items
        if left:
            return False
        waiting = self.app.sync_operator.find(Filter(states=(State.WAITING,)), Page(limit=1000)).items
        return all(self._waits_for_dead(task.after) for task in waiting)

    def _waits_for_dead(self, ids: tuple[str, ...]) -> bool:
        found = self.app.sync_operator.find(Filter(ids=ids), Page(limit=100)).items
        return any(task.state is State.DEAD for task in found)

    def drain(self, seconds: float) -> None:
        """Until everything has ended and the sessions of the dead are forgotten; then stop the workers."""
        wait_until(self.is_drained, seconds, what="every task ends", every=0.2)
        are_forgotten = partial(self._answers, self._only_living_sessions)
        wait_until(are_forgotten, seconds, what="dead sessions are forgotten", every=0.2)
        for worker in list(self.workers):
            worker.process.terminate()
            self._forget(worker)
            self._leaving.append(worker)
        for worker in self._leaving:
            code = worker.process.wait(30)
            went_well = code == 0 or (code == -signal.SIGTERM and not worker.was_ready())
            assert went_well, f"{worker.name} exited with {code}: {worker.errors.read_text()[-2000:]}"

    def _answers(self, question: Callable[[], bool]) -> bool:
        """The answer; no, while a server that was maltreated does not answer."""
        try:
            return question()
        except StoreUnavailable:
            if not self.server:
                raise
            return False

    def _only_living_sessions(self) -> bool:
        living = {worker.name for worker in [*self.workers, *self._leaving] if worker.alive}
        return all(s.worker.name.split()[-1] in living for s in self.app.sync_operator.workers())

    def checked(self) -> Report:
        """The checker's report on all that happened here, which must be without a violation."""
        report = check(asyncio.run(self.history()))
        print(report.lines())  # noqa: T201 - seen if the test fails
        assert report.violations == []
        return report

    async def history(self) -> History:
        """All that happened here."""
        history = History()
        patterns = ("wishes-*.jsonl", "runs-*.jsonl", "faults.jsonl")
        history.hear(read([path for pattern in patterns for path in self.folder.glob(pattern)]))
        await history.ask(self.app)
        if self.server:
            await self.app.close()  # what belongs to this loop
        return history

    def close(self) -> None:
        """End every process that was started here and is still there."""
        for member in self.gone:
            if member.alive:
                with suppress(ProcessLookupError):
                    os.killpg(member.process.pid, signal.SIGCONT)
                    os.killpg(member.process.pid, signal.SIGKILL)
                member.process.wait(10)
            if member.process.stdout is not None:
                member.process.stdout.close()
        if self.server:
            asyncio.run(self.app.close())


class Schedule:
    """What is to be done when, in seconds from the beginning."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._began = 0.0

    def at(self, seconds: float, action: Callable[[], object]) -> None:
        """Do this then."""
        heappush(self._entries, (seconds, next(self._numbers), action))

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Do this so long from now; for actions that are being done."""
        self.at(monotonic() - self._began + seconds, action)

    def run(self) -> None:
        """All of it, in order; what is late is done at once."""
        self._began = monotonic()
        while self._entries:
            seconds, _, action = heappop(self._entries)
            threading.Event().wait(max(self._began + seconds - monotonic(), 0))
            action()


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(child) for child in path.read_text().split()]
    return found
