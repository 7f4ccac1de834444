"""Every record of windlass: structs, dataclasses and named tuples, made with a canary in each field."""

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Raw, Struct

import windlass

CANARY = "7f3asings"
_DJANGO = ("windlass.integrations.django.settings",)  # the others need a project of Django


def records() -> list[type[Any]]:
    """All classes that hold fields, in all modules of windlass that this environment can import."""
    found: dict[type[Any], None] = {}
    for module in _modules():
        for one in vars(module).values():
            if issubclass(type(one), type) and one.__module__ == module.__name__ and fields(one):
                found[one] = None
    return [*found]


def _modules() -> Iterator[Any]:
    for found in pkgutil.walk_packages(windlass.__path__, "windlass."):
        if not found.name.endswith("__main__") and (".django." not in found.name or found.name in _DJANGO):
            yield importlib.import_module(found.name)


def fields(record: type[Any]) -> dict[str, str]:
    """The fields of a class, with their types as text; none if it is no record."""
    if record is Struct or record is object:
        return {}
    if issubclass(record, Struct):
        names = record.__struct_fields__
    elif dataclasses.is_dataclass(record):
        names = tuple(one.name for one in dataclasses.fields(record))
    else:
        names = record._fields if issubclass(record, tuple) and hasattr(record, "_fields") else ()
    types = {
        name: str(kind) for one in record.__mro__[::-1] for name, kind in inspect.get_annotations(one).items()
    }
    return {name: types.get(name, "") for name in names}


def filled(record: type[Any], value: Callable[[str], Any]) -> Any:
    """An instance with these values of its fields, by their names; nothing is checked."""
    values = {name: value(name) for name in fields(record)}
    if issubclass(record, Struct):  # without its checks
        record = type(record.__name__, (record,), {"__post_init__": lambda _: None})
    elif not issubclass(record, tuple):
        made = object.__new__(record)
        for name, one in values.items():
            object.__setattr__(made, name, one)
        return made
    return record(**values)


SHAPES: dict[str, Callable[[str], Any]] = {
    "text": lambda text: text,
    "bytes": lambda text: text.encode(),
    "raw JSON": lambda text: Raw(f'"{text}"'.encode()),
    "tuple": lambda text: (text, text.encode()),
    "nested": lambda text: [{"deep": [text]}, ((text.encode(),),)],
    "mapping": lambda text: {text: text},
    "set": lambda text: frozenset({text}),
    "exception": ValueError,
}
"""Each makes a value in which a text occurs."""
