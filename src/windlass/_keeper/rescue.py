"""The chore of rescuing: take over the tasks of workers whose heartbeats have stopped."""

import asyncio
import logging
import random
from contextlib import suppress
from datetime import timedelta
from time import monotonic

from .._ids import new_id
from .._model.lease import CLOSE_TIMEOUT, NO_CLAIMS, Claimed, Heartbeat
from .._model.options import DeclaredType, by_name_or_alias
from .._model.outcome import Crashed, Outcome, Stopped, name_of
from .._model.record import Session, Worker
from .._model.task import Error
from .._model.verdict import Settlement
from .._policy.backoff import Delay
from .._policy.input.quote import counted
from .._policy.task_type import stored_backoff
from .._policy.verdict import decide
from .._store.protocol import Store, all_records
from ..errors import StoreError
from .clock_watch import ClockWatch

logger = logging.getLogger("windlass.keeper")

RESCUE_BATCH = 500


class RescueChore:
    """Rescues into the keeper's own session, which holds the leases until they are settled."""

    def __init__(self, store: Store, clock: ClockWatch, name: str, lease: timedelta) -> None:
        self._store = store
        self._clock = clock
        self._worker = Worker(name=f"keeper {name}".strip(), keeper=True)
        self._lease = lease
        self._session = new_id()
        self._beat_at = 0.0  # when the next heartbeat is due

    async def turn(self) -> float | None:
        """Rescue, unless the clock was just set forward; return the seconds to wait in that case."""
        if seconds := await self._clock.look():
            return seconds
        if monotonic() >= self._beat_at:
            await self._send_heartbeat()
        try:
            await rescue_silent(self._store, self._session)
        except Exception:
            # It is not known what this session holds now; once it has ended, that is rescued again.
            with suppress(StoreError):
                await self._store.remove(Session, self._renewed())
            raise
        return None

    async def close(self) -> None:
        """End the session, so that what it may hold is rescued by the next leader."""
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT):
                await self._store.remove(Session, self._renewed())

    def _renewed(self) -> str:
        """Choose another session for the next rescue; return the one so far."""
        ended, self._session = self._session, new_id()
        self._beat_at = 0.0
        return ended

    async def _send_heartbeat(self) -> None:
        await self._store.heartbeat(
            Heartbeat(
                session=self._session,
                worker=self._worker,
                lease_for=self._lease,
                opening=True,
                through=NO_CLAIMS,  # or the store would hand back what is about to be settled
            )
        )
        self._beat_at = monotonic() + self._lease.total_seconds() / 4


async def rescue_silent(store: Store, session: str) -> int:
    """Take over and settle the tasks of workers whose session has expired; return how many there were.

    A rescue is a claim: the lease is taken over, then policy decides and the ordinary settle applies it. If
    the keeper dies in between, its own session expires and the tasks are rescued again. The delays are those
    of each task's type as programs have published it: the keeper may belong to another program.
    """
    total = 0
    while rescued := await store.rescue(session, RESCUE_BATCH):
        types = by_name_or_alias(await all_records(store, DeclaredType))
        await store.settle([_settlement(one, stored_backoff(types.get(one.task.type))) for one in rescued])
        total += len(rescued)
    if total:
        logger.warning("rescued %s from workers without a heartbeat", counted(total, "task"))
    return total


def _settlement(claimed: Claimed, backoff: Delay) -> Settlement:
    task = claimed.task
    if task.cancel_requested:
        outcome: Outcome = Stopped()
    else:
        message = (
            f"worker {task.worker} sent no heartbeat during attempt {task.attempt} of {task.max_attempts}"
        )
        outcome = Crashed(error=Error(type="WorkerLost", message=message))
    verdict = decide(task, outcome, backoff, random.random())
    return Settlement(lease=claimed.lease, verdict=verdict, outcome=name_of(outcome))
