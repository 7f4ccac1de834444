"""Workers in any language: sessions, claims, heartbeats, settlements."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import replace

from ..._documents.fields import Id, Instant, build_document
from ..._documents.tasks import ErrorDocument, ProgressDocument
from ..._documents.workers import WorkerList, worker_document
from ..._encryption.encrypted_store import key_ids_of
from ..._handler.predecessors import payload_with_results
from ..._ids import new_id
from ..._model.brief import Brief
from ..._model.key import Scope
from ..._model.lease import DEFAULT_LEASE, Claim, Claimed, Heartbeat, Lease, ProgressReport
from ..._model.outcome import Failed, Locked, name_of
from ..._model.record import Session, Worker
from ..._model.task import DEFAULT_QUEUE, Task
from ..._model.verdict import Receipt, Settlement
from ..._policy.input.unreadable import is_object
from ..._policy.secrets.encrypted import MARKER
from ..._policy.secrets.mask import Mask
from ..._policy.verdict import decide, undecrypted
from ...errors import InvalidOption, SessionLost
from ...signals import Fatal
from ..bounds.leases import own_session
from ..input_fields import Name
from ..long_poll import WakeListener
from ..operation import AnyRequest, ApiRequest, NoQuery, Operations
from ..worker_outcomes import (
    OutcomeInput,
    bounded_progress,
    masks_of,
    settle_outcomes,
    settlement,
)

logger = logging.getLogger("windlass.http")

work = Operations("work")
workers = Operations("workers")

MAX_AT_ONCE = 1_000
MAX_WAIT = 30
_POLL_SECONDS = 1.0  # seconds between claims, in case a wake gets lost

Queues = Annotated[list[Name], Meta(min_length=1, max_length=10_000)]
Types = Annotated[list[Name], Meta(max_length=1_000)]
SessionId = Annotated[str, Meta(min_length=1, max_length=200, pattern="^[^\\x00]*$")]
Fence = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Count = Annotated[int, Meta(ge=0, le=(1 << 53))]
Text = Annotated[str, Meta(max_length=200, pattern="^[^\\x00]*$")]


class WorkerInput(Struct, kw_only=True, forbid_unknown_fields=True):
    """A worker. After `lease` seconds without a heartbeat, its tasks go to other workers.

    `queues` is ["default"] unless given. With `all_queues` it serves every queue that its key may work on.
    With `types`, those that it has handlers for, `windlass check` can report tasks of other types.
    """

    name: Annotated[str, Meta(min_length=1, max_length=200, pattern="^[^\\x00]*$")]
    queues: Queues | UnsetType = UNSET
    all_queues: bool = False
    slots: Annotated[int, Meta(ge=1, le=100_000)] = 1
    lease: Annotated[float, Meta(ge=1, le=3600)] = int(DEFAULT_LEASE.total_seconds())
    host: Text = ""
    pid: Annotated[int, Meta(ge=0, le=(1 << 31))] = 0
    version: Text = ""
    types: Types | None = None


class SessionDocument(Struct, kw_only=True):
    """A session. Send its id with every request, and a heartbeat every `heartbeat` seconds."""

    session: str
    lease: float
    heartbeat: float
    now: Instant


class ClaimInput(Struct, kw_only=True, forbid_unknown_fields=True):
    """A claim. `number` must increase with each claim of a session; `wait` is in seconds.

    `queues` is ["default"] unless given. With `all_queues` queues that have ready tasks are served in turn.
    With `types`, only tasks of these types are claimed; all others stay ready for other workers.
    """

    session: SessionId
    queues: Queues | UnsetType = UNSET
    all_queues: bool = False
    types: Types | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_AT_ONCE)] = 1
    number: Annotated[int, Meta(ge=1, le=(1 << 53))]
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT)] = 0


class ClaimedTask(Brief, Struct, kw_only=True):
    """A claimed task. Settle it by `id` and `fence`. The worker enforces `timeout`."""

    id: Id
    fence: int
    type: str
    payload: Raw
    queue: str
    tenant: str
    priority: int
    attempt: int
    max_attempts: int
    timeout: float | None
    cancel_requested: bool
    root: Id
    trace: str | None
    run_at: Instant
    created_at: Instant


class ClaimedTasks(Struct, kw_only=True):
    """The claimed tasks; empty if none became ready in time."""

    tasks: list[ClaimedTask]


class HeldLease(Struct, kw_only=True, forbid_unknown_fields=True):
    """A lease that the worker holds, and the progress of its task."""

    id: Id
    fence: Fence
    progress: ProgressDocument | None = None


class HeartbeatInput(Struct, kw_only=True, forbid_unknown_fields=True):
    """A heartbeat: the worker and the leases that it holds.

    `through` is the number of the last claim whose response arrived. Tasks claimed up to then that are not in
    `held` never reached the worker; they go to other workers.
    """

    session: SessionId
    worker: WorkerInput
    held: Annotated[list[HeldLease], Meta(max_length=100_000)] = []
    through: Count = 0


class LostLease(Struct, kw_only=True):
    """A lost lease. If the task has been claimed again, its fence is different."""

    id: Id
    fence: int


class HeartbeatResponse(Struct, kw_only=True):
    """Leases that are `lost` (settled, or taken over by another worker), and tasks to `cancel`."""

    lost: list[LostLease]
    cancel: list[Id]


class SettleInput(Struct, kw_only=True, forbid_unknown_fields=True):
    """The outcomes of claimed tasks."""

    tasks: Annotated[list[OutcomeInput], Meta(min_length=1, max_length=MAX_AT_ONCE)]


class SettledTask(Struct, kw_only=True):
    """A receipt: `applied`, `repeated` (it was settled so before) or `lost` (another worker has the task)."""

    id: Id
    receipt: Receipt


class SettledTasks(Struct, kw_only=True):
    """The receipts, in the order of the request."""

    tasks: list[SettledTask]


@work("POST", "/work/sessions", Scope.WORK, bound=True, status=201)
async def open_session(request: ApiRequest[NoQuery, WorkerInput]) -> SessionDocument:
    """Open a session, which holds the leases of all tasks that this worker claims."""
    _queues_of(request, request.body)
    await request.service.store.open()
    session = f"{request.caller.session_prefix}{new_id()}"
    await _beat(request, HeartbeatInput(session=session, worker=request.body), opening=True)
    now = await request.service.store.now()
    lease = request.body.lease
    return SessionDocument(session=session, lease=lease, heartbeat=lease / 3, now=now)


@work("DELETE", "/work/sessions/{name}", Scope.WORK, bound=True, status=204, statuses=(410,))
async def end_session(request: AnyRequest) -> None:
    """End a session. Tasks that it still holds are rescued at once and may run again."""
    session = own_session(request.caller, request.path("name"))
    if not await request.service.store.remove(Session, session):
        raise SessionLost("the session has expired or was never opened")


@work("POST", "/work/heartbeat", Scope.WORK, bound=True, batch=True, urgent=True, statuses=(410,))
async def heartbeat(request: ApiRequest[NoQuery, HeartbeatInput]) -> HeartbeatResponse:
    """Renew the leases of a session. Returns which leases are lost and which tasks to cancel.

    410: the session has expired and other workers may have its tasks. Stop all work and open a new session.
    """
    return await _beat(request, request.body)


@work("POST", "/work/claim", Scope.WORK, bound=True, statuses=(410,))
async def claim(request: ApiRequest[NoQuery, ClaimInput]) -> ClaimedTasks:
    """Claim up to `limit` ready tasks. With `wait`, respond as soon as there are any."""
    body = request.body
    queues = _queues_of(request, body)
    session = own_session(request.caller, body.session)
    types = None if body.types is None else tuple(body.types)
    wanted = Claim(session=session, queues=queues or (), limit=body.limit, number=body.number, types=types)
    await request.service.store.open()
    found = await _claim(request, wanted)
    if not found and body.wait:
        request.begin_stream()
        found = await _claim_when_ready(request, wanted)
    request.service.leases.add(request.caller, found)
    delivered = [one for task in found if (one := await _claimed_task(request, task.task)) is not None]
    return ClaimedTasks(tasks=delivered)


@work("POST", "/work/settle", Scope.WORK, bound=True, batch=True, urgent=True)
async def settle(request: ApiRequest[NoQuery, SettleInput]) -> SettledTasks:
    """Settle tasks by their outcomes. Repeating a request is harmless; a lost lease changes nothing.

    The server decides whether and when a failed task is retried, by the rules of its type. A result that
    cannot be stored (too large, for example) buries its task and no other: a retry would not help.
    """
    request.caller.require_work_on(())
    receipts = await settle_outcomes(request, request.body.tasks)
    pairs = zip(request.body.tasks, receipts, strict=True)
    return SettledTasks(tasks=[SettledTask(id=one.id, receipt=receipt) for one, receipt in pairs])


@workers("GET", "/workers", Scope.READ)
async def list_workers(request: AnyRequest) -> WorkerList:
    """List workers with their slots and how many are busy."""
    operator = request.operator()
    now = await operator.now()
    return WorkerList(items=[worker_document(one, now) for one in await operator.workers()])


async def _beat(request: AnyRequest, beat: HeartbeatInput, *, opening: bool = False) -> HeartbeatResponse:
    worker = beat.worker
    queues = _queues_of(request, worker)
    session = own_session(request.caller, beat.session)
    leases, others = await _held(request, beat)
    telling = [lease.task_id for lease, one in leases.items() if one is not None and one.message]
    masks = await masks_of(request, telling) if telling else {}
    reply = await request.service.store.heartbeat(
        Heartbeat(
            session=session,
            worker=Worker(
                name=worker.name,
                host=worker.host,
                pid=worker.pid,
                queues=queues or (),
                all_queues=queues is None,
                slots=worker.slots,
                busy=len(leases),
                version=worker.version,
                types=None if worker.types is None else tuple(worker.types),
            ),
            lease_for=timedelta(seconds=worker.lease),
            opening=opening,
            held=tuple(leases),
            through=beat.through,
            progress=tuple(
                ProgressReport(lease, bounded_progress(one, masks.get(lease.task_id, Mask())))
                for lease, one in leases.items()
                if one is not None
            ),
        )
    )
    if not reply.alive:
        raise SessionLost("the session has expired or was never opened; stop its tasks and open a new one")
    lost = [LostLease(id=lease.task_id, fence=lease.fence) for lease in (*others, *reply.lost)]
    return HeartbeatResponse(lost=lost, cancel=[one.task_id for one in reply.cancel])


async def _held(
    request: AnyRequest, beat: HeartbeatInput
) -> tuple[dict[Lease, ProgressDocument | None], Sequence[Lease]]:
    """Return the caller's own leases with their progress, and those that are not its own."""
    held = {Lease(one.id, one.fence): one.progress for one in beat.held}
    others = await request.service.leases.refused(request.caller, held)
    return {lease: one for lease, one in held.items() if lease not in others}, [*others]


def _queues_of(request: AnyRequest, body: WorkerInput | ClaimInput) -> tuple[str, ...] | None:
    """Return the queues that a worker names, or those of its key; None: every queue of the store.

    Raises 403 unless the key covers them.
    """
    if body.all_queues and body.queues is not UNSET:
        raise InvalidOption("queues and all_queues exclude each other; send one of them")
    queues = request.caller.queues if body.all_queues else tuple(body.queues or (DEFAULT_QUEUE,))
    request.caller.require_work_on(queues or ())
    return queues


async def _claim(request: AnyRequest, wanted: Claim) -> Sequence[Claimed]:
    """Claim from the queues that are named or, if none is, from those that have ready tasks, in turn."""
    store, served = request.service.store, request.service.served_queues
    if wanted.queues:
        return await store.claim(wanted)
    await served.find_if_due()
    queues = served.next(wanted.limit)
    found = await store.claim(replace(wanted, queues=queues))
    if not wanted.is_selective:  # else there may be more for others
        served.note_claim(queues, found, is_short=len(found) < wanted.limit)
    if not found and queues != served.names:
        found = await store.claim(replace(wanted, queues=served.names))
    return found


async def _claim_when_ready(request: ApiRequest[NoQuery, ClaimInput], wanted: Claim) -> Sequence[Claimed]:
    """Claim until tasks are ready or the time is up.

    Check the connection and the key before each claim: tasks claimed for a client that has gone would wait
    for their lease to expire.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + request.body.wait
    queues = wanted.queues or request.service.served_queues.names
    with WakeListener(request.service.store, queues, request.service.closing) as listener:
        while True:
            found = await _claim(request, wanted)
            left = until - loop.time()
            if found or left <= 0 or request.service.closing.is_set():
                return found
            await listener.next(min(left, _POLL_SECONDS))
            if await request.http.is_disconnected():
                return ()
            await request.recheck_key()


async def _claimed_task(request: AnyRequest, task: Task) -> ClaimedTask | None:
    """Return the task with its predecessors' results; bury it and return None if that is not possible."""
    try:
        full = await payload_with_results(
            request.service.store, task, request.service.app.client.types.with_secrets
        )
        if not is_object(full.payload):
            raise Fatal("the payload is not a JSON object")
    except Fatal as error:
        described = ErrorDocument(type="Fatal", message=str(error))
        ended = OutcomeInput(id=task.id, fence=task.fence, outcome="failed", error=described, fatal=True)
        await request.service.store.settle([settlement(request.service.app, task, ended)])
        return None
    if MARKER in full.payload or (task.next and MARKER in task.next):
        await _hand_back(
            request, task, undecrypted(key_ids_of(request.service.store), full.payload, task.next)
        )
        return None
    return build_document(ClaimedTask, task, payload=Raw(full.payload))


async def _hand_back(request: AnyRequest, task: Task, outcome: Locked | Failed) -> None:
    """Postpone or bury a task that this server cannot decrypt."""
    if isinstance(outcome, Locked):
        logger.warning(
            "this server lacks the encryption key %s, so task %s is handed back; add it to "
            "WINDLASS_ENCRYPTION_KEYS or the key file (docs/encryption.md)",
            ", ".join(outcome.keys),
            task.id,
        )
    verdict = decide(task, outcome, request.service.app.backoff, 0.0)
    ended = Settlement(lease=Lease(task.id, task.fence), verdict=verdict, outcome=name_of(outcome))
    await request.service.store.settle([ended])
