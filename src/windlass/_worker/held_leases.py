"""What this worker holds: its session, its leases, its claim numbers. Shared by loop and heartbeat thread."""

import threading
from collections.abc import Iterable

from .._ids import new_id
from .._model.lease import Claimed, Lease
from .._model.task import TaskId


class Holdings:
    """The truth that the heartbeat tells the store. Every change is one step under one lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fences: dict[TaskId, int] = {}
        self._awaited: set[int] = set()  # numbers of claims whose answer is still out
        self._number = 0
        self.session = new_id()
        self.opened = False  # whether the store has ever confirmed this session

    def next_claim(self) -> int:
        """The number of a claim about to be sent."""
        with self._lock:
            self._number += 1
            self._awaited.add(self._number)
            return self._number

    def claimed(self, number: int, claimed: Iterable[Claimed]) -> None:
        """A claim was answered: these leases are held from here on."""
        with self._lock:
            self._awaited.discard(number)
            for one in claimed:
                self._fences[one.task.id] = one.task.fence

    def given_up(self, number: int) -> None:
        """Nobody waits for this claim's answer any more: what it may have granted is to be handed back."""
        with self._lock:
            self._awaited.discard(number)

    def dropped(self, leases: Iterable[Lease]) -> None:
        """These leases have ended. A newer one of the same task stays."""
        with self._lock:
            for lease in leases:
                if self._fences.get(lease.task_id) == lease.fence:
                    del self._fences[lease.task_id]

    def confirm(self, session: str) -> None:
        """The store knows this session."""
        with self._lock:
            if session == self.session:
                self.opened = True

    def snapshot(self) -> tuple[str, bool, tuple[Lease, ...], int]:
        """Session, whether it is known, leases, highest claim number no longer awaited: at one moment."""
        with self._lock:
            through = min(self._awaited, default=self._number + 1) - 1
            held = tuple([Lease(task_id, fence) for task_id, fence in self._fences.items()])
            return self.session, self.opened, held, through

    def renew(self) -> None:
        """A fresh session that holds nothing."""
        with self._lock:
            self.session, self.opened = new_id(), False
            self._fences.clear()

    def __len__(self) -> int:
        return len(self._fences)
