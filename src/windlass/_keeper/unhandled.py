"""The chore of unhandled types: bury tasks that no live worker could run, once that has lasted for a day."""

from collections import defaultdict
from contextlib import suppress
from datetime import timedelta

from msgspec.structs import replace

from .._ids import new_id
from .._model.filter import Dimension, Filter
from .._model.lease import Claim, Claimed, Heartbeat
from .._model.outcome import Unhandled, name_of
from .._model.record import Session, Worker
from .._model.state import State
from .._model.verdict import Settlement
from .._policy.live_workers import LiveWorkers
from .._policy.task_type import stored_backoff
from .._policy.verdict import decide, unhandled_for
from .._store.protocol import Store, all_records
from ..errors import StoreError

UNHANDLED_BATCH = 500

_READY = Filter(states=(State.READY,))


class UnhandledTasks:
    """Claims ready tasks of types that no worker of their queue has a handler for; settles them as unhandled.

    Workers hand such tasks back unchanged, so this is where the time is counted. A claim of these types takes
    nothing from any worker.
    """

    def __init__(self, store: Store, name: str, lease: timedelta) -> None:
        self._store = store
        self._worker = Worker(name=f"keeper {name}".strip(), keeper=True)
        self._lease = lease

    async def turn(self) -> None:
        """Look at all queues once."""
        types = await self._unhandled_types()
        if not types:
            return
        session = _Session(self._store, self._worker, self._lease)
        try:
            for queue in sorted(types):
                while claimed := await session.claim(queue, tuple(sorted(types[queue]))):
                    await self._store.settle(list(map(_settlement, claimed)))
        finally:
            with suppress(StoreError):
                await session.end()

    async def _unhandled_types(self) -> dict[str, set[str]]:
        """Return the types of ready tasks by queue that no worker of a served queue has a handler for."""
        counts = await self._store.count(_READY, (Dimension.QUEUE, Dimension.TYPE))
        now = await self._store.now()
        sessions = await all_records(self._store, Session)
        live = LiveWorkers(one.worker for one in sessions if one.expires_at > now)
        found: dict[str, set[str]] = defaultdict(set)
        for count in counts:
            queue, type_name = count.values
            if count.number and live.serves(queue) and not live.handles(queue, type_name):
                found[queue].add(type_name)
        return found


class _Session:
    """The session of one turn. Tasks that it could not settle are handed back when it ends."""

    def __init__(self, store: Store, worker: Worker, lease: timedelta) -> None:
        self._store = store
        self._beat = Heartbeat(session=new_id(), worker=worker, lease_for=lease, opening=True)
        self._claims = 0

    async def claim(self, queue: str, types: tuple[str, ...]) -> tuple[Claimed, ...]:
        await self._store.heartbeat(self._beat)
        self._claims += 1
        session, number = self._beat.session, self._claims
        claim = Claim(session=session, queues=(queue,), limit=UNHANDLED_BATCH, number=number, types=types)
        return tuple(await self._store.claim(claim))

    async def end(self) -> None:
        await self._store.heartbeat(replace(self._beat, through=self._claims))
        await self._store.remove(Session, self._beat.session)


def _settlement(claimed: Claimed) -> Settlement:
    outcome = Unhandled(unhandled_for(claimed.task))
    verdict = decide(claimed.task, outcome, stored_backoff(None), 0.0)
    return Settlement(lease=claimed.lease, verdict=verdict, outcome=name_of(outcome))
