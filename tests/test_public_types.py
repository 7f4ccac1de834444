"""What public methods take and return can be imported from a public module, so that users can annotate it."""

import enum
import inspect
import typing
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import windlass
import windlass.alerts
import windlass.errors
import windlass.handlers
import windlass.signals
import windlass.types
from windlass._handler.spec import HandlerSpec

PUBLIC: list[ModuleType] = [
    windlass,
    windlass.alerts,
    windlass.errors,
    windlass.handlers,
    windlass.signals,
    windlass.types,
]

# For other parts of windlass, not documented for users.
INTERNAL = {
    "App": {
        "declared",
        "hooks",
        "keeper",
        "metrics",
        "owner",
        "shards",
        "store",
        "types",
        "use_keyring",
        "use_store",
        "worker",
    },
    "Client": {"enqueue_tasks", "enqueue_tasks_sync", "resolved", "send"},
    "Operator": {"export_sync"},
    "SyncClient": {"enqueue_tasks"},
    "TaskType": {"hooks", "spec"},
    "Worker": {"accept", "describe", "on_reply"},
}


def test_every_type_of_a_public_method_can_be_imported() -> None:
    importable = {value for module in PUBLIC for value in vars(module).values() if isinstance(value, type)}
    exported = [value for value in importable if value.__module__.startswith("windlass")]
    assert len(exported) > 60

    missing: dict[str, str] = {}
    for one in exported:
        for place, hint in hints_of(one):
            missing |= {used.__qualname__: place for used in ours(hint) - importable}
    assert missing == {}


def hints_of(one: type) -> Iterator[tuple[str, Any]]:
    hidden = INTERNAL.get(one.__name__, set())
    if issubclass(one, enum.Enum):
        return
    for name in dir(one):
        if name.startswith("_") or name in hidden:
            continue
        if (function := function_of(inspect.getattr_static(one, name))) is not None:
            for hint in typing.get_type_hints(function).values():
                yield f"{one.__name__}.{name}", hint
    for name, hint in typing.get_type_hints(one).items():
        if not name.startswith("_") and name not in hidden:
            yield f"{one.__name__}.{name}", hint


def function_of(member: object) -> Callable[..., Any] | None:
    if isinstance(member, property):
        return member.fget
    if isinstance(member, (classmethod, staticmethod)):
        return member.__func__
    return member if inspect.isfunction(member) and member.__module__.startswith("windlass") else None


def ours(hint: Any) -> set[type]:
    """Return the classes of windlass in an annotation."""
    if hint is HandlerSpec:  # schedules take it of declarations; users do not pass it
        return set()
    parts = hint if isinstance(hint, list) else typing.get_args(hint)
    found = {one for part in parts for one in ours(part)}
    origin = typing.get_origin(hint) or hint
    return (
        found | {origin} if isinstance(origin, type) and origin.__module__.startswith("windlass") else found
    )
