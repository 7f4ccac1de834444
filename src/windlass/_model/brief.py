"""What is shown by accident: in a log line, an assertion, or a traceback with local variables."""

from collections.abc import Collection
from datetime import date, timedelta
from enum import Enum
from typing import Any

from msgspec import Raw, Struct

NAMES = frozenset((
    "action", "after", "aliases", "app", "backoff", "before", "by", "cron", "enqueued_by", "failure",
    "failures", "home", "host", "id", "ids", "key", "keys", "kind", "label", "limit", "module", "name",
    "on", "open", "outcome", "over", "parts", "qualname", "queue", "queues", "reserve", "result_into",
    "root", "schedule", "scopes", "session", "shards", "state", "subject", "task_id", "tenant",
    "tenants", "trace", "tracing", "type", "types", "version", "weights", "who", "worker", "zone",
))  # fmt: skip
"""Fields whose text is shown: names and ids. Never what a task, a request or a setting holds."""


class Brief:
    """Keep the content of a record out of its repr, and so out of `str`, log lines and `rich`.

    Shown are the fields that differ from their defaults: numbers, instants, other records, and the text of
    those in `NAMES`. Of bytes only the length is shown, of other text nothing. Ask for the field to see it.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        record: Any = self
        defaults = dict(zip(record.__struct_fields__[::-1], record.__struct_defaults__[::-1], strict=False))
        values = ((name, getattr(self, name, "")) for name in self._fields_to_show())
        return [
            (name, _shown(value, is_name=name in NAMES))
            for name, value in values
            if not (value is None or value is defaults.get(name) or (isinstance(value, str) and not value))
        ]

    def _fields_to_show(self) -> tuple[str, ...]:
        record: Any = self
        fields: tuple[str, ...] = record.__struct_fields__
        return fields


class Secret(str):
    """Text that its repr does not show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Secret(…)"


def without_frames(error: BaseException) -> BaseException:
    """Drop the tracebacks of a driver's error and of what led to it: their variables have the password."""
    led: BaseException | None = error
    while led is not None:
        led.__traceback__, led = None, led.__cause__ or led.__context__
    return error


class _Bare(str):
    """Text that is shown without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str.__str__(self)


def _shown(value: Any, *, is_name: bool) -> Any:
    match value:
        case Enum():
            return _Bare(value.name)
        case None | bool() | int() | float() | Struct():
            return value
        case str():
            return value if is_name else _Bare("…")
        case bytes() | bytearray() | memoryview() | Raw():
            return _Bare(f"<{len(bytes(value)):,} bytes>")
        case date() | timedelta():
            return _Bare(value)
        case tuple() | list() | set() | frozenset():
            return [_shown(one, is_name=is_name) for one in value]
        case Collection():
            return _Bare(f"<{len(value):,} items>")
        case _:
            return _Bare(f"<{type(value).__name__}>")
