"""Keys: who may ask what. (I3)"""

from typing import Annotated

from msgspec import Meta, Struct

from ..._documents.keys import KeyList, NewKeyDocument, key_document, new_key_document
from ..._model.key import Scope
from ..._policy import api_key
from ..._policy.input.options import MAX_DELAY
from ..input_fields import Name, Why
from ..operation import Asked, NoQuery, Operations
from .tasks import Reason

keys = Operations("keys")

Rate = Annotated[float, Meta(ge=api_key.SLOWEST, le=api_key.FASTEST, description="Requests a second.")]


class KeySaid(Struct, kw_only=True, forbid_unknown_fields=True):
    """A key to make: whose it is, what it allows, and what it is bound to."""

    label: Annotated[str, Meta(min_length=1, max_length=100)]
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=5)]
    tenant: Name | None = None
    queues: Annotated[list[Name], Meta(min_length=1, max_length=100)] | None = None
    expires_in: Annotated[float, Meta(gt=0, le=MAX_DELAY.total_seconds())] | None = None
    rate: Rate | None = None
    why: Why = ""


@keys("GET", "/keys", scope=Scope.ADMIN, answer=KeyList)
async def list_keys(asked: Asked[NoQuery, None]) -> KeyList:
    """List keys: their ids, never their secrets."""
    return KeyList(items=[key_document(key) for key in await asked.service.app.operator.keys.list()])


@keys("POST", "/keys", scope=Scope.ADMIN, body=KeySaid, answer=NewKeyDocument, status=201)
async def create_key(asked: Asked[NoQuery, KeySaid]) -> NewKeyDocument:
    """Make a key. What its holder sends is in the answer, and nowhere else.

    Every server knows it within a second.
    """
    body = asked.body
    made = await asked.operator(body.why).keys.create(
        body.label,
        scopes=body.scopes,
        tenant=body.tenant,
        queues=body.queues,
        expires_in=body.expires_in,
        rate=body.rate,
    )
    return new_key_document(made.key, made.text)


@keys("DELETE", "/keys/{key}", scope=Scope.ADMIN, query=Reason, status=204, answers=(404,))
async def revoke_key(asked: Asked[Reason, None]) -> None:
    """Take a key back: every server refuses it within a second."""
    await asked.operator(asked.query.why).keys.revoke(asked.path("key"))
