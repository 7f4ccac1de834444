"""Read what is left of a damaged row, so that one does not hide the others.

A database does not check JSON in its columns, and SQLite not even their types. Older versions, other programs
or a person may have written what cannot be read.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar, get_type_hints

import msgspec
from msgspec import Raw

from .._model.state import State
from .._model.task import DAMAGED, EARLIEST, Error, Progress, Task

T = TypeVar("T")

_members = msgspec.json.Decoder(dict[str, Raw])
_TYPES = {name: kind for name, kind in get_type_hints(Task).items() if name not in ("progress", "error")}
_DEFAULTS: dict[Any, Any] = {
    str: "",
    int: 0,
    bytes: b"null",
    bool: False,
    datetime: EARLIEST,
    State: State.DEAD,
}


def salvaged_task(columns: Mapping[str, Any], readers: Mapping[str, Callable[[Any], Any]]) -> Task:
    """Return the task of a row of which some columns cannot be read, and say so in its error.

    `readers` convert columns that the store holds in another form. Without a readable list of secret fields,
    every field of the payload is secret.
    """
    damaged: list[str] = []

    def read(name: str, kind: Any, default: Any) -> Any:
        value = columns[name]
        try:
            return None if value is None else msgspec.convert(readers.get(name, _as_is)(value), kind)
        except (ValueError, TypeError, KeyError, OverflowError):
            damaged.append(name)
            return default

    fields = {name: read(name, kind, _DEFAULTS.get(kind)) for name, kind in _TYPES.items()}
    for name in ("after", "secret"):
        fields[name] = fields[name] or ()
    if "secret" in damaged:
        fields["secret"] = _all_fields(fields["payload"])
    fraction = read("progress_fraction", float, None)
    message = read("progress_message", str, None)
    progress = None if fraction is None else Progress(fraction=fraction, message=message or "")
    texts = [read(f"error_{name}", str, "") for name in ("type", "message", "traceback")]
    return Task(**fields, progress=progress, error=_error(damaged, *texts))


def _error(damaged: list[str], type_: str | None, message: str | None, traceback: str | None) -> Error | None:
    if not damaged:
        return None if type_ is None else Error(type=type_, message=message or "", traceback=traceback)
    before = f"; before: {type_}: {message}" if type_ else ""
    return Error(type=DAMAGED, message=f"stored damaged: {', '.join(damaged)}{before}", traceback=traceback)


def _all_fields(payload: bytes) -> tuple[str, ...]:
    try:
        return tuple(sorted(_members.decode(payload)))
    except ValueError:
        return ()


def _as_is(value: Any) -> Any:
    return value
