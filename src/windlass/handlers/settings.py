"""The settings of a ready-made handler: a value that declares its task type when an app includes it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import Struct

from .._model.brief import Brief
from .._policy.input.quote import kind_of, quoted
from ..errors import InvalidOption

S = TypeVar("S", bound="HandlerSettings")


class HandlerSettings(Brief, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one handler. Each kind has `__call__(app)`, which declares its task type and returns it."""

    table: ClassVar[str]
    """The table `[handlers.…]` of windlass.toml that has them."""

    task: ClassVar[str]
    """The name of the task type."""


def parse_settings(kind: type[S], table: Mapping[str, Any], source: str) -> S:
    """Parse a table of a settings file; numbers may be text, as in the environment. Raises InvalidOption."""
    with errors_of(source):
        try:
            return msgspec.convert(table, kind, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidOption(str(error)) from None


def check_kinds(setting: str, given: object, kind: type[Struct]) -> None:
    """Raise InvalidOption unless a setting is a mapping of names to values of this kind."""
    example = f"{{name: handlers.{kind.__name__}(…)}}"
    if not isinstance(given, Mapping):
        raise InvalidOption(f"{setting} must be a mapping, {setting}={example}, got {kind_of(given)}")
    for name, one in given.items():
        if not isinstance(one, kind):
            raise InvalidOption(
                f"{setting}[{quoted(name)}] must be as in {setting}={example}, got {kind_of(one)}"
            )


def required(module: str, extra: str, task: str) -> ModuleType:
    """Import a module of an extra; raises InvalidOption that names the extra."""
    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or not module.startswith(missing.name.partition(".")[0]):
            raise
        raise InvalidOption(f"{task} needs an extra: pip install 'windlass[{extra}]'") from None


@contextmanager
def errors_of(source: str) -> Iterator[None]:
    """Prefix the InvalidOption of a setting with its name."""
    try:
        yield
    except InvalidOption as error:
        raise InvalidOption(f"{source}: {error}") from None
