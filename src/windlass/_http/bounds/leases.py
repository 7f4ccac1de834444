"""Leases by key: a session and what it claims belong to the key that opened it.

Session ids begin with the id of their key. Who asks for the session or the leases of another key is answered
as if these had been lost.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ..._model.filter import MAX_PAGE, Filter, Page
from ..._model.key import Scope
from ..._model.lease import Claimed, Lease
from ..._model.record import Session
from ..._model.task import Task, TaskId
from ..._model.verdict import Receipt, Settled
from ..._store import messages
from ..._store.protocol import Store
from ...errors import LeaseLost, SessionLost
from ..auth import Caller

MAX_GRANTED = 20_000
"""Leases whose keys a server remembers."""

_SESSIONS = messages.record_name(Session)


def own_session(caller: Caller, session: str) -> str:
    """Return the session id; raise SessionLost if another key opened the session."""
    if not session.startswith(caller.session_prefix):
        raise SessionLost("the session has expired or was never opened; open a new one")
    return session


def in_own_sessions(caller: Caller, message: Any) -> Any:
    """Return a request of the store protocol whose sessions and leads are those of its key.

    A person, whose key has no scope `work`, may end any session, which is audited.
    """
    prefix = caller.session_prefix
    match message:
        case messages.ClaimRequest(claim=claim):
            return replace(message, claim=replace(claim, session=prefix + claim.session))
        case messages.SettleRequest(claim=claim) if claim is not None:
            return replace(message, claim=replace(claim, session=prefix + claim.session))
        case messages.HeartbeatRequest(beat=beat):
            return replace(message, beat=replace(beat, session=prefix + beat.session))
        case messages.RescueRequest(session=session):
            return replace(message, session=prefix + session)
        case messages.LeadRequest(holder=holder):
            return replace(message, holder=prefix + holder)
        case messages.RemoveRequest(kind=kind, name=name) if kind == _SESSIONS and caller.has_scope(
            Scope.WORK
        ):
            return replace(message, name=prefix + name)
        case _:
            return message


class KeyLeases:
    """Tells which leases are a key's own.

    Those that this server granted are remembered: most settlements need no further look at the store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._granted: dict[Lease, str] = {}

    def add(self, caller: Caller, claimed: Iterable[Claimed]) -> None:
        """Remember leases that are granted to a key, in place of the oldest."""
        if caller.key is None:
            return
        self._granted.update((one.lease, caller.session_prefix) for one in claimed)
        while len(self._granted) > MAX_GRANTED:
            del self._granted[next(iter(self._granted))]

    async def refused(
        self, caller: Caller, leases: Iterable[Lease], known: Mapping[TaskId, Task] | None = None
    ) -> dict[Lease, Receipt]:
        """Return the receipts of leases that the caller does not hold: a settlement must not try these.

        They are those that the store would give by now, and `lost` for leases of other keys. `known` are the
        tasks, if they have been read; one that is gone is left to the store.
        """
        if caller.key is None:
            return {}
        prefix = caller.session_prefix
        asked = [one for one in dict.fromkeys(leases) if self._granted.get(one) != prefix]
        tasks = known
        if tasks is None:
            tasks = await self._find([one.task_id for one in asked]) if asked else {}
        found = ((lease, tasks[lease.task_id]) for lease in asked if lease.task_id in tasks)
        return {
            lease: receipt for lease, task in found if (receipt := _receipt(prefix, lease, task)) is not None
        }

    async def call(self, caller: Caller, message: Any) -> Any:
        """Call a verb of the store protocol with the caller's own leases only."""
        match message:
            case messages.SettleRequest():
                return await self._settle(caller, message)
            case messages.OnceRequest(lease=lease, key=key):
                if await self.refused(caller, [lease]):
                    raise LeaseLost(f"the lease of task {lease.task_id} was lost; {key!r} was not marked")
            case messages.HeartbeatRequest(beat=beat) if beat.progress:
                refused = await self.refused(caller, [one.lease for one in beat.progress])
                own = tuple(one for one in beat.progress if one.lease not in refused)
                message = replace(message, beat=replace(beat, progress=own))
        response = await message.call(self._store)
        if isinstance(message, messages.ClaimRequest | messages.RescueRequest):
            self.add(caller, response)
        return response

    async def _settle(self, caller: Caller, message: messages.SettleRequest) -> Settled:
        refused = await self.refused(caller, [one.lease for one in message.batch])
        own = tuple(one for one in message.batch if one.lease not in refused)
        settled: Settled = await replace(message, batch=own).call(self._store)
        self.add(caller, settled.claimed)
        given = iter(settled.receipts)
        receipts = tuple(refused.get(one.lease) or next(given) for one in message.batch)
        return replace(settled, receipts=receipts)

    async def _find(self, ids: Sequence[TaskId]) -> dict[TaskId, Task]:
        found: dict[TaskId, Task] = {}
        for start in range(0, len(ids), MAX_PAGE):
            part = tuple(ids[start : start + MAX_PAGE])
            page = await self._store.find(Filter(ids=part), Page(limit=len(part)))
            found |= {task.id: task for task in page.items}
        return found


def _receipt(prefix: str, lease: Lease, task: Task) -> Receipt | None:
    """Return the receipt of a lease that no session of a key holds; None if one does.

    A task that nobody holds is not left to the store: another key could claim it meanwhile.
    """
    if task.fence != lease.fence:
        return Receipt.LOST
    if task.session is None:
        return Receipt.REPEATED
    return None if task.session.startswith(prefix) else Receipt.LOST
