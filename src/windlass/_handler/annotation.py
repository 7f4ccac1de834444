"""Annotations of handlers: whether a type can be converted to JSON and back, and whether by Pydantic."""

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, time
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect

from .._policy.input.payload import CHECKED
from ..errors import InvalidOption
from .naive_datetimes import may_be_naive

if TYPE_CHECKING:
    from .pydantic_codec import PydanticCodec

Encoder = Callable[[Any], Any]
"""Takes a value of a declared type; returns one that `encode_payload` takes."""

_KEYS = (
    inspect.AnyType,
    inspect.BytesType,
    inspect.DateTimeType,
    inspect.DateType,
    inspect.DecimalType,
    inspect.EnumType,
    inspect.FloatType,
    inspect.IntType,
    inspect.LiteralType,
    inspect.StrType,
    inspect.TimeDeltaType,
    inspect.TimeType,
    inspect.UUIDType,
)
"""What the keys of a mapping may be: each has a spelling as text from which it can be read back."""
_TEXT = (inspect.AnyType, inspect.StrType)
_OWNERS = ("pydantic", "annotated_types")  # packages whose metadata in Annotated only Pydantic understands


def checked(hint: Any, what: str) -> tuple[Any, Encoder | None]:
    """Return the type to decode as, and what encodes its values if `encode_payload` would refuse them.

    Raises InvalidOption, which names the annotation as `what`, if the type has no JSON form, or is a union of
    types whose JSON cannot be told apart.
    """
    if hint is object:
        return Any, None
    try:
        msgspec.json.Decoder(hint)
        parts = [*_parts(inspect.type_info(hint))]
    except (TypeError, NameError, NotImplementedError) as error:
        raise refusal(hint, what, str(error).partition(" - type `")[0]) from None
    for part in parts:
        if (why := _obstacle(part)) is not None:
            raise refusal(hint, what, why)
    keys = [part.key_type for part in parts if isinstance(part, inspect.DictType)]
    return hint, None if all(isinstance(key, _TEXT) for key in keys) else _with_text_keys


def takes_naive(hint: Any) -> bool:
    """Whether a type that msgspec converts takes datetimes without a time zone and does not ask for them."""
    return may_be_naive(_parts(inspect.type_info(hint)))


def refusal(hint: Any, what: str, why: str) -> InvalidOption:
    """Return the error for an annotation that cannot be converted to JSON and back."""
    remedy = "annotate it with what is in the JSON, such as str, dict or list, and convert it in the handler"
    if "union" in why.lower():
        remedy = "annotate one type, or tagged msgspec Structs or Pydantic models, which JSON can tell apart"
    return InvalidOption(
        f"{what} is declared as {shown(hint)}, which cannot be converted to JSON and back: {why}; {remedy}"
    )


def needs_pydantic(hint: Any) -> bool:
    """Whether a type is one of Pydantic's, contains one, or has constraints of it. Imports nothing."""
    return "pydantic" in sys.modules and any(_is_of_pydantic(part) for _, part in parts_of(hint))


def pydantic_codec(hint: Any, name: str, what: str) -> "PydanticCodec":
    """Make the codec of a type of Pydantic's, which is imported only for such types."""
    from .pydantic_codec import PydanticCodec

    return PydanticCodec(hint, name, what)


def parts_of(hint: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Iterate over a type, what it is made of and the metadata of `Annotated`, with the name of the field.

    The fields of a class come once.
    """
    seen: set[type] = set()
    todo = [(name, hint)]
    while todo:
        name, part = todo.pop()
        yield name, part
        if get_origin(part) is Annotated:
            yield from ((name, one) for one in part.__metadata__)
            todo.append((name, part.__origin__))
        elif (origin := get_origin(part)) is not None:
            todo += [(name, one) for one in (origin, *get_args(part))]
        elif isinstance(part, type) and part not in seen:
            seen.add(part)
            todo += _fields(part)
        elif hasattr(part, "__value__"):  # type X = …
            todo.append((name, part.__value__))


def _fields(kind: type) -> list[tuple[str, Any]]:
    """Return the fields of a class with their types; one that has aliases comes under each of its names."""
    if isinstance(fields := getattr(kind, "model_fields", None), dict):
        return [
            (name, one)
            for name, field in fields.items()
            for name in (name, field.alias, field.serialization_alias, field.validation_alias)
            if isinstance(name, str)
            for one in (field.annotation, *field.metadata)
        ]
    try:
        return [*get_type_hints(kind, include_extras=True).items()]
    except (NameError, TypeError, AttributeError, SyntaxError):  # reported when the type is used
        return []


def _is_of_pydantic(part: Any) -> bool:
    if isinstance(part, type):
        return hasattr(part, "__pydantic_core_schema__") or hasattr(part, "__get_pydantic_core_schema__")
    return type(part).__module__.partition(".")[0] in _OWNERS


def _obstacle(part: inspect.Type) -> str | None:
    """Return why values of this type cannot be converted; None if they can."""
    match part:
        case inspect.CustomType(cls=cls) if cls is not object:
            return f"{shown(cls)} has no JSON form"
        case inspect.ExtType():
            return "it is for MessagePack"
        case inspect.DictType(key_type=key) if not isinstance(key, _KEYS):
            return "the keys of a JSON object are strings"
        case inspect.DataclassType(cls=cls, fields=fields) if hasattr(cls, "__attrs_attrs__"):
            private = [field.name for field in fields if field.name.startswith("_")]
            return (
                f"private fields of attrs classes, such as {private[0]}, are not encoded" if private else None
            )
        case _:
            return None


def _parts(info: inspect.Type) -> Iterator[inspect.Type]:
    """Iterate over a type and what it is made of, each once."""
    seen: dict[int, inspect.Type] = {}
    todo: list[Any] = [info]
    while todo:
        part = todo.pop()
        if isinstance(part, inspect.Field):
            todo.append(part.type)
        elif isinstance(part, tuple):
            todo += part
        elif isinstance(part, inspect.Type) and id(part) not in seen:
            seen[id(part)] = part
            yield part
            todo += [getattr(part, name) for name in part.__struct_fields__]


def _with_text_keys(value: Any) -> Any:
    """Return a value with the keys of its mappings as text; unchanged if it has parts without a JSON form."""
    for kept in (CHECKED, (datetime, time)):  # keys that are decimals become text only if all decimals do
        with suppress(TypeError, RecursionError):
            return msgspec.to_builtins(value, str_keys=True, builtin_types=kept)
    return value


def shown(hint: Any) -> str:
    """Return an annotation as it is written."""
    is_class = isinstance(hint, type) and get_origin(hint) is None
    return hint.__name__ if is_class else str(hint).replace("typing.", "")
