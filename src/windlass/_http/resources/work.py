"""Being a worker, in any language: a session, claims, heartbeats, settlements. (I2)"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

from msgspec import Meta, Raw, Struct, field

from ..._documents.fields import Id, Instant, build_document
from ..._documents.tasks import ErrorDocument, ProgressDocument
from ..._handler.predecessors import payload_with_results
from ..._ids import new_id
from ..._model.key import Scope
from ..._model.lease import DEFAULT_LEASE, Claim, Claimed, Heartbeat, Lease, ProgressReport
from ..._model.record import Session, Worker
from ..._model.task import Progress, Task
from ..._model.verdict import Receipt
from ...errors import SessionLost
from ...signals import Fatal
from ..held_tasks import own_tasks
from ..input_fields import Name
from ..operation import Asked, NoQuery, Operations
from ..wake_stream import Hints
from ..worker_outcomes import Ended, settled, settlement

work = Operations("work")

MAX_AT_ONCE = 1_000
MAX_WAIT = 30
_MAX_PROGRESS = 500  # characters, as in workers of ours
_LOOK_AGAIN = 1.0  # seconds, should a hint get lost

Queues = Annotated[list[Name], Meta(min_length=1, max_length=100)]
SessionId = Annotated[str, Meta(min_length=1, max_length=200, pattern="^[^\\x00]*$")]
Fence = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Count = Annotated[int, Meta(ge=0, le=(1 << 53))]
Text = Annotated[str, Meta(max_length=200, pattern="^[^\\x00]*$")]


class WorkerSaid(Struct, kw_only=True, forbid_unknown_fields=True):
    """A worker, as it describes itself. Silent for longer than `lease` seconds, its tasks go to others."""

    name: Annotated[str, Meta(min_length=1, max_length=200, pattern="^[^\\x00]*$")]
    queues: Queues = field(default_factory=lambda: ["default"])
    slots: Annotated[int, Meta(ge=1, le=100_000)] = 1
    lease: Annotated[float, Meta(ge=1, le=3600)] = int(DEFAULT_LEASE.total_seconds())
    host: Text = ""
    pid: Annotated[int, Meta(ge=0, le=(1 << 31))] = 0
    version: Text = ""


class SessionDocument(Struct, kw_only=True):
    """A session: what a worker says with everything it asks. It gives a sign of life every `heartbeat` s."""

    session: str
    lease: float
    heartbeat: float
    now: Instant


class Claiming(Struct, kw_only=True, forbid_unknown_fields=True):
    """What a worker asks for. `number` rises with each claim of a session; `wait` is in seconds."""

    session: SessionId
    queues: Queues = field(default_factory=lambda: ["default"])
    limit: Annotated[int, Meta(ge=1, le=MAX_AT_ONCE)] = 1
    number: Annotated[int, Meta(ge=1, le=(1 << 53))]
    wait: Annotated[float, Meta(ge=0, le=MAX_WAIT)] = 0


class ClaimedTask(Struct, kw_only=True):
    """A task under a lease: `id` and `fence` settle it. That it keeps its `timeout` the worker sees to."""

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
    """What was claimed; nothing, if nothing was ready in time."""

    tasks: list[ClaimedTask]


class Held(Struct, kw_only=True, forbid_unknown_fields=True):
    """A lease that the worker holds, and how far the task has come."""

    id: Id
    fence: Fence
    progress: ProgressDocument | None = None


class Beat(Struct, kw_only=True, forbid_unknown_fields=True):
    """A sign of life: the worker, and what it holds.

    `through` is the number of the last claim whose answer it has: what was claimed up to then and is not held
    got lost on the way, and goes to others.
    """

    session: SessionId
    worker: WorkerSaid
    held: Annotated[list[Held], Meta(max_length=100_000)] = []
    through: Count = 0


class LostLease(Struct, kw_only=True):
    """A lease that holds no more. Claimed again meanwhile, the same task has another fence."""

    id: Id
    fence: int


class Pulse(Struct, kw_only=True):
    """The news: tasks under `lost` leases are others' by now, or settled; `cancel` are to be stopped."""

    lost: list[LostLease]
    cancel: list[Id]


class Settling(Struct, kw_only=True, forbid_unknown_fields=True):
    """What happened to tasks that were claimed."""

    tasks: Annotated[list[Ended], Meta(min_length=1, max_length=MAX_AT_ONCE)]


class SettledTask(Struct, kw_only=True):
    """What became of one: `applied`, `repeated` (it was before) or `lost` (it is another's by now)."""

    id: Id
    receipt: Receipt


class SettledTasks(Struct, kw_only=True):
    """A receipt for each, in the order they were given."""

    tasks: list[SettledTask]


@work(
    "POST",
    "/work/sessions",
    scope=Scope.WORK,
    bound=True,
    body=WorkerSaid,
    answer=SessionDocument,
    status=201,
)
async def open_session(asked: Asked[NoQuery, WorkerSaid]) -> SessionDocument:
    """Begin to work: a session that holds the leases of everything this worker claims."""
    asked.caller.needs_to_work_on(asked.body.queues)
    await asked.service.store.open()
    session = f"{asked.caller.mark}{new_id()}"
    await _beat(asked, Beat(session=session, worker=asked.body), opening=True)
    now = await asked.service.store.now()
    lease = asked.body.lease
    return SessionDocument(session=session, lease=lease, heartbeat=lease / 3, now=now)


@work("DELETE", "/work/sessions/{name}", scope=Scope.WORK, bound=True, status=204, answers=(410,))
async def end_session(asked: Asked[NoQuery, None]) -> None:
    """End a session: what it still holds is rescued at once, and may run again."""
    session = _own(asked, asked.path("name"))
    if not await asked.service.store.remove(Session, session):
        raise SessionLost("this session has expired, or was never opened")


@work("POST", "/work/heartbeat", scope=Scope.WORK, bound=True, body=Beat, answer=Pulse, answers=(410,))
async def heartbeat(asked: Asked[NoQuery, Beat]) -> Pulse:
    """Give a sign of life, and hear which tasks are lost or to be cancelled.

    410: the session is over. Others may have its tasks: stop all work, and open another.
    """
    asked.caller.needs_to_work_on(asked.body.worker.queues)
    return await _beat(asked, asked.body)


@work("POST", "/work/claim", scope=Scope.WORK, bound=True, body=Claiming, answer=ClaimedTasks, answers=(410,))
async def claim(asked: Asked[NoQuery, Claiming]) -> ClaimedTasks:
    """Claim ready tasks, up to `limit`; with `wait`, as soon as there are any."""
    body = asked.body
    asked.caller.needs_to_work_on(body.queues)
    wanted = Claim(
        session=_own(asked, body.session), queues=tuple(body.queues), limit=body.limit, number=body.number
    )
    await asked.service.store.open()
    found = await asked.service.store.claim(wanted)
    if not found and body.wait:
        found = await _waited(asked, wanted)
    delivered = [one for task in found if (one := await _delivered(asked, task.task)) is not None]
    return ClaimedTasks(tasks=delivered)


@work("POST", "/work/settle", scope=Scope.WORK, bound=True, body=Settling, answer=SettledTasks)
async def settle(asked: Asked[NoQuery, Settling]) -> SettledTasks:
    """Settle tasks by what happened to them. To repeat is harmless; a lost lease changes nothing.

    Whether and when a task that failed is tried again is decided here, by its type's rules. A result that
    cannot be kept (too large, say) buries its task, and no other: the work is done, and would not end better.
    """
    asked.caller.needs_to_work_on(())
    receipts = await settled(asked, asked.body.tasks)
    told = zip(asked.body.tasks, receipts, strict=True)
    return SettledTasks(tasks=[SettledTask(id=one.id, receipt=receipt) for one, receipt in told])


async def _beat(asked: Asked[Any, Any], beat: Beat, *, opening: bool = False) -> Pulse:
    said = beat.worker
    session = _own(asked, beat.session)
    leases, others = await _held(asked, beat)
    pulse = await asked.service.store.heartbeat(
        Heartbeat(
            session=session,
            worker=Worker(
                name=said.name,
                host=said.host,
                pid=said.pid,
                queues=tuple(said.queues),
                slots=said.slots,
                busy=len(leases),
                version=said.version,
            ),
            lease_for=timedelta(seconds=said.lease),
            opening=opening,
            held=tuple(leases),
            through=beat.through,
            progress=tuple(
                ProgressReport(lease, _progress(one)) for lease, one in leases.items() if one is not None
            ),
        )
    )
    if not pulse.alive:
        raise SessionLost("this session has expired, or was never opened: stop its tasks, and open another")
    lost = [LostLease(id=lease.task_id, fence=lease.fence) for lease in (*others, *pulse.lost)]
    return Pulse(lost=lost, cancel=list(pulse.cancel))


def _progress(said: ProgressDocument) -> Progress:
    """It is bent to fit: no worker is to be taken for dead because of what it says on the side."""
    fraction = min(max(said.fraction, 0.0), 1.0)
    return Progress(fraction=fraction, message=said.message.replace("\0", "")[:_MAX_PROGRESS])


async def _held(
    asked: Asked[Any, Any], beat: Beat
) -> tuple[dict[Lease, ProgressDocument | None], Sequence[Lease]]:
    """The leases that the beat names, and those among them that others hold: of these nothing is told."""
    held = {Lease(one.id, one.fence): one.progress for one in beat.held}
    if not asked.caller.is_bound:
        return held, ()
    own = await own_tasks(asked, (one.id for one in beat.held))
    others = [lease for lease in held if lease.task_id not in own]
    return {lease: held[lease] for lease in held if lease.task_id in own}, others


async def _waited(asked: Asked[NoQuery, Claiming], wanted: Claim) -> Sequence[Claimed]:
    """What becomes ready in time; nothing for who has gone meanwhile: there it would lie until missed.

    Nor for who has lost the key: that is looked at before each claim.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + asked.body.wait
    with Hints(asked.service, wanted.queues) as hints:
        while True:
            found = await asked.service.store.claim(wanted)
            left = until - loop.time()
            if found or left <= 0 or asked.service.closing.is_set():
                return found
            await hints.next(min(left, _LOOK_AGAIN))
            if await asked.request.is_disconnected():
                return ()
            await asked.still_welcome()


async def _delivered(asked: Asked[Any, Any], task: Task) -> ClaimedTask | None:
    """The task with all it needs; None if what it waited for is gone: then it is buried."""
    try:
        payload = await payload_with_results(asked.service.store, task)
    except Fatal as error:
        said = ErrorDocument(type="Fatal", message=str(error))
        ended = Ended(id=task.id, fence=task.fence, outcome="failed", error=said, fatal=True)
        await asked.service.store.settle([settlement(asked.service.app, task, ended)])
        return None
    return build_document(ClaimedTask, task, payload=Raw(payload))


def _own(asked: Asked[Any, Any], session: str) -> str:
    """The session, if it is the caller's own. To a key that is bound others' do not exist."""
    if asked.caller.is_bound and not session.startswith(asked.caller.mark):
        raise SessionLost("this session has expired, or was never opened: open another")
    return session
