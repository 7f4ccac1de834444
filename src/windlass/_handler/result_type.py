"""The declared type of a handler's result."""

from typing import Any, Never, NoReturn

import msgspec
from msgspec import Raw

from .._policy.input.encrypted import refuse_marked
from .._policy.input.payload import decode, encode
from ..errors import InvalidPayload
from ..signals import Fatal
from .annotation import Encoder, checked, needs_pydantic, pydantic_codec

_NOTHING = (None, type(None), Never, NoReturn)  # annotations of handlers that return nothing


class ResultType:
    """The declared type of a result: how to encode results, and to decode them as declared."""

    def __init__(self, hint: Any, what: str) -> None:
        hint = Any if hint in _NOTHING else hint
        self._codec = pydantic_codec(hint, "", what) if needs_pydantic(hint) else None
        self._encode: Encoder | None
        kind, self._encode = checked(hint, what) if self._codec is None else (Raw, self._codec.encode)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)

    @property
    def secret(self) -> tuple[str, ...]:
        """The names of fields that are secret by their types."""
        return () if self._codec is None else self._codec.secret

    def schema(self, refs: str) -> dict[str, Any]:
        """Return the JSON schema of results, with what it refers to, by `refs` and a name, in `$defs`."""
        if self._codec is not None:
            return self._codec.schema(f"{refs}{{model}}")
        (schema,), made = msgspec.json.schema_components([self._decoder.type], ref_template=f"{refs}{{name}}")
        return {**schema, "$defs": made}

    def encode(self, value: Any) -> bytes | None:
        """Encode what a handler returned as JSON; None stays None. Raises Fatal if it is not JSON."""
        if value is None:
            return None
        try:
            data = encode(value if self._encode is None else self._encode(value), "result")
            refuse_marked(data)
            return data
        except InvalidPayload as error:
            # The work is done, and a retry would not make its result JSON.
            raise Fatal(f"the handler ran, but {error}") from None

    def decode(self, data: bytes) -> Any:
        """Return a result as it is declared, or as plain JSON values if it does not fit that."""
        try:
            return self._decoder.decode(data) if self._codec is None else self._codec.decode(data)
        except (msgspec.ValidationError, InvalidPayload):
            return decode(data)
