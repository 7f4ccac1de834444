"""API keys: list, create and revoke them."""

from typing import Annotated

from msgspec import Meta, Struct

from ..._documents.keys import KeyList, NewKeyDocument, key_document, new_key_document
from ..._model.key import Scope
from ..._model.task import MAX_DELAY
from ..._policy import api_key
from ..input_fields import Name, Why
from ..operation import AnyRequest, ApiRequest, NoQuery, Operations
from .tasks import ReasonQuery

keys = Operations("keys")


def _rate(name: str, description: str) -> Meta:
    _, least, most = api_key.RATES[name]
    return Meta(ge=least, le=most, description=description)


Rate = Annotated[float, _rate("rate", "Requests per second.")]
TaskRate = Annotated[float, _rate("task_rate", "Tasks to enqueue per second, steps of chains included.")]
ByteRate = Annotated[float, _rate("byte_rate", "Bytes of payloads and chains to enqueue per second.")]


class KeyInput(Struct, kw_only=True, forbid_unknown_fields=True):
    """A key to create: its label, scopes, bounds, lifetime in seconds and rates."""

    label: Annotated[str, Meta(min_length=1, max_length=100)]
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=len(Scope))]
    tenant: Name | None = None
    queues: Annotated[list[Name], Meta(min_length=1, max_length=100)] | None = None
    expires_in: Annotated[float, Meta(gt=0, le=MAX_DELAY.total_seconds())] | None = None
    rate: Rate | None = None
    task_rate: TaskRate | None = None
    byte_rate: ByteRate | None = None
    why: Why = ""


@keys("GET", "/keys", Scope.ADMIN)
async def list_keys(request: AnyRequest) -> KeyList:
    """List keys, without their secrets."""
    return KeyList(items=[key_document(key) for key in await request.operator().keys.list()])


@keys("POST", "/keys", Scope.ADMIN, status=201)
async def create_key(request: ApiRequest[NoQuery, KeyInput]) -> NewKeyDocument:
    """Create a key. Only this response contains its secret.

    Every server accepts it within a second.
    """
    body = request.body
    made = await request.operator(body.why).keys.create(
        body.label,
        scopes=body.scopes,
        tenant=body.tenant,
        queues=body.queues,
        expires_in=body.expires_in,
        rate=body.rate,
        task_rate=body.task_rate,
        byte_rate=body.byte_rate,
    )
    return new_key_document(made.key, made.text)


@keys("DELETE", "/keys/{key}", Scope.ADMIN, status=204)
async def revoke_key(request: ApiRequest[ReasonQuery, None]) -> None:
    """Revoke a key. Every server refuses it within a second."""
    await request.operator(request.query.why).keys.revoke(request.path("key"))
