"""Secrets in the store protocol: workers see them, holders of `reveal` on record, everyone else masks.

A change keeps what its sender saw masked, and keeps it masked.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from .._client.limits import masked_usages
from .._model.alert import Alert
from .._model.filter import MAX_PAGE, By, Filter, Page, Replay, Reveal, Slice, page_of
from .._model.key import Scope
from .._model.limit import Usage
from .._model.options import DeclaredType
from .._model.record import KINDS, Declaration
from .._model.schedule import Schedule
from .._model.task import NewTask, TaskId
from .._model.verdict import Bury, Complete
from .._policy.input.quote import quoted
from .._policy.secrets.shown import (
    edited_payload,
    masked_alert,
    masked_declaration,
    masked_schedule,
    masked_task,
    stays_masked,
    with_type_secrets,
)
from .._policy.secrets.shown import with_stored_secrets as with_stored_documents
from .._policy.task_type import keeps_secrets
from .._store import messages
from .._store.json_codec import encode
from .._store.protocol import all_records
from ..errors import Conflict
from .auth import Caller
from .service import Service
from .task_query import masked_attempts, shown_size
from .web.off_loop import each_off_loop
from .web.refusal import Reason, Refusal

_KINDS: dict[str, type[Alert | Schedule]] = {KINDS[kind]: kind for kind in (Alert, Schedule)}
_DECLARATION = KINDS[Declaration]

R = TypeVar("R", bound=Alert | Schedule | Declaration | DeclaredType)


async def with_declared_secrets(service: Service, message: Any) -> Any:
    """Return a request whose new tasks have the secret fields of their types, as far as these are known."""
    match message:
        case messages.EnqueueRequest(batch=batch):
            return replace(message, batch=await _with_type_secrets(service, batch))
        case messages.SettleRequest(batch=batch):
            verdicts = [one.verdict for one in batch if isinstance(one.verdict, Complete | Bury)]
            if not any(verdict.successors for verdict in verdicts):
                return message
            settled = [
                replace(one, verdict=replace(one.verdict, successors=await _with_type_secrets(service, new)))
                if isinstance(one.verdict, Complete | Bury) and (new := one.verdict.successors)
                else one
                for one in batch
            ]
            return replace(message, batch=tuple(settled))
        case _:
            return message


async def without_secrets(service: Service, caller: Caller, message: Any, response: Any) -> Any:
    """Return a response as the caller may see it; that secrets are shown is audited, except to workers."""
    if caller.has_scope(Scope.WORK):
        return response
    reveal = caller.has_scope(Scope.REVEAL)
    match message:
        case messages.FindRequest():
            if reveal:
                await _audit(service, caller, [task.id for task in response.items])
                return response
            tasks = await service.app.client.types.with_result_secrets(response.items)
            return replace(response, items=tuple(await each_off_loop(tasks, shown_size, masked_task)))
        case messages.AttemptsRequest(task_id=task_id):
            if reveal:
                await _audit(service, caller, [task_id])
                return response
            found = await service.operator.find(Filter(ids=(task_id,)), Page(limit=1))
            return await masked_attempts(found.items[0], response) if found.items else ()
        case messages.RecordsRequest(kind="usage", page=page):  # of a page the cursor would name a value
            whole = await all_records(service.store, Usage)
            usages = await masked_usages(service.store, service.app.client.types, whole)
            return page_of(usages, page, lambda one: one.name)
        case messages.RecordsRequest(kind=kind) if kind in _KINDS:
            if reveal:
                for record in response.items:
                    await _audit(service, caller, [], f"{kind} {record.name}")
                return response
            return await _masked_page(service, response)
        case messages.RecordsRequest(kind=kind) if kind == _DECLARATION:
            return replace(response, items=tuple(map(masked_declaration, response.items)))
        case _:
            return response


async def _with_type_secrets(service: Service, batch: Sequence[NewTask]) -> tuple[NewTask, ...]:
    return await service.app.client.types.with_secrets(batch)


async def _audit(service: Service, caller: Caller, ids: Sequence[TaskId], subject: str = "") -> None:
    action = Reveal(by=By(who=caller.name), subject=subject)
    if ids or subject:
        await service.store.apply(action, Filter(ids=tuple(ids)), max(len(ids), 1))


async def _masked_page(service: Service, page: Slice[Alert | Schedule]) -> Slice[Alert | Schedule]:
    await service.app.client.refresh_types()
    return replace(page, items=tuple(_masked(service, record) for record in page.items))


def _masked(service: Service, record: Alert | Schedule) -> Alert | Schedule:
    if isinstance(record, Alert):
        return masked_alert(record)
    return masked_schedule(with_type_secrets(record, service.app.client.types.secret_of))


async def with_stored_secrets(service: Service, caller: Caller, message: Any) -> Any:
    """Return a request with what is stored where it has the masks that its sender saw.

    That is a record, or the payload of a task to be replayed. Raises InvalidOption for other masks; 403 for a
    change, also of a task type, after which more could be seen without `reveal` or `work`; Conflict if what
    the sender expects is not what it saw, so that no guess of a secret can be tested.
    """
    if caller.has_scope(Scope.WORK):
        return message
    if isinstance(message, messages.ApplyRequest) and isinstance(message.action, Replay):
        return replace(message, action=await _unmasked_replay(service, message.action, message.where))
    if not isinstance(message, messages.PutRequest | messages.RemoveRequest):
        return message
    if message.kind == KINDS[DeclaredType]:
        await _require_type_secrets(service, caller, message)
    if isinstance(message, messages.RemoveRequest):
        return message
    if message.kind == _DECLARATION:
        declaration: Any = messages.decode_record(message.kind, message.record)
        before = await _stored(service, Declaration, declaration.name)
        return message if before is None else _as_seen(caller, message, before, masked_declaration(before))
    if message.kind not in _KINDS:
        return message
    record: Any = messages.decode_record(message.kind, message.record)
    await service.app.client.refresh_types()
    stored: Any = await _stored(service, _KINDS[message.kind], record.name)
    if stored is None:
        if isinstance(record, Schedule):
            unmasked(caller, record, None)
        return message
    message = _as_seen(caller, message, stored, _masked(service, stored))
    secret_of = service.app.client.types.secret_of
    match stored:
        case Schedule():
            record = with_type_secrets(record, secret_of)
            record = unmasked(caller, record, with_type_secrets(stored, secret_of))
        case Alert(webhook=webhook) if record.webhook == masked_alert(stored).webhook:
            record = replace(record, webhook=webhook)
    return replace(message, record=encode(record))


def _as_seen(caller: Caller, message: messages.PutRequest, stored: R, shown: R) -> messages.PutRequest:
    """Return a request that expects the record as it is stored if its sender expects it as it was shown.

    Raises Conflict if it expects another, also the stored one: only holders of `reveal` have seen that.
    """
    if message.expected is None or message.expected == encode(None):
        return message
    if messages.decode_record(message.kind, message.expected) == shown:
        return replace(message, expected=encode(stored))
    if caller.has_scope(Scope.REVEAL):
        return message
    raise Conflict(
        f"the {message.kind} {quoted(stored.name)} is not as expected: read it, and expect what you are shown"
    )


async def _unmasked_replay(service: Service, action: Replay, where: Filter) -> Replay:
    """Return a replay without its payload if that is the one of the task as it is shown."""
    if action.payload is None or where.ids is None:
        return action
    for task in (await service.operator.find(Filter(ids=where.ids), Page(limit=MAX_PAGE))).items:
        if edited_payload(action.payload, task) is None:
            return replace(action, payload=None, fingerprint=None)
    return action


def unmasked(caller: Caller, changed: Schedule, stored: Schedule | None) -> Schedule:
    """Return a changed schedule with the stored secrets where it has the masks that its sender saw.

    Both have the secret fields of their types; `stored` is None for a new one. Raises 403 if the secrets
    might be seen after the change, unless the caller may see them; InvalidOption for a mask in another
    payload.
    """
    if stored is not None and not stays_masked(changed, stored) and not caller.has_scope(Scope.REVEAL):
        raise Refusal(
            "forbidden",
            f"this change of the schedule {quoted(stored.name)} keeps its secret values and could show them: "
            f"with another type, another tenant or fewer secret fields send new values, or use a key with "
            f"the scope reveal",
            Reason.SCOPE,
        )
    return with_stored_documents(changed, stored)


async def require_type_secrets(
    service: Service, caller: Caller, name: str, changed: DeclaredType | None = None
) -> None:
    """Raise 403 unless tasks keep their secret fields after a type is changed, or removed (None).

    Callers who may see secrets may take them away, too.
    """
    if not keeps_secrets(await all_records(service.store, DeclaredType), name, changed):
        caller.require_scope(Scope.REVEAL, Scope.WORK)


async def _require_type_secrets(
    service: Service, caller: Caller, message: messages.PutRequest | messages.RemoveRequest
) -> None:
    if isinstance(message, messages.RemoveRequest):
        return await require_type_secrets(service, caller, message.name)
    declared: Any = messages.decode_record(message.kind, message.record)
    return await require_type_secrets(service, caller, declared.name, declared)


async def _stored(service: Service, kind: type[R], name: str) -> R | None:
    return {one.name: one for one in await all_records(service.store, kind)}.get(name)
