"""Ready tasks by queue, lane and key, each a heap in claim order."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from heapq import heappop, heappush
from typing import Any, TypeAlias

from ..._model.limit import Limit
from ..._model.queue import QueueSettings, level_of
from ..._model.state import State
from ..._model.task import Task, TaskId
from ..._policy.order.lanes import lane_of
from ..._policy.order.limits import Permit, PermitUsage, Subject, limit_key, limits_in_queue, permits_of
from ..rules import claim_planner
from ..rules.claim_planner import MAX_SIZE, Head, first_keys

Heap: TypeAlias = list[tuple[int, TaskId]]
"""Has stale entries, which are skipped when they come up."""

Bucket: TypeAlias = tuple[float, datetime]


class Ready:
    """The heaps of all queues."""

    def __init__(self, tasks: Mapping[TaskId, Task]) -> None:
        self._tasks = tasks
        self.now = datetime.min.replace(tzinfo=UTC)  # of the last claim: what has expired by then is stale
        self._heaps: dict[str, dict[str, dict[str, Heap]]] = {}  # queue -> lane -> key

    def put(self, task: Task, settings: QueueSettings | None, limits: Sequence[Limit]) -> None:
        """Add a ready task to its lane and key under the current settings and limits."""
        lane = lane_of(settings, task.tenant, task.priority)
        key = limit_key(limits_in_queue(limits, task.queue), subject_of(task)) if limits else ""
        heap = self._heaps.setdefault(task.queue, {}).setdefault(lane, {}).setdefault(key, [])
        heappush(heap, (task.rank, task.id))

    def clear(self, queue: str) -> None:
        """Empty a queue's heaps."""
        self._heaps.pop(queue, None)

    @property
    def queues(self) -> list[str]:
        """Return the queues that have had ready tasks."""
        return list(self._heaps)

    def single_heap(self, queue: str) -> Heap | None:
        """Return the only heap of a FIFO queue; None if it has lanes or keys."""
        lanes = self._heaps.get(queue)
        if lanes is None:
            return []
        keys = lanes.get("", {}) if len(lanes) == 1 else {}
        return keys.get("") if len(keys) == 1 else None

    def is_fresh(self, heap: Heap) -> bool:
        """Drop stale entries from the top; return whether any entry is left."""
        while heap:
            if self._is_valid(heap[0]):
                return True
            heappop(heap)
        return False

    def _is_valid(self, entry: tuple[int, TaskId]) -> bool:
        task = self._tasks.get(entry[1])
        if task is None or task.state is not State.READY or task.rank != entry[0]:
            return False
        return not task.is_expired(self.now)

    def _valid(self, heap: Heap) -> Iterable[Task]:
        return (self._tasks[entry[1]] for entry in heap if self._is_valid(entry))

    # -- answers to the claim planner ----------------------------------------------------------------

    def lanes(self, queue: str, first: str, below: str) -> list[str]:
        """Return the lanes with ready tasks, in order."""
        lanes = self._heaps.get(queue, {})
        return sorted(
            lane for lane in lanes if first <= lane < below and any(map(self.is_fresh, lanes[lane].values()))
        )

    def size(self, queue: str, lane: str) -> int:
        """Count the tasks of a lane, up to MAX_SIZE."""
        return min(sum(1 for heap in self._heaps[queue][lane].values() for _ in self._valid(heap)), MAX_SIZE)

    def firsts(self, queue: str, lane: str, takes: Callable[[str], bool]) -> dict[str, Task]:
        """Return the first task of each key of a lane, of those whose types are taken."""
        keys = self._heaps.get(queue, {}).get(lane, {})
        firsts = {key: self._first(heap, takes) for key, heap in keys.items()}
        return {key: task for key, task in firsts.items() if task is not None}

    def _first(self, heap: Heap, takes: Callable[[str], bool]) -> Task | None:
        if not self.is_fresh(heap):
            return None
        first = self._tasks[heap[0][1]]
        if takes(first.type):
            return first
        return min((task for task in self._valid(heap) if takes(task.type)), key=_order, default=None)

    def take(self, queue: str, lane: str, key: str, number: int, takes: Callable[[str], bool]) -> list[Task]:
        """Take the first tasks of a key off its heap, of those whose types are taken."""
        heap = self._heaps.get(queue, {}).get(lane, {}).get(key, [])
        found: dict[TaskId, Task] = {}
        others: Heap = []
        while len(found) < number and self.is_fresh(heap):
            entry = heappop(heap)
            task = self._tasks[entry[1]]
            if takes(task.type):
                found[task.id] = task
            else:
                others.append(entry)
        for entry in others:
            heappush(heap, entry)
        return list(found.values())

    def all_of(self, queue: str) -> list[Task]:
        """Return every ready task of a queue, in order."""
        heaps = [heap for keys in self._heaps.get(queue, {}).values() for heap in keys.values()]
        found = {task.id: task for heap in heaps for task in self._valid(heap)}
        return sorted(found.values(), key=_order)


class Answers:
    """Answers the claim planner's questions during one claim."""

    def __init__(
        self,
        ready: Ready,
        running: Sequence[Task],
        buckets: Mapping[str, Bucket],
        takes: Callable[[str], bool],
    ) -> None:
        """`takes`: whether the claim is for tasks of a type."""
        self._ready = ready
        self._takes = takes
        self._running = running
        self._buckets = buckets
        self.taken: dict[TaskId, Task] = {}  # taken off the heaps during this claim

    def answer(self, question: claim_planner.Question) -> Any:
        """Answer a question of the planner."""
        match question:
            case claim_planner.Lanes(queue, first, below, limit):
                return self._ready.lanes(queue, first, below)[:limit]
            case claim_planner.Sizes(queue, first, below):
                lanes = self._ready.lanes(queue, first, below)
                return {lane: self._ready.size(queue, lane) for lane in lanes}
            case claim_planner.Keys(queue, after):
                return [
                    _head(lane, key, firsts[key])
                    for lane, behind in after.items()
                    if (firsts := self._ready.firsts(queue, lane, self._takes))
                    for key in first_keys(sorted(firsts), behind)
                ]
            case claim_planner.Counts(permits):
                return {permit.key: self._use(permit) for permit in permits}
            case claim_planner.Heads(queue, numbers):
                return [
                    _head(lane, key, self._keep(task))
                    for (lane, key), number in numbers.items()
                    for task in self._ready.take(queue, lane, key, number, self._takes)
                ]
            case claim_planner.LevelHeads(queue, level, number):
                found = [
                    task
                    for task in self._ready.all_of(queue)
                    if level_of(task.priority) is level and self._takes(task.type)
                ]
                return [_head("", "", task) for task in found[:number]]

    def _keep(self, task: Task) -> Task:
        self.taken[task.id] = task
        return task

    def _use(self, permit: Permit) -> PermitUsage:
        holding = sum(permit in permits_of([permit.limit], subject_of(task)) for task in self._running)
        tokens, at = self._buckets.get(permit.key, (None, None))
        return PermitUsage(holding, tokens, at)


def _order(task: Task) -> tuple[int, TaskId]:
    return task.rank, task.id


def subject_of(task: Task) -> Subject:
    """Return the fields of a task that limits go by."""
    return Subject(task.queue, task.type, task.tenant, task.payload)


def _head(lane: str, key: str, task: Task) -> Head:
    return Head(lane, key, task.rank, task.id, subject_of(task), task)
