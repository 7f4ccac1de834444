"""HeldLeases: the worker's session, its leases and its claim numbers, shared by loop and heartbeat thread."""

import threading
from collections.abc import Iterable

from .._ids import new_id
from .._model.lease import Claimed, Lease
from .._model.task import TaskId


class HeldLeases:
    """What the heartbeat reports to the store. Thread-safe: every change is one step under a lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fences: dict[TaskId, int] = {}
        self._pending_claims: set[int] = set()  # numbers of claims without a reply yet
        self._number = 0
        self.session = new_id()
        self.opened = False  # whether the store has ever confirmed this session

    def next_claim(self) -> int:
        """Return the number of a claim that is about to be sent."""
        with self._lock:
            self._number += 1
            self._pending_claims.add(self._number)
            return self._number

    def add(self, number: int, claimed: Iterable[Claimed]) -> None:
        """Hold the leases that came in reply to a claim."""
        with self._lock:
            self._pending_claims.discard(number)
            for one in claimed:
                self._fences[one.task.id] = one.task.fence

    def give_up(self, number: int) -> None:
        """Expect no reply to a claim any more: the store takes back what it may have granted."""
        with self._lock:
            self._pending_claims.discard(number)

    def drop(self, leases: Iterable[Lease]) -> None:
        """Forget leases that have ended. A newer lease of the same task stays."""
        with self._lock:
            for lease in leases:
                if self._fences.get(lease.task_id) == lease.fence:
                    del self._fences[lease.task_id]

    def confirm(self, session: str) -> None:
        """Record that the store knows the session, if it is still ours."""
        with self._lock:
            if session == self.session:
                self.opened = True

    def snapshot(self) -> tuple[str, bool, tuple[Lease, ...], int]:
        """Return session, whether it is open, its leases, and the highest claim number below any pending."""
        with self._lock:
            through = min(self._pending_claims, default=self._number + 1) - 1
            held = tuple([Lease(task_id, fence) for task_id, fence in self._fences.items()])
            return self.session, self.opened, held, through

    def renew(self) -> None:
        """Start a new session that holds nothing."""
        with self._lock:
            self.session, self.opened = new_id(), False
            self._fences.clear()

    def __len__(self) -> int:
        return len(self._fences)
