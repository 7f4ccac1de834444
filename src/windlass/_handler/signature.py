"""A handler's parameters as a type, which payloads are checked against when they are enqueued."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType

from .._policy.input.payload import encode_payload
from .._policy.input.quote import suggestion
from ..errors import InvalidOption, InvalidPayload
from .context import Context

RESULT: Any = type("RESULT", (), {"__repr__": lambda _: "RESULT"})()
"""An argument of a step that stands for the result of the task before it (in a group: all results)."""

_BY_POSITION = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)


class Signature:
    """The parameters of a handler, without its context, and its return type."""

    def __init__(self, handler: Callable[..., Any], type_name: str) -> None:
        self.type_name = type_name
        self._parameters = inspect.signature(handler)
        hints = _hints(handler)
        self.context_name = _context_name(self._parameters, hints)
        self.result_type = _result_type(hints.get("return", Any))
        self._open_ended = False
        self._fields = self._field_list(hints)
        self.names = frozenset(field[0] for field in self._fields)
        self.arguments_type = _arguments_type(self._fields)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(self.arguments_type)
        self._has_defaults = any(len(field) == 3 for field in self._fields)
        self._needed = frozenset(field[0] for field in self._fields if len(field) == 2)

    @property
    def fields(self) -> frozenset[str] | None:
        """The names of the payload's fields; None if the handler takes any (**kwargs)."""
        return None if self._open_ended else self.names

    def payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bytes, str | None]:
        """Encode and check the payload of a call; also return the parameter given as RESULT, if any.

        Raises InvalidPayload, or InvalidOption if the context is given.
        """
        bound = self._bind(args, kwargs)
        takers = [name for name, value in bound.items() if value is RESULT]
        if len(takers) > 1:
            raise InvalidPayload(f"{' and '.join(takers)} are both RESULT; give it to one parameter")
        decoder = self._decoder
        if takers:  # the result is not known yet: check the other parameters
            bound = {name: value for name, value in bound.items() if value is not RESULT}
            decoder = self._without(takers[0])
        data = encode_payload(bound)
        if not self._open_ended:
            try:
                decoder.decode(data)
            except msgspec.ValidationError as error:
                raise self._does_not_fit(error) from None
        return data, takers[0] if takers else None

    def arguments(self, payload: bytes) -> dict[str, Any]:
        """Decode a payload into the handler's arguments; raises InvalidPayload if it does not fit."""
        try:
            if self._open_ended:
                return msgspec.json.decode(payload, type=dict[str, Any])
            values = msgspec.structs.asdict(self._decoder.decode(payload))
        except msgspec.ValidationError as error:
            raise self._does_not_fit(error) from None
        except (ValueError, RecursionError):  # stored by another program, or damaged
            raise InvalidPayload("the payload is not JSON") from None
        if self._has_defaults:
            return {name: value for name, value in values.items() if value is not UNSET}
        return values

    def check(self, payload: bytes, result_into: str | None = None) -> None:
        """Raise InvalidPayload unless the payload fits; a parameter that receives a result may be missing."""
        if result_into is None or self._open_ended:
            self.arguments(payload)
            return
        try:
            self._without(result_into).decode(payload)
        except msgspec.ValidationError as error:
            raise self._does_not_fit(error) from None

    def _without(self, result_into: str) -> "msgspec.json.Decoder[Any]":
        """Return a decoder for payloads in which this parameter may be missing, or be anything."""
        return _decoder([one if one[0] != result_into else (one[0], Any, None) for one in self._fields])

    def _does_not_fit(self, error: msgspec.ValidationError) -> InvalidPayload:
        message = f"the payload does not fit {self.type_name}{self._called_with()}: {error}"
        return InvalidPayload(message, pointer=_pointer(str(error)))

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if not args and self._needed <= kwargs.keys() <= self.names:
            return kwargs  # The usual case; inspect.Signature.bind takes five microseconds.
        if self.context_name is not None and self.context_name in kwargs:
            raise InvalidOption(f"{self.context_name} is passed by the worker; do not enqueue it")
        if not self._open_ended and (unknown := set(kwargs) - self.names):
            wrong = min(unknown)
            hint = suggestion(wrong, self.names)
            raise InvalidPayload(f"{self.type_name}{self._called_with()} has no parameter {wrong!r}{hint}")
        try:
            bound = self._called_with().bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidPayload(f"{self.type_name}{self._called_with()}: {error}") from None
        for name, parameter in self._parameters.parameters.items():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                bound.update(bound.pop(name, {}))
        return bound

    def _field_list(self, hints: dict[str, Any]) -> list[tuple[Any, ...]]:
        fields: list[tuple[Any, ...]] = []
        for name, parameter in self._parameters.parameters.items():
            if name == self.context_name:
                continue
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                self._open_ended = True
                continue
            if parameter.kind in _BY_POSITION:
                raise InvalidOption(
                    f"the handler of {self.type_name!r} takes {parameter} by position; payloads only have "
                    f"named values, so make it a named parameter"
                )
            hint = _checkable(hints.get(name, Any))
            if parameter.default is inspect.Parameter.empty:
                fields.append((name, hint))
            else:
                # The default stays in the handler: it need not be JSON, and a changed one applies at once.
                fields.append((name, hint | UnsetType if hint is not Any else Any, UNSET))
        return fields

    def _called_with(self) -> inspect.Signature:
        """Return the signature that callers see: without the context."""
        kept = [p for name, p in self._parameters.parameters.items() if name != self.context_name]
        return self._parameters.replace(parameters=kept, return_annotation=inspect.Signature.empty)


def _decoder(fields: Sequence[tuple[Any, ...]]) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(_arguments_type(fields))


def _arguments_type(fields: Sequence[tuple[Any, ...]]) -> type[msgspec.Struct]:
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)


def _hints(handler: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(handler, include_extras=True)
    except (NameError, TypeError):  # names that only a type checker sees: not checked at run time
        return {}


def _context_name(parameters: inspect.Signature, hints: dict[str, Any]) -> str | None:
    named = [name for name in parameters.parameters if hints.get(name) is Context]
    if not named and "ctx" in parameters.parameters and "ctx" not in hints:
        named = ["ctx"]
    return named[0] if named else None


def _checkable(hint: Any) -> Any:
    """Return the hint if msgspec can check it, else Any."""
    try:
        msgspec.json.Decoder(hint)
        made = msgspec.inspect.type_info(hint)
    except (TypeError, NotImplementedError):
        return Any
    return Any if isinstance(made, msgspec.inspect.CustomType) else hint


def _result_type(hint: Any) -> Any:
    return Any if hint is None or hint is type(None) else _checkable(hint)


def _pointer(message: str) -> str:
    """Translate the path in a msgspec error, `$.a[0].b`, to a JSON pointer."""
    _, found, path = message.rpartition("`$")
    if not found:
        return ""
    parts = path.rstrip("`").replace("[", ".").replace("]", "").split(".")
    return "".join(f"/{part}" for part in parts if part)
