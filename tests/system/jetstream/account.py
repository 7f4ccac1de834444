"""What clients of a store were told, and whether the store stands by it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic

from tests.system.checker import Violation
from windlass._model.filter import Filter, Page
from windlass._model.lease import Claimed, Lease
from windlass._model.state import State
from windlass._model.task import Enqueued, NewTask, Task, TaskId
from windlass._model.verdict import Bury, Complete, Receipt, Settlement, Verdict
from windlass._store.protocol import Store

GAP_SECONDS = 0.5
ALL = Page(limit=1000)


@dataclass
class Account:
    """Facts that must never change. Violations are noted as they are seen."""

    acknowledged: set[TaskId] = field(default_factory=set)
    keys: dict[str, TaskId] = field(default_factory=dict)
    claims: dict[Lease, str] = field(default_factory=dict)
    ends: dict[Lease, Verdict] = field(default_factory=dict)  # settlements that were applied
    numbers: Counter[str] = field(default_factory=Counter)
    gaps: list[float] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    _heard_at: float = 0.0

    def heard(self) -> None:
        """Note that the store has answered, and a long time since its last answer."""
        now = monotonic()
        if self._heard_at and now - self._heard_at > GAP_SECONDS:
            self.gaps.append(now - self._heard_at)
        self._heard_at = now

    def enqueued(self, batch: Sequence[NewTask], told: Sequence[Enqueued]) -> None:
        for new, got in zip(batch, told, strict=True):
            if new.idempotency_key is None:
                if got.id != new.id:
                    self._complain("other id", f"{new.id} was enqueued as {got.id}")
            elif self.keys.setdefault(new.idempotency_key, got.id) != got.id:
                known = self.keys[new.idempotency_key]
                self._complain("key doubled", f"{new.idempotency_key} was given to {known}, then to {got.id}")
            self.acknowledged.add(got.id)

    def read(self, ids: Sequence[TaskId], found: Sequence[TaskId]) -> None:
        """Note a read of tasks that were acknowledged before it."""
        self.numbers["reads"] += 1
        for task_id in set(ids) - set(found):
            self._complain("stale read", task_id)

    def claimed(self, who: str, claimed: Sequence[Claimed]) -> None:
        for one in claimed:
            if one.lease in self.claims:
                self._complain("lease doubled", f"{one.lease}: to {self.claims[one.lease]}, then to {who}")
            self.claims[one.lease] = who
            self.numbers["claims"] += 1

    def settled(self, batch: Sequence[Settlement], receipts: Sequence[Receipt]) -> None:
        for one, receipt in zip(batch, receipts, strict=True):
            self.numbers[f"settlements {receipt.value}"] += 1
            if receipt is Receipt.LOST:
                continue
            if one.lease in self.ends:
                self._complain("settled twice", str(one.lease))
            self.ends[one.lease] = one.verdict

    def _complain(self, rule: str, about: str) -> None:
        self.violations.append(Violation(rule, about))

    def judge(self, tasks: Mapping[TaskId, Task]) -> list[Violation]:
        """Compare with all that the store has; returns what is wrong."""
        return [*self.violations, *self._lost(tasks), *self._undone(tasks), *self._doubled(tasks)]

    def _lost(self, tasks: Mapping[TaskId, Task]) -> Iterator[Violation]:
        for task_id in self.acknowledged - set(tasks):
            yield Violation("lost", task_id)

    def _undone(self, tasks: Mapping[TaskId, Task]) -> Iterator[Violation]:
        for lease in self.claims:
            task = tasks.get(lease.task_id)
            if task is not None and task.fence < lease.fence:
                yield Violation("lease undone", f"{lease}: the task is at fence {task.fence}")
        for lease, verdict in self.ends.items():
            task = tasks.get(lease.task_id)
            if task is not None and not _stands(task, lease, verdict):
                yield Violation("settlement undone", f"{lease}: {verdict}, but the task is {task.state}")

    def _doubled(self, tasks: Mapping[TaskId, Task]) -> Iterator[Violation]:
        keys = Counter(task.idempotency_key for task in tasks.values() if task.idempotency_key)
        for key, number in keys.items():
            if number > 1:
                yield Violation("key doubled", f"{key} has {number} tasks")
        completed = Counter(lease.task_id for lease, end in self.ends.items() if isinstance(end, Complete))
        for task_id, number in completed.items():
            if number > 1:
                yield Violation("completed twice", f"{task_id}, {number} times")


def _stands(task: Task, lease: Lease, verdict: Verdict) -> bool:
    match verdict:
        case Complete():
            return task.state is State.COMPLETED and task.fence == lease.fence
        case Bury():
            return task.state is State.DEAD and task.fence == lease.fence
        case _:
            return task.fence >= lease.fence


async def every_task(store: Store) -> dict[TaskId, Task]:
    """Every task of a store, by id."""
    tasks: dict[TaskId, Task] = {}
    page = ALL
    while True:
        found = await store.find(Filter(), page)
        tasks.update((task.id, task) for task in found.items)
        if found.cursor is None:
            return tasks
        page = Page(limit=ALL.limit, cursor=found.cursor)
