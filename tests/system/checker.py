"""Holds a history against the promises. It says how much happened, and what should not have happened."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

from msgspec import Struct, field

from tests.system.history import History, Run
from windlass import State, Task
from windlass._model.attempt import Attempt

ENDED = {State.COMPLETED, State.DEAD, State.CANCELLED}
NOT_COUNTED = {"snoozed", "interrupted", "unhandled"}
AGAIN = NOT_COUNTED | {"failed", "timedout", "crashed"}
MAY_DIE = {"doomed", "poison", "isolated_poison"}
LOST_WORKER = "WorkerLost"
SECOND = 1_000_000_000
FAR = 2**63
AFTERMATH = 30 * SECOND
"""How long after a freeze or a full disk its consequences may still come: a lease, and a new leader."""
OUTAGES = {"restart", "outage", "network"}
"""A server that is away, for everybody. Cut and ended connections are none: leases must survive those."""
OUTAGE_AFTERMATH = 5 * SECOND
UNDER_WAY = SECOND
"""How long after the end of a run its settlement may still be under way, to be held up by a fault."""


class Violation(Struct, frozen=True):
    """A promise that was not kept, by its rule, and about what."""

    rule: str
    about: str


class Report(Struct, kw_only=True):
    """How much happened, and which promises were broken."""

    numbers: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)

    def lines(self) -> str:
        """The report as a table, the violations by rule with a few examples each."""
        rows = [f"  {name:<40}{number:>8}" for name, number in sorted(self.numbers.items())]
        by_rule: dict[str, list[str]] = defaultdict(list)
        for violation in self.violations:
            by_rule[violation.rule].append(violation.about)
        rows += [f"  VIOLATED {rule}: {len(about)}: {about[:3]}" for rule, about in sorted(by_rule.items())]
        return "\n".join(rows)


def check(history: History) -> Report:
    """Every promise against the whole history, which must end after a drain."""
    return Checker(history).report()


class Checker:
    """The state of one check: the history, sorted by task."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.tasks = {task.id: task for task in history.tasks}
        self.keys: dict[str, list[Task]] = defaultdict(list)
        for task in history.tasks:
            self.keys[json.loads(task.payload).get("key", "")].append(task)
        self.wanted = {key: want for tried in history.tried for key, want in tried.tasks.items()}
        self.runs: dict[str, list[Run]] = defaultdict(list)
        for run in history.runs:
            self.runs[run.started.task_id].append(run)
        self._report = Report()
        self._numbers = self._report.numbers

    def report(self) -> Report:
        """Apply every rule."""
        for rule in (
            self._accepted,
            self._unexpected,
            self._keys_once,
            self._limbo,
            self._unknown_runs,
        ):
            for violation in rule():
                self._report.violations.append(violation)
        for task in self.history.tasks:
            life = Life(self, task)
            self._report.violations += life.violations()
            self._numbers.update(life.numbers)
        self._count()
        return self._report

    def _count(self) -> None:
        self._numbers["tasks"] = len(self.history.tasks)
        self._numbers["runs"] = len(self.history.runs)
        for task in self.history.tasks:
            self._numbers[f"ended {task.state}"] += 1
        for fault in self.history.faults:
            self._numbers[f"fault {fault.kind}"] += 1

    # -- what was asked for --------------------------------------------------------------------------

    def _accepted(self) -> Iterator[Violation]:
        """Every acknowledged enqueue is there, and what follows a task came once that had completed."""
        for acknowledged in self.history.acknowledged:
            for key, task_id in acknowledged.ids.items():
                self._numbers["acknowledged"] += 1
                want = self.wanted.get(key)
                if want is None:
                    yield Violation("acknowledged what nobody tried", key)
                elif want.follows is None:
                    if task_id not in self.tasks:
                        yield Violation("lost", key)
                else:
                    yield from self._followed(key, task_id, acknowledged.ids[want.follows])

    def _followed(self, key: str, task_id: str, predecessor: str) -> Iterator[Violation]:
        before = self.tasks.get(predecessor)
        completed = before is not None and before.state is State.COMPLETED
        if completed and task_id not in self.tasks:
            yield Violation("lost", f"{key}, whose predecessor completed")
        if not completed and task_id in self.tasks:
            yield Violation("came too soon", f"{key}, whose predecessor did not complete")

    def _unexpected(self) -> Iterator[Violation]:
        """Nothing that nobody tried, nothing that was refused, nothing twice, no half of a wish."""
        refused = {refused.wish for refused in self.history.refused}
        done = {acknowledged.wish for acknowledged in self.history.acknowledged}
        for key, tasks in self.keys.items():
            if key not in self.wanted:
                yield Violation("unexpected", key or str(tasks[0].id))
            if len(tasks) > 1:
                yield Violation("twice", f"{key} is {[task.id for task in tasks]}")
        for tried in self.history.tried:
            first = [key for key, want in tried.tasks.items() if want.follows is None]
            present = [key for key in first if key in self.keys]
            if tried.wish in refused and tried.wish not in done and present:
                yield Violation("refused but there", tried.wish)
            if present and len(present) < len(first):
                yield Violation("half enqueued", f"{tried.wish}: {len(present)} of {len(first)}")
            if present and tried.wish not in done:
                self._numbers["there though not acknowledged"] += len(present)

    def _keys_once(self) -> Iterator[Violation]:
        """One task for each tenant and idempotency key; the same answer whoever asks."""
        answers: dict[str, set[str]] = defaultdict(set)
        for acknowledged in self.history.acknowledged:
            for key, task_id in acknowledged.ids.items():
                answers[key].add(task_id)
        for key, ids in answers.items():
            if len(ids) > 1:
                yield Violation("one key, several answers", f"{key}: {sorted(ids)}")
        standing = Counter((t.tenant, t.idempotency_key) for t in self.history.tasks if t.idempotency_key)
        for (_, key), number in standing.items():
            if number > 1:
                yield Violation("one key, several tasks", f"{key}: {number}")

    # -- what is left --------------------------------------------------------------------------------

    def _limbo(self) -> Iterator[Violation]:
        """After the drain everything has ended, but for what waits for a dead task; nobody is left."""
        for task in self.history.tasks:
            before = [self.tasks[p].state for p in task.after if p in self.tasks]
            if task.state is State.WAITING and State.DEAD in before:
                self._numbers["waiting for a dead task"] += 1
            elif task.state not in ENDED:
                yield Violation("not ended", f"{task.id} is {task.state}")
            if task.state in ENDED and task.session is not None:
                yield Violation("leaked lease", f"{task.id} has ended and is held by {task.session}")
        for session in self.history.sessions:
            yield Violation("leaked session", f"{session.worker.name} {session.id}")

    def _unknown_runs(self) -> Iterator[Violation]:
        for task_id, runs in self.runs.items():
            if task_id not in self.tasks:
                yield Violation("ran what is not there", f"{task_id} on {runs[0].started.worker}")
        for ended in self.history.ends_without_start:
            yield Violation("ended without a start", ended.task_id)

    def excuse(self, worker: str, since: int, until: int) -> bool:
        """Whether something was done that explains why this worker lost leases between these moments.

        A worker that is frozen with the file locked, a full disk and a server that is away stop all of them
        for a while; a worker that is frozen on a server stops alone.
        """
        for fault in self.history.faults:
            if fault.kind == "kill" and fault.worker == worker:
                return True
            if fault.began > until + UNDER_WAY:
                continue
            alone = fault.kind == "halt" and fault.worker == worker
            if (fault.kind in ("freeze", "full") or alone) and fault.ended + AFTERMATH >= since:
                return True
            if fault.kind in OUTAGES and fault.ended + OUTAGE_AFTERMATH >= since:
                return True
        return False

    def excuse_run(self, run: Run) -> bool:
        """Whether this run's lease may have been lost."""
        until = run.ended.at if run.ended else FAR
        return self.excuse(run.started.worker, run.started.at, until)

    def moment(self, line: Attempt) -> int:
        """When a line was written, by the clock of the runs."""
        return int(line.finished_at.timestamp() * 1e9) - self.history.wall

    def excuse_line(self, line: Attempt) -> bool:
        """Whether the worker of this line may have been rescued from."""
        rescued = self.moment(line)
        return self.excuse(line.worker or "", rescued, rescued + SECOND)


class Life:
    """One task: its runs, its lines, and whether they tell the same story."""

    def __init__(self, checker: Checker, task: Task) -> None:
        self._checker = checker
        self.task = task
        self.runs = sorted(checker.runs[task.id], key=lambda run: (run.started.fence, run.started.at))
        self.lines: list[Attempt] = list(checker.history.attempts.get(task.id, ()))
        self.by_fence = {line.fence: line for line in self.lines}
        self.numbers: Counter[str] = Counter()
        key = json.loads(task.payload).get("key", "")
        want = checker.wanted.get(key)
        self.kind = want.kind if want else ""
        self.delay = want.delay if want else 0.0

    def violations(self) -> Iterator[Violation]:
        """What is wrong with this life."""
        for rule in (
            self._fences,
            self._attempts,
            self._starts,
            self._again,
            self._end,
            self._overlaps,
            self._early,
        ):
            for found, about in rule():
                yield Violation(found, f"{self.task.id} {self.kind}: {about}")

    def _fences(self) -> Iterator[tuple[str, str]]:
        """Fences only rise; at most one start for each."""
        fences = [run.started.fence for run in self.runs]
        if len(set(fences)) != len(fences):
            yield "one fence, two starts", str(fences)
        lines = [line.fence for line in self.lines]
        if lines != sorted(set(lines)):
            yield "fences do not rise", f"lines {lines}"
        if max([*fences, *lines], default=0) > self.task.fence:
            yield "fences do not rise", f"{fences} and {lines} beyond the task's {self.task.fence}"
        in_time = sorted(self.runs, key=lambda run: run.started.at)
        for earlier, later in pairwise(in_time):
            if later.started.fence < earlier.started.fence:
                if self._was_taken_over(later) and self._checker.excuse_run(later):
                    self.numbers["starts under a lease already lost"] += 1
                else:
                    yield "fences do not rise", f"{later.started.fence} started after {earlier.started.fence}"

    def _attempts(self) -> Iterator[tuple[str, str]]:
        """Each counted line is one attempt more; the task's own count is theirs; never more than allowed."""
        counted = 0
        for line in self.lines:
            counted += line.outcome not in NOT_COUNTED
            expected = counted + (line.outcome in NOT_COUNTED)
            if line.number != expected:
                yield "attempts not accounted for", f"fence {line.fence} says {line.number}, not {expected}"
                break
            if line.error is not None and line.error.type == LOST_WORKER:
                self.numbers["attempts lost with a worker"] += 1
                if not self._checker.excuse_line(line):
                    yield "rescued without cause", f"from {line.worker}"
        if self.task.attempt != counted:
            yield "attempts not accounted for", f"the task says {self.task.attempt}, its lines {counted}"
        if self.task.attempt > self.task.max_attempts:
            yield "too many attempts", f"{self.task.attempt} of {self.task.max_attempts}"

    def _starts(self) -> Iterator[tuple[str, str]]:
        """Each start has its line, or its lease was taken over for a reason."""
        for run in self.runs:
            started = run.started
            line = self.by_fence.get(started.fence)
            if line is not None:
                if line.worker != started.worker:
                    yield "settled by another", f"{started.worker} ran what {line.worker} settled"
                if run.ended and self._checker.moment(line) + SECOND // 4 < run.ended.at:
                    yield "settled before it ended", f"fence {started.fence} on {started.worker}"
            elif not self._was_taken_over(run):
                yield "start without a trace", f"fence {started.fence} on {started.worker}"
            elif not self._checker.excuse_run(run):
                yield "taken over without cause", f"fence {started.fence} from {started.worker}"
            elif not self._counted_after(run):
                yield "start not counted", f"fence {started.fence} on {started.worker}"

    def _was_taken_over(self, run: Run) -> bool:
        return run.started.fence not in self.by_fence and self.task.fence > run.started.fence

    def _counted_after(self, run: Run) -> bool:
        """Whether the next line after a start that has none says that its worker was lost."""
        for line in self.lines:
            if line.fence > run.started.fence:
                return line.error is not None and line.error.type == LOST_WORKER
        return self.task.cancel_requested

    def _again(self) -> Iterator[tuple[str, str]]:
        """A second run only after a failure, a release, a crash or a lost lease."""
        for earlier, later in pairwise(self.runs):
            line = self.by_fence.get(earlier.started.fence)
            why = line.outcome if line else "lost lease"
            self.numbers["runs again"] += 1
            self.numbers[f"runs again after {why}"] += 1
            if line is not None and line.outcome not in AGAIN:
                yield "ran after its end", f"fence {later.started.fence} after {why}"

    def _end(self) -> Iterator[tuple[str, str]]:
        """One end, the last thing that happened, with a run to show for it."""
        returned = [line.fence for line in self.lines if line.outcome == "returned"]
        if len(returned) > 1 or (returned and self.lines[-1].outcome != "returned"):
            yield "ended twice", f"returned at {returned}"
        if self.task.state is State.COMPLETED:
            finished = {run.started.fence for run in self.runs if run.ended and run.ended.how == "returned"}
            if self.task.fence not in returned:
                yield "completed without a line", f"fence {self.task.fence}"
            if self.task.fence not in finished:
                yield "completed without a run", f"fence {self.task.fence}"
            if self.kind == "doomed":
                yield "wrong end", "completed"
        if self.task.state is State.DEAD:
            if self.task.attempt < self.task.max_attempts:
                yield "died too soon", f"{self.task.attempt} of {self.task.max_attempts}"
            if self.kind not in MAY_DIE and not any(line.outcome == "crashed" for line in self.lines):
                yield "wrong end", "dead without a crash"

    def _overlaps(self) -> Iterator[tuple[str, str]]:
        """Two runs at once only where the first one's lease had been lost."""
        for earlier, later in pairwise(self.runs):
            if later.started.at < self._stopped_at(earlier):
                self.numbers["overlaps"] += 1
                if earlier.started.fence in self.by_fence:
                    yield "overlap", f"fence {later.started.fence} began before {earlier.started.fence} ended"

    def _stopped_at(self, run: Run) -> int:
        if run.ended is not None:
            return run.ended.at
        if run.started.fence in self.by_fence:  # its worker saw it die, in a child process, and lived on
            return run.started.at
        mine = [
            f.began
            for f in self._checker.history.faults
            if f.kind == "kill" and f.worker == run.started.worker
        ]
        return min(mine, default=run.started.at)

    def _early(self) -> Iterator[tuple[str, str]]:
        """Not before its time, by the store's clock."""
        due = self.task.created_at + timedelta(seconds=self.delay)
        if self.lines and self.lines[0].claimed_at < due:
            yield "early", f"{(due - self.lines[0].claimed_at).total_seconds():.3f} s before it was due"
