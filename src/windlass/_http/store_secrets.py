"""Secrets in the store protocol: workers see them, holders of `reveal` on record, everyone else masks."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from .._client.limits import masked_usages
from .._model.alert import Alert
from .._model.filter import By, Filter, Page, Reveal, Slice
from .._model.key import Scope
from .._model.schedule import Schedule
from .._model.task import NewTask, TaskId
from .._model.verdict import Bury, Complete
from .._policy.task_secrets import (
    masked_alert,
    masked_schedule,
    masked_task,
    with_type_secrets,
)
from .._store import messages
from .._store.json_codec import encode
from .._store.protocol import all_records
from .auth import Caller
from .service import Service
from .task_query import masked_attempts, shown_size
from .web.off_loop import each_off_loop

_SECRET_FIELDS: dict[type[Alert | Schedule], tuple[str, ...]] = {
    Alert: ("webhook",),
    Schedule: ("payload", "next"),
}
_KINDS = {messages.record_name(kind): kind for kind in _SECRET_FIELDS}


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
            found = await service.app.operator.find(Filter(ids=(task_id,)), Page(limit=1))
            return await masked_attempts(found.items[0], response) if found.items else ()
        case messages.RecordsRequest(kind="usage"):
            usages = await masked_usages(service.store, service.app.client.types, response.items)
            return replace(response, items=tuple(usages))
        case messages.RecordsRequest(kind=kind) if kind in _KINDS:
            if reveal:
                for record in response.items:
                    await _audit(service, caller, [], f"{kind} {record.name}")
                return response
            return await _masked_page(service, response)
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
    """Return a request to put a record with the stored secrets where it has the masks that its sender saw."""
    if (
        not isinstance(message, messages.PutRequest)
        or message.kind not in _KINDS
        or caller.has_scope(Scope.WORK)
    ):
        return message
    kind = _KINDS[message.kind]
    record: Any = messages.decode_record(message.kind, message.record)
    await service.app.client.refresh_types()
    stored = {one.name: one for one in await all_records(service.store, kind)}.get(record.name)
    if stored is None:
        return message
    shown = _masked(service, stored)
    kept = {
        field: getattr(stored, field)
        for field in _SECRET_FIELDS[kind]
        if getattr(record, field) == getattr(shown, field)
    }
    expected = message.expected
    if expected is not None and expected == encode(shown):
        expected = encode(stored)
    return replace(message, record=encode(replace(record, **kept)), expected=expected)
