"""Keys and digests for idempotency, deduplication and exactly-once effects."""

import re
from hashlib import sha256

from ...errors import InvalidOption
from .payload import canonical
from .quote import quoted

MAX_KEY_BYTES = 255

RESERVED = "\x1f"
"""The first character of keys that windlass makes itself: not printable, so that no caller can give one."""

_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


def checked_key(key: str, what: str = "idempotency key") -> str:
    """Check a key: printable text, short enough for every store's index. `what` names it in errors."""
    if not isinstance(key, str) or not key:
        raise InvalidOption(f"the {what} must be a non-empty string, got {quoted(key)}")
    if not key.isprintable():
        raise InvalidOption(f"the {what} {quoted(key)} contains characters that are not printable")
    if len(key.encode()) > MAX_KEY_BYTES:
        raise InvalidOption(f"the {what} is longer than {MAX_KEY_BYTES} bytes; pass a hash of it")
    return key


def reserved_key(*parts: str) -> str:
    """Return a key that no caller can give; the parts must be printable."""
    return RESERVED + RESERVED.join(parts)


def is_fingerprint(text: str) -> bool:
    """Whether `fingerprint` can return this text."""
    return _DIGEST.fullmatch(text) is not None


def request_digest(type_name: str, payload: bytes) -> str:
    """Hash what an idempotency key stands for: the same key must come with the same type and payload."""
    return _digest(type_name.encode(), canonical(payload))


def fingerprint(type_name: str, payload: bytes, priority: int, tenant: str) -> str:
    """Hash what makes unique tasks equal: type, payload, priority and tenant."""
    return _digest(type_name.encode(), canonical(payload), str(priority).encode(), tenant.encode())


def external_key(task_id: str, name: str = "") -> str:
    """Return an idempotency key for an external API: constant over a task's attempts, one for each name."""
    return _digest(b"windlass", task_id.encode(), name.encode())[:40]


def _digest(*parts: bytes) -> str:
    digest = sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()
