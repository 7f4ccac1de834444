"""API keys."""

from msgspec import Struct

from .._model.key import ApiKey, Scope
from .fields import Instant, build_document


class KeyDocument(Struct, kw_only=True):
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


class NewKeyDocument(KeyDocument, kw_only=True):
    """An API key just created. `key` is the secret text to send; it is not shown again."""

    key: str


class KeyList(Struct, kw_only=True):
    """Every API key."""

    items: list[KeyDocument]


def key_document(key: ApiKey) -> KeyDocument:
    """Build a key's document."""
    return build_document(KeyDocument, key, id=key.name)


def new_key_document(key: ApiKey, text: str) -> NewKeyDocument:
    """Build the document of a key just created, with the text that its holder sends."""
    return build_document(NewKeyDocument, key, id=key.name, key=text)
