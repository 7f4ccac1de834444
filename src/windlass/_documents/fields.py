"""Field types that documents share, and `build_document`, which copies fields from model values."""

from datetime import datetime, timedelta
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct

from .._model.task import MAX_DELAY, TASK_ID
from .._policy.input.unreadable import readable_json
from .._policy.secrets.encrypted import MARKER, without_encrypted

D = TypeVar("D", bound=Struct)

Id = Annotated[
    str,
    Meta(
        pattern=f"^{TASK_ID}$",
        max_length=36,  # `$` also matches before a trailing newline
        examples=["0199c3a2-7d10-7abc-8def-0123456789ab"],
    ),
]
Instant = Annotated[datetime, Meta(tz=True)]
Seconds = Annotated[float, Meta(ge=0, le=MAX_DELAY.total_seconds())]


def build_document(kind: type[D], *sources: Struct, **values: Any) -> D:
    """Build a document from `values`, and every other field from the first source that has it by that name.

    Durations become seconds, tuples become lists.
    """
    for name in kind.__struct_fields__:
        if name not in values:
            source = next(one for one in sources if name in one.__struct_fields__)
            values[name] = _plain(getattr(source, name))
    return kind(**values)


def shown_json(data: bytes) -> Any:
    """Decode a payload or result; what could not be decrypted is `[encrypted]`."""
    value = readable_json(data)
    return without_encrypted(value) if MARKER in data else value


def _plain(value: Any) -> Any:
    match value:
        case timedelta():
            return value.total_seconds()
        case tuple():
            return list(value)
        case _:
            return value
