"""A handler's parameters as a type, which payloads are checked against when they are enqueued."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from .._policy.input.payload import encode_payload
from .._policy.input.quote import suggestion
from .._policy.secrets.fields import MASK, is_secret_field, merged
from .._policy.secrets.mask import mask_of
from ..errors import InvalidOption, InvalidPayload
from .annotation import checked, needs_pydantic, pydantic_codec, takes_naive
from .dependencies import injected, parameters_of
from .naive_datetimes import refuse_naive
from .result_type import ResultType
from .secret_fields import REFS

if TYPE_CHECKING:
    from .pydantic_codec import PydanticCodec

RESULT: Any = type("RESULT", (), {"__repr__": lambda _: "RESULT"})()
"""An argument of a step that stands for the result of the task before it (in a group: all results)."""

_BY_POSITION = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)
_CHECK = "__windlass_payload_check__"
H = TypeVar("H", bound=Callable[..., Any])


def payload_check(check: Callable[[Any], None]) -> Callable[[H], H]:
    """Declare a check of a handler's payloads at enqueue, for what types cannot say.

    It gets the decoded payload, whose missing fields are UNSET, and raises InvalidPayload. msgspec has
    patterns, but releases memory twice if a union has one beside a list (0.22).
    """

    def declare(handler: H) -> H:
        setattr(handler, _CHECK, check)
        return handler

    return declare


class Signature:
    """The parameters of a handler, without those that the worker passes, and its return type."""

    def __init__(self, handler: Callable[..., Any], type_name: str) -> None:
        self.type_name = type_name
        self.masked: tuple[str, ...] = ()  # secret fields, whose values errors leave out
        whose = f"the handler of {type_name!r}"
        self._parameters, hints = parameters_of(handler, whose)
        self.context_name, self.depends = injected(self._parameters, hints, whose)
        self._injected = {self.context_name, *self.depends}
        self._refuse_method(handler, whose)
        self._encoders: dict[str, Callable[[Any], Any]] = {}  # of parameters that are not plain
        self._codecs: dict[str, PydanticCodec] = {}
        self._rest: msgspec.json.Decoder[Any] | None = None  # of **kwargs
        self._rest_takes_naive = False
        self._timed: set[str] = set()  # parameters that take datetimes with and without a time zone
        self._fields = self._field_list(hints)
        self.names = frozenset(field[0] for field in self._fields)
        self._decoder = self._decoder_of(self._fields)
        self._has_defaults = any(len(field) == 3 for field in self._fields)
        self._needed = frozenset(field[0] for field in self._fields if len(field) == 2)
        self._refuse: Callable[[Any], None] | None = getattr(handler, _CHECK, None)
        self.result = ResultType(hints.get("return", Any), f"the result of {type_name!r}")
        self._has_result = "return" in hints

    @property
    def fields(self) -> frozenset[str] | None:
        """The names of the payload's fields; None if the handler takes any (**kwargs)."""
        return None if self._rest is not None else self.names

    @property
    def secret(self) -> tuple[str, ...]:
        """The names of fields that are secret by their types, such as `SecretStr`."""
        return merged(*(codec.secret for codec in self._codecs.values()), self.result.secret)

    def payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bytes, str | None]:
        """Encode and check the payload of a call; also return the parameter given as RESULT, if any.

        Raises InvalidPayload, or InvalidOption if the context is given.
        """
        bound = self._bind(args, kwargs)
        takers = [name for name, value in bound.items() if value is RESULT]
        if len(takers) > 1:
            raise InvalidPayload(f"{' and '.join(takers)} are both RESULT; give it to one parameter")
        if takers:  # the result is not known yet: check the other parameters
            bound = {name: value for name, value in bound.items() if value is not RESULT}
        if self._encoders:
            bound = self.plain(bound)
        data = encode_payload(bound)
        if takers:
            self.check(data, takers[0])
            return data, takers[0]
        self.check(data)
        return data, None

    def plain(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as values that `encode_payload` takes. Raises InvalidPayload."""
        made = dict(given)
        for name, encode in self._encoders.items():
            if name in made:
                try:
                    made[name] = encode(made[name])
                except InvalidPayload as error:
                    if name not in self._codecs or not is_secret_field(name, self.masked):
                        raise
                    # What Pydantic or a serializer of a model says may quote the value.
                    text = f"Pydantic cannot encode {error.pointer}: {MASK}"
                    raise InvalidPayload(text, pointer=error.pointer) from None
        return made

    def arguments(self, payload: bytes) -> dict[str, Any]:
        """Decode a payload into the handler's arguments; raises InvalidPayload if it does not fit."""
        try:
            made = self._decoder.decode(payload)
            if self._codecs:
                self._convert(made)
        except (ValueError, InvalidPayload, RecursionError) as error:
            raise self._does_not_fit(error, payload) from None
        values = msgspec.structs.asdict(made)
        if self._has_defaults:
            values = {name: value for name, value in values.items() if value is not UNSET}
        return values if self._rest is None else {**self._others(payload, self._rest), **values}

    def check(self, payload: bytes, result_into: str | None = None) -> None:
        """Raise InvalidPayload unless the payload fits; a parameter that receives a result may be missing."""
        decoder = self._decoder
        if result_into is not None:
            fields = [one if one[0] != result_into else (one[0], Any, UNSET) for one in self._fields]
            decoder = self._decoder_of(fields)
        try:
            made = decoder.decode(payload)
            if self._codecs:
                self._convert(made)
            if self._timed:
                self._refuse_naive(msgspec.structs.asdict(made), payload)
            if self._refuse is not None:
                self._refuse(made)
        except (ValueError, InvalidPayload, RecursionError) as error:
            raise self._does_not_fit(error, payload) from None
        if self._rest is not None:
            self._check_others(payload, self._rest)

    def schema(self, refs: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the JSON schema of payloads, and the schemas that it refers to by `refs` and their names."""
        _, made = msgspec.json.schema_components([self._decoder.type], ref_template=f"{refs}{{name}}")
        schema: dict[str, Any] = made.pop("Arguments")
        del schema["title"]
        for name, codec in self._codecs.items():
            described = codec.schema(f"{refs}{{model}}")
            made |= described.pop("$defs", {})
            schema["properties"][name] = described
        return schema, made

    def documents(self, refs: str) -> list[dict[str, Any]]:
        """Return the JSON schema of payloads and, if it is annotated, that of the result.

        Each has what it refers to, by `refs` and a name, in `$defs`. One with a type that msgspec or Pydantic
        cannot describe is {}, which is anything.
        """

        def payload() -> dict[str, Any]:
            schema, made = self.schema(refs)
            return {**schema, "additionalProperties": self._rest is not None, "$defs": made}

        documents = []
        for describe in (payload, partial(self.result.schema, refs))[: 1 + self._has_result]:
            try:
                documents.append(describe())
            except Exception:  # noqa: BLE001 - types may describe themselves, and nothing depends on it
                documents.append({})
        return documents

    @cached_property
    def known_documents(self) -> list[dict[str, Any]]:
        """The same, described once: names of secret fields may be checked at every enqueue."""
        return self.documents(REFS)

    def _convert(self, made: msgspec.Struct) -> None:
        """Replace what Pydantic converts; parameters with defaults may be UNSET."""
        for name, codec in self._codecs.items():
            if isinstance(raw := getattr(made, name), Raw):
                setattr(made, name, codec.decode(raw))

    def _refuse_naive(self, values: Mapping[str, Any], payload: bytes) -> None:
        """Raise InvalidPayload for text that was decoded as a datetime without a time zone."""
        for name, plain in msgspec.json.decode(payload).items():
            if name in self._codecs and name in self._timed:
                self._codecs[name].refuse_naive(values[name])
            elif name in self._timed:
                refuse_naive(values[name], plain, (name,))

    def _check_others(self, payload: bytes, decoder: "msgspec.json.Decoder[Any]") -> None:
        others = self._others(payload, decoder)
        plain = msgspec.json.decode(payload) if self._rest_takes_naive else {}
        try:
            for name in plain.keys() & others.keys():
                refuse_naive(others[name], plain[name], (name,))
        except InvalidPayload as error:
            raise self._does_not_fit(error, payload) from None

    def _others(self, payload: bytes, decoder: "msgspec.json.Decoder[Any]") -> dict[str, Any]:
        """Decode the parameters that the handler does not name, and takes as **kwargs."""
        members = msgspec.json.decode(payload, type=dict[str, Raw])
        try:
            return {name: decoder.decode(raw) for name, raw in members.items() if name not in self.names}
        except msgspec.ValidationError as error:
            raise self._does_not_fit(error, payload) from None

    def _does_not_fit(self, error: Exception, payload: bytes) -> InvalidPayload:
        """Return the error to raise. Messages of msgspec, Pydantic and validators may quote secret values."""
        match error:
            case InvalidPayload(pointer=pointer):
                pass
            case msgspec.ValidationError():
                pointer = _pointer(str(error))
            case _:  # stored by another program, or damaged
                return InvalidPayload("the payload is not JSON")
        mask = mask_of(payload, self.masked)
        message = f"the payload does not fit {self.type_name}{self._called_with()}: {mask.text(str(error))}"
        return InvalidPayload(message, pointer=mask.text(pointer))

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if not args and self._needed <= kwargs.keys() <= self.names:
            return kwargs  # The usual case; inspect.Signature.bind takes five microseconds.
        if passed := self._injected & kwargs.keys():
            raise InvalidOption(f"{min(map(str, passed))} is passed by the worker; do not enqueue it")
        if self._rest is None and (unknown := set(kwargs) - self.names):
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

    def _refuse_method(self, handler: Callable[..., Any], whose: str) -> None:
        """Raise InvalidOption for a function whose first parameter is the object that a method is called on.

        Other functions in the body of a class may be static methods, which need none.
        """
        first = next(iter(self._parameters.parameters), "")
        is_in_class = "." in getattr(handler, "__qualname__", "").rpartition("<locals>.")[2]
        if first in self._injected or first not in (("self", "cls") if is_in_class else ("self",)):
            return
        if is_in_class:
            raise InvalidOption(
                f"{whose} is a method, and a worker has no {first!r} to call it on; declare a function at "
                f"the top level of a module, which may make the object and call the method"
            )
        raise InvalidOption(
            f"{whose} has a parameter 'self', which nobody passes; for the context of the task declare "
            f"`ctx: Context`, else rename it"
        )

    def _field_list(self, hints: dict[str, Any]) -> list[tuple[Any, ...]]:
        fields: list[tuple[Any, ...]] = []
        for name, parameter in self._parameters.parameters.items():
            if name in self._injected:
                continue
            what = f"the parameter {name!r} of {self.type_name!r}"
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                kind = checked(hints.get(name, Any), what)[0]
                self._rest = msgspec.json.Decoder(kind)
                self._rest_takes_naive = takes_naive(kind)
                continue
            if parameter.kind in _BY_POSITION:
                raise InvalidOption(
                    f"the handler of {self.type_name!r} takes {parameter} by position; payloads only have "
                    f"named values, so make it a named parameter"
                )
            hint = self._field_type(name, hints.get(name, Any), what)
            if parameter.default is inspect.Parameter.empty:
                fields.append((name, hint))
            else:
                # The default stays in the handler: it need not be JSON, and a changed one applies at once.
                fields.append((name, hint if hint in (Any, Raw) else hint | UnsetType, UNSET))
        return fields

    def _field_type(self, name: str, hint: Any, what: str) -> Any:
        """Return the type to decode a parameter as; Raw if Pydantic does that."""
        if needs_pydantic(hint):
            codec = self._codecs[name] = pydantic_codec(hint, name, what)
            self._encoders[name] = codec.encode
            self._timed |= {name} if codec.takes_naive else set()
            return Raw
        made, encode = checked(hint, what)
        self._timed |= {name} if takes_naive(made) else set()
        if encode is not None:
            self._encoders[name] = encode
        return made

    def _decoder_of(self, fields: Sequence[tuple[Any, ...]]) -> "msgspec.json.Decoder[Any]":
        closed = self._rest is None
        return msgspec.json.Decoder(
            msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=closed)
        )

    def _called_with(self) -> inspect.Signature:
        """Return the signature that callers see: without what the worker passes."""
        kept = [p for name, p in self._parameters.parameters.items() if name not in self._injected]
        return self._parameters.replace(parameters=kept, return_annotation=inspect.Signature.empty)


def _pointer(message: str) -> str:
    """Translate the path in a msgspec error, `$.a[0].b`, to a JSON pointer."""
    _, found, path = message.rpartition("`$")
    if not found:
        return ""
    parts = path.rstrip("`").replace("[", ".").replace("]", "").split(".")
    return "".join(f"/{part}" for part in parts if part)
