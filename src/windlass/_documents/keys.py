"""API keys."""

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import asdict

from .._model.brief import Brief
from .._model.key import ApiKey, Login, Scope
from .fields import Instant, build_document
from .quotas import QuotaDocument


class KeyDocument(Brief, Struct, kw_only=True):
    """An API key, without its secret."""

    id: str
    label: str
    scopes: list[Scope]
    tenant: str | None
    queues: list[str] | None
    rate: float | None
    task_rate: float | None
    byte_rate: float | None
    created_at: Instant
    expires_at: Instant | None
    last_used_at: Annotated[Instant | None, Meta(description="Last request with this key, to a minute.")]
    rotated_at: Instant | None
    former_expires_at: Annotated[
        Instant | None, Meta(description="When the secrets before the last rotation end.")
    ]
    revoked_at: Instant | None
    quota: Annotated[
        QuotaDocument | None, Meta(description="The quota of the tenant that the key is bound to, in lists.")
    ]


class NewKeyDocument(KeyDocument, kw_only=True):
    """An API key just created or rotated. `key` is the secret text to send; it is not shown again."""

    key: str


class KeyList(Struct, kw_only=True):
    """API keys."""

    items: list[KeyDocument]


class LoginDocument(Struct, kw_only=True):
    """Someone who is signed in to the dashboard, with the key of this id."""

    id: str
    key: str
    created_at: Instant
    expires_at: Instant


class LoginList(Struct, kw_only=True):
    """Who is signed in."""

    items: list[LoginDocument]


class SignedOut(Struct, kw_only=True):
    """How many logins of a key were ended."""

    key: str
    signed_out: int


def login_document(login: Login) -> LoginDocument:
    """Build the document of a login."""
    return build_document(LoginDocument, login, id=login.id)


def key_document(key: ApiKey, quota: QuotaDocument | None = None) -> KeyDocument:
    """Build a key's document, with the quota of its tenant."""
    return build_document(KeyDocument, key, id=key.name, former_expires_at=key.former_expires_at, quota=quota)


def new_key_document(key: ApiKey, text: str) -> NewKeyDocument:
    """Build the document of a key just created or rotated, with the text that its holder sends."""
    return NewKeyDocument(**asdict(key_document(key)), key=text)
