"""API keys: list, create, rotate and revoke them; who is signed in to the dashboard with them."""

from typing import Annotated

from msgspec import Meta, Struct

from ..._documents.keys import (
    KeyList,
    LoginList,
    NewKeyDocument,
    SignedOut,
    key_document,
    login_document,
    new_key_document,
)
from ..._documents.quotas import tenant_quota
from ..._model.key import Scope
from ..._model.task import MAX_DELAY
from ..._policy import api_key
from ..input_fields import Name, Why
from ..operation import AnyRequest, ApiRequest, NoQuery, Operations
from ..task_input import request_key
from .tasks import ReasonQuery

keys = Operations("keys")


def _rate(name: str, description: str) -> Meta:
    _, least, most = api_key.RATES[name]
    return Meta(ge=least, le=most, description=description)


Rate = Annotated[float, _rate("rate", "Requests per second.")]
TaskRate = Annotated[float, _rate("task_rate", "Tasks to enqueue per second, steps of chains included.")]
ByteRate = Annotated[float, _rate("byte_rate", "Bytes of payloads and chains to enqueue per second.")]

Overlap = Annotated[
    float, Meta(ge=0, le=MAX_DELAY.total_seconds(), description="Seconds that both secrets are valid.")
]


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


class RotationInput(Struct, kw_only=True, forbid_unknown_fields=True):
    """How long the former secret stays valid, in seconds."""

    overlap: Overlap = api_key.OVERLAP.total_seconds()
    why: Why = ""


class KeysQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which keys are listed."""

    all: Annotated[bool, Meta(description="Also keys that are revoked or expired.")] = False


@keys("GET", "/keys", Scope.ADMIN)
async def list_keys(request: ApiRequest[KeysQuery, None]) -> KeyList:
    """List keys, without their secrets, and the quotas of the tenants that they are bound to."""
    found = await request.operator().keys.list(inactive=request.query.all)
    use = request.service.store.use
    await use.refresh()
    used = use.all()
    return KeyList(items=[key_document(key, tenant_quota(use.quotas, used, key.tenant)) for key in found])


@keys(
    "POST",
    "/keys",
    Scope.ADMIN,
    status=201,
    statuses=(409,),
    request_headers=("Idempotency-Key",),
)
async def create_key(request: ApiRequest[NoQuery, KeyInput]) -> NewKeyDocument:
    """Create a key. Only this response contains its secret.

    Every server accepts it within a second. With the header `Idempotency-Key` a repeat creates no second key
    and gets 409 `duplicate-key`, with the id of the first in `standing`: its secret cannot be shown again,
    but `POST /keys/{key}/rotate` makes another. The same header with another body gets 422.
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
        idempotency_key=request_key(request.http),
    )
    return new_key_document(made.key, made.text)


@keys("POST", "/keys/{key}/rotate", Scope.ADMIN, statuses=(409,), requires_body=False)
async def rotate_key(request: ApiRequest[NoQuery, RotationInput]) -> NewKeyDocument:
    """Give a key a new secret. Only this response contains it.

    The id, the scopes and the bounds stay. The former secret is valid until the overlap ends; with 0 all
    former secrets end at once.
    """
    body = request.body
    made = await request.operator(body.why).keys.rotate(request.path("key"), overlap=body.overlap)
    return new_key_document(made.key, made.text)


@keys("DELETE", "/keys/{key}", Scope.ADMIN, status=204)
async def revoke_key(request: ApiRequest[ReasonQuery, None]) -> None:
    """Revoke a key. Every server refuses it within a second, and stays closed if it was the last."""
    await request.operator(request.query.why).keys.revoke(request.path("key"))


@keys("GET", "/logins", Scope.ADMIN)
async def list_logins(request: AnyRequest) -> LoginList:
    """List who is signed in to the dashboard, and with which key; the newest first."""
    return LoginList(items=[login_document(one) for one in await request.operator().keys.logins()])


@keys("DELETE", "/keys/{key}/logins", Scope.ADMIN)
async def sign_out_key(request: ApiRequest[ReasonQuery, None]) -> SignedOut:
    """Sign out of the dashboard everyone who signed in with a key. The key stays valid."""
    key = request.path("key")
    return SignedOut(key=key, signed_out=await request.operator(request.query.why).keys.sign_out(key))
