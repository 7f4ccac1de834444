"""The declared type of a handler's result."""

import logging
from typing import Any, Never, NoReturn

import msgspec
from msgspec import Raw

from .._policy.input.payload import decode, encode
from .._policy.input.quote import kind_of
from .._policy.secrets.encrypted import refuse_marked
from ..errors import InvalidPayload
from ..signals import Fatal
from .annotation import Encoder, checked, needs_pydantic, pydantic_codec, shown
from .context import running

logger = logging.getLogger("windlass.worker")

_NEVER = (Never, NoReturn)  # annotations of handlers that always raise


class ResultType:
    """The declared type of a result: how to encode results, and to decode them as declared."""

    def __init__(self, hint: Any, what: str) -> None:
        hint = Any if hint in _NEVER else hint
        self._is_none = hint in (None, type(None))
        self._codec = pydantic_codec(hint, "", what) if needs_pydantic(hint) else None
        self._encode: Encoder | None
        kind, self._encode = checked(hint, what) if self._codec is None else (Raw, self._codec.encode)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)
        self._annotation = "None" if self._is_none else shown(hint)
        self._is_checked = hint is not Any

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
            if self._is_checked and not self._is_none:
                self._check(value, b"null")
            return None
        try:
            data = encode(value if self._encode is None else self._encode(value), "result")
            refuse_marked(data)
        except InvalidPayload as error:
            # The work is done, and a retry would not make its result JSON.
            raise Fatal(f"the handler ran, but {error}") from None
        if self._is_checked:
            self._check(value, data)
        return data

    def decode(self, data: bytes) -> Any:
        """Return a result as it is declared, or as plain JSON values if it does not fit that."""
        try:
            return self._as_declared(data)
        except (msgspec.ValidationError, InvalidPayload):
            return decode(data)

    def _as_declared(self, data: bytes) -> Any:
        return self._decoder.decode(data) if self._codec is None else self._codec.decode(data)

    def _check(self, value: Any, data: bytes) -> None:
        """Log, once for the type, that a result does not fit its annotation; it is kept all the same."""
        try:
            self._as_declared(data)
        except Exception as error:  # noqa: BLE001 - perhaps of a validator, and the task must complete
            self._is_checked = False
            task = running.get()
            logger.warning(
                "task %s of type %s returned %s, which does not fit its annotation %s%s; `result()` gives "
                "plain JSON values. Others of this type are not logged",
                None if task is None else task.id,
                None if task is None else task.type,
                None if value is None else kind_of(value),
                self._annotation,
                _place(error),
            )


def _place(error: Exception) -> str:
    """Return where and how a result does not fit, unless the message may show a value of it."""
    text = str(error)
    return f": {text}" if text.startswith(("Expected ", "Object missing ", "Input should ", "Field ")) else ""
