"""A handler's parameters as a type: what its payload must look like, checked when it is enqueued."""

import inspect
import typing
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType

from .._policy.input.payload import encode_payload
from ..errors import InvalidOption, InvalidPayload
from .context import Context

RESULT: Any = type("RESULT", (), {"__repr__": lambda _: "RESULT"})()
"""Stands for the predecessor's result in a step's arguments (in a group: the list of all results)."""


_BY_POSITION = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)


class Signature:
    """What a handler takes, apart from its context."""

    def __init__(self, handler: Callable[..., Any], type_name: str) -> None:
        self.type_name = type_name
        self._parameters = inspect.signature(handler)
        hints = _hints(handler)
        self.context_name = _context_name(self._parameters, hints)
        self.result_type = _result_type(hints.get("return", Any))
        self._open_ended = False
        self._fields = self._field_list(hints)
        self.names = frozenset(field[0] for field in self._fields)
        self._decoder = msgspec.json.Decoder(self._struct())
        self._has_defaults = any(len(field) == 3 for field in self._fields)
        self._needed = frozenset(field[0] for field in self._fields if len(field) == 2)

    @property
    def fields(self) -> frozenset[str] | None:
        """The names of its payload's fields; None if it takes any."""
        return None if self._open_ended else self.names

    def payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bytes, str | None]:
        """The payload of a call, checked against the parameters, and which of them takes the result."""
        bound = self._bind(args, kwargs)
        takers = [name for name, value in bound.items() if value is RESULT]
        if not takers:
            data = encode_payload(bound)
            self._check(data)
            return data, None
        if len(takers) > 1:
            raise InvalidPayload(f"{' and '.join(takers)} are both RESULT; one parameter takes it")
        data = encode_payload({name: value for name, value in bound.items() if value is not RESULT})
        self._check_all_but(takers[0], data)
        return data, takers[0]

    def _check(self, payload: bytes) -> None:
        if self._open_ended:
            return
        try:
            self._decoder.decode(payload)
        except msgspec.ValidationError as error:
            raise self._misfit(error) from None

    def _check_all_but(self, taker: str, payload: bytes) -> None:
        """Check what is given already; the result will come later."""
        if self._open_ended:
            return
        fields = [field if field[0] != taker else (taker, Any, None) for field in self._fields]
        given = msgspec.defstruct("Given", fields, kw_only=True, forbid_unknown_fields=True)
        try:
            msgspec.json.decode(payload, type=given)
        except msgspec.ValidationError as error:
            raise self._misfit(error) from None

    def arguments(self, payload: bytes) -> dict[str, Any]:
        """The handler's arguments from a payload; InvalidPayload if it does not fit."""
        if self._open_ended:
            return typing.cast(dict[str, Any], msgspec.json.decode(payload))
        try:
            values = msgspec.structs.asdict(self._decoder.decode(payload))
        except msgspec.ValidationError as error:
            raise self._misfit(error) from None
        if self._has_defaults:
            return {name: value for name, value in values.items() if value is not UNSET}
        return values

    def _misfit(self, error: msgspec.ValidationError) -> InvalidPayload:
        return InvalidPayload(
            f"the payload does not fit {self.type_name}{self._shown()}: {error}", pointer=_pointer(str(error))
        )

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if not args and self._needed <= kwargs.keys() <= self.names:
            return kwargs  # as it nearly always is, and Python's own way takes five microseconds
        if self.context_name is not None and self.context_name in kwargs:
            raise InvalidOption(f"{self.context_name} is given to the handler by the worker, not enqueued")
        if not self._open_ended and (unknown := set(kwargs) - self.names):
            wrong = min(unknown)
            close = get_close_matches(wrong, self.names, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise InvalidPayload(f"{self.type_name}{self._shown()} has no parameter {wrong!r}{hint}")
        try:
            parameters = self._parameters
            if self.context_name is not None:
                kept = [p for name, p in parameters.parameters.items() if name != self.context_name]
                parameters = parameters.replace(parameters=kept)
            bound = parameters.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidPayload(f"{self.type_name}{self._shown()}: {error}") from None
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
                    f"the handler of {self.type_name!r} takes {parameter} by position; a payload has named "
                    f"values only, so give every parameter a name"
                )
            hint = _checkable(hints.get(name, Any))
            if parameter.default is inspect.Parameter.empty:
                fields.append((name, hint))
            else:
                # The default itself stays in the handler: it need not be JSON, and a new one takes effect.
                fields.append((name, hint | UnsetType if hint is not Any else Any, UNSET))
        return fields

    def _struct(self) -> Any:
        return msgspec.defstruct("Arguments", self._fields, kw_only=True, forbid_unknown_fields=True)

    def _shown(self) -> str:
        kept = [p for name, p in self._parameters.parameters.items() if name != self.context_name]
        return str(self._parameters.replace(parameters=kept, return_annotation=inspect.Signature.empty))


def _hints(handler: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(handler, include_extras=True)
    except (NameError, TypeError):  # names only a type checker can see: such parameters go unchecked
        return {}


def _context_name(parameters: inspect.Signature, hints: dict[str, Any]) -> str | None:
    named = [name for name in parameters.parameters if hints.get(name) is Context]
    if not named and "ctx" in parameters.parameters and "ctx" not in hints:
        named = ["ctx"]
    return named[0] if named else None


def _checkable(hint: Any) -> Any:
    """The hint if msgspec can check it; Any for a class it knows nothing of."""
    try:
        msgspec.json.Decoder(hint)
        made = msgspec.inspect.type_info(hint)
    except (TypeError, NotImplementedError):
        return Any
    return Any if isinstance(made, msgspec.inspect.CustomType) else hint


def _result_type(hint: Any) -> Any:
    return Any if hint is None or hint is type(None) else _checkable(hint)


def _pointer(message: str) -> str:
    """The place that a msgspec error names, `$.a[0].b`, as a JSON pointer."""
    _, found, path = message.rpartition("`$")
    if not found:
        return ""
    parts = path.rstrip("`").replace("[", ".").replace("]", "").split(".")
    return "".join(f"/{part}" for part in parts if part)
