"""From what a handler gives as its result to JSON."""

from typing import Any

from .._policy.input.payload import encode
from ..errors import InvalidPayload
from ..signals import Fatal


def encoded(value: Any) -> bytes | None:
    """The JSON of a result; None for None."""
    if value is None:
        return None
    try:
        return encode(value, "result")
    except InvalidPayload as error:
        # The work is done, and doing it again would not make its result JSON.
        raise Fatal(f"the handler ran, but {error}") from None
