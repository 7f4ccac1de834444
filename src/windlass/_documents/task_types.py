"""Task types: one document for each type that an app has published."""

from msgspec import Struct

from .._model.options import DeclaredType
from .fields import build_document
from .queues import RetentionDocument


class TypeDocument(Struct, kw_only=True):
    """A task type as an app last published it.

    Durations are in seconds. `backoff` has the numbers of an exponential backoff; `delays` those of a custom
    one after each of the first attempts, of which the last repeats. `retention` null: the default.
    `encrypted`: its secret fields are encrypted, so programs without keys cannot enqueue its tasks.
    """

    name: str
    aliases: list[str]
    queue: str
    priority: int
    max_attempts: int
    timeout: float | None
    expires: float | None
    unique: bool | list[str]
    unique_for: float | None
    secret: list[str]
    encrypted: bool
    backoff: dict[str, float]
    delays: list[float]
    retention: RetentionDocument | None


class TypeList(Struct, kw_only=True):
    """Every type that an app has published."""

    items: list[TypeDocument]


def type_document(declared: DeclaredType) -> TypeDocument:
    """Build a type's document."""
    kept = declared.retention
    retention = None if kept is None else build_document(RetentionDocument, kept)
    return build_document(TypeDocument, declared.defaults, declared, retention=retention)
