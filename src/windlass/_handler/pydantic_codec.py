"""Values of Pydantic's types, encoded and validated by Pydantic. Imported when one of them is declared."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeAlias

import msgspec
from pydantic import NaiveDatetime, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import to_jsonable_python

from .._policy.input.payload import check_value
from .._policy.input.quote import counted
from ..errors import InvalidPayload
from .annotation import parts_of, refusal


class PydanticCodec:
    """Converts the values of one parameter, or of the result, between Python and JSON.

    The JSON is the one that the models themselves have: with their aliases and serializers, without computed
    fields. Values of `SecretStr` and the like are in it; `secret` has the names of their fields.
    Raises InvalidOption, naming the annotation as `what`, if Pydantic cannot do it.
    """

    def __init__(self, hint: Any, name: str, what: str) -> None:
        self._name = name
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(hint)
            self._adapter.rebuild(raise_errors=True)
        except (PydanticSchemaGenerationError, PydanticUserError, NameError, TypeError) as error:
            why = str(getattr(error, "message", error)).partition(". ")[0]
            raise refusal(hint, what, why) from None
        self._is_model = hasattr(hint, "model_fields")
        secret = {field for field, part in parts_of(hint, name) if hasattr(part, "get_secret_value")}
        if "" in secret:
            raise refusal(hint, what, "a secret is masked by the name of its field, and here it has none")
        self.secret = tuple(sorted(secret))
        parts = [part for _, part in parts_of(hint, name) if isinstance(part, type)]
        # A field declared as NaiveDatetime takes no other.
        self._checked = (Decimal,) if NaiveDatetime in parts else (Decimal, datetime)
        self.takes_naive = datetime in parts and datetime in self._checked

    def encode(self, value: Any) -> Any:
        """Return a value as plain JSON values. Raises InvalidPayload."""
        try:
            plain = self._dumped(value)
        except ValueError as error:  # also what serializers of the models raise
            pointer = f"/{self._name}" if self._name else ""
            raise InvalidPayload(
                f"Pydantic cannot encode {pointer or 'it'}: {error}", pointer=pointer
            ) from None
        if self._name:
            self._check(value, plain)
        return _revealed(value, plain) if self.secret else plain

    def refuse_naive(self, value: Any) -> None:
        """Raise InvalidPayload for a naive datetime in a value that was validated, its defaults excepted."""
        with suppress(ValueError):  # of serializers of the models: their values do not come from Python
            self._check(value, self._dumped(value, exclude_unset=True))

    def _dumped(self, value: Any, *, exclude_unset: bool = False) -> Any:
        return self._adapter.dump_python(
            value,
            mode="json",
            by_alias=True,
            round_trip=True,
            warnings=False,
            exclude_unset=exclude_unset,
        )

    def _check(self, value: Any, plain: Any) -> None:
        """Raise InvalidPayload for what is refused outside of models, too, such as naive datetimes and NaN.

        What the serializers of a model spell in a way of their own is the model's affair. Extra fields of a
        model, and the fields of one that is given as a mapping, have none.
        """
        has_serializers = not (self._is_model and isinstance(value, Mapping))
        for one, text, path, is_declared in _leaves(value, plain, (self._name,), has_serializers):
            if isinstance(one, self._checked):
                own = one.isoformat() if isinstance(one, datetime) else str(one)
                if text == own:
                    check_value(one, path)
            elif text is None and not is_declared and isinstance(one, float):
                check_value(one, path)  # Pydantic would store null for NaN

    def decode(self, data: bytes | msgspec.Raw) -> Any:
        """Validate encoded JSON. Raises InvalidPayload, without the value in its message."""
        text = bytes(data)
        try:
            return self._adapter.validate_json(text)
        except ValidationError as error:
            first, *more = error.errors(include_url=False, include_context=False, include_input=False)
            pointer = "".join(f"/{part}" for part in (self._name, *_path(first["loc"], text)) if part != "")
            others = f" (and {counted(len(more), 'more error')})" if more else ""
            raise InvalidPayload(
                f"{first['msg']} at {pointer or 'its root'}{others}", pointer=pointer
            ) from None

    def schema(self, ref_template: str) -> dict[str, Any]:
        """Return the JSON schema of the values, with the schemas that it refers to in `$defs`."""
        return self._adapter.json_schema(ref_template=ref_template)


def _path(loc: tuple[int | str, ...], text: bytes) -> Iterator[str]:
    """Leave out of the location of an error what is not in the JSON: the names of the types of a union."""
    value = msgspec.json.decode(text)
    for index, part in enumerate(loc):
        if isinstance(value, dict) and (part in value or index == len(loc) - 1):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            continue
        yield str(part).replace("~", "~0").replace("/", "~1")


_Leaf: TypeAlias = tuple[Any, Any, tuple[str | int, ...], bool]
"""A part of a value without parts of its own, its JSON, its path, and whether a type declares its JSON."""


def _leaves(value: Any, plain: Any, path: tuple[str | int, ...], is_declared: bool) -> Iterator[_Leaf]:  # noqa: FBT001
    """Iterate over the parts of a value that have no parts of their own."""
    if hasattr(value, "root"):
        yield from _leaves(value.root, plain, path, is_declared)
    elif isinstance(plain, list) and isinstance(value, Iterable):
        for index, (one, below) in enumerate(zip(value, plain, strict=False)):
            yield from _leaves(one, below, (*path, index), is_declared)
    elif isinstance(plain, dict) and isinstance(value, Mapping):
        for one, (key, below) in zip(value.values(), plain.items(), strict=False):
            yield from _leaves(one, below, (*path, key), is_declared)
    elif isinstance(plain, dict):
        members, extra = _members(value), getattr(value, "__pydantic_extra__", None) or {}
        for key, below in plain.items():
            is_extra = key in extra
            one = extra[key] if is_extra else members.get(key)
            yield from _leaves(one, below, (*path, key), not is_extra)
    else:
        yield value, plain, path, is_declared


def _revealed(value: Any, plain: Any) -> Any:
    """Put the values of `SecretStr` and the like, which Pydantic encodes as asterisks, into encoded JSON."""
    if hasattr(value, "get_secret_value"):
        hidden = plain == str(value) or (isinstance(plain, str) and set(plain) <= {"*"})
        return to_jsonable_python(value.get_secret_value()) if hidden else plain
    if hasattr(value, "root"):
        return _revealed(value.root, plain)
    if isinstance(plain, list) and isinstance(value, Iterable):
        return [_revealed(*pair) for pair in zip(value, plain, strict=False)]
    if isinstance(plain, dict) and isinstance(value, Mapping):  # its keys may be no strings
        revealed = (_revealed(*pair) for pair in zip(value.values(), plain.values(), strict=False))
        return dict(zip(plain, revealed, strict=False))
    if isinstance(plain, dict):
        members = _members(value)
        return {key: _revealed(members.get(key), one) for key, one in plain.items()}
    return plain


def _members(value: Any) -> dict[str, Any]:
    """Return the fields of a model or dataclass by their names in JSON."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return {
        field.serialization_alias or field.alias or name: getattr(value, name)
        for name, field in getattr(type(value), "model_fields", {}).items()
    }
