"""Encrypted values in JSON: how they are marked, found, refused from callers, and shown."""

import re
from typing import Any

from ...errors import InvalidPayload
from . import patterns

PREFIX = "~windlass-encrypted:"
"""How the text of an encrypted value begins: followed by format version, key id and ciphertext."""

MARKER = f'"{PREFIX}'.encode()
"""How an encrypted value begins in JSON. Documents without it hold none."""

HINT = ord(PREFIX[0])
"""The first byte of the prefix, rare in JSON: to look for a byte first takes a fortieth of the time."""

SHOWN = "[encrypted]"
_KEY = re.compile(rb'"~windlass-encrypted:\d+:([\w.-]+):', re.ASCII)


def key_ids(*documents: bytes | None) -> tuple[str, ...]:
    """Return the ids of the keys that values in these JSON documents are encrypted with, sorted."""
    return tuple(sorted({found.decode() for data in documents if data for found in _KEY.findall(data)}))


def has_secret_fields(secret: tuple[str, ...]) -> bool:
    """Whether fields are named among what is secret, which are encrypted; matches of patterns are not."""
    return any(not one.startswith(patterns.PREFIX) for one in secret)


def refuse_marked(*documents: bytes | None) -> None:
    """Raise InvalidPayload if a caller's JSON holds text that could be mistaken for an encrypted value."""
    for data in documents:
        if data is not None and MARKER in data:
            raise InvalidPayload(
                f'the JSON contains text that begins with "{PREFIX}", which marks encrypted values; '
                f"pass other text"
            )


def without_encrypted(value: Any) -> Any:
    """Return a decoded document with `[encrypted]` in place of each encrypted value."""
    if isinstance(value, dict):
        return {name: without_encrypted(item) for name, item in value.items()}
    if isinstance(value, list):
        return [without_encrypted(item) for item in value]
    return SHOWN if isinstance(value, str) and value.startswith(PREFIX) else value
