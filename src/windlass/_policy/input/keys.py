"""Keys and digests for idempotency, deduplication and exactly-once effects."""

from hashlib import sha256

from ..._model.task import RESERVED
from ...errors import InvalidOption
from .payload import canonical
from .quote import quoted

MAX_KEY_BYTES = 255
_MAX_RESERVED_BYTES = 512  # the name of a schedule, and a caller's key


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


def check_stored_key(key: str) -> None:
    """Raise InvalidOption for a key that neither a caller can give nor `reserved_key` returns."""
    if not key.startswith(RESERVED):
        checked_key(key)
    elif len(key.encode()) > _MAX_RESERVED_BYTES or not key.replace(RESERVED, "").isprintable():
        raise InvalidOption(f"{quoted(key)} is not an idempotency key that windlass makes")


def request_digest(type_name: str, payload: bytes) -> str:
    """Hash what an idempotency key stands for: the same key must come with the same type and payload."""
    return digest(type_name.encode(), canonical(payload))


def external_key(task_id: str, name: str = "") -> str:
    """Return an idempotency key for an external API: constant over a task's attempts, one for each name."""
    return digest(b"windlass", task_id.encode(), name.encode())[:40]


def digest(*parts: bytes) -> str:
    """Hash texts so that no other way to divide them has the same hash."""
    found = sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big"))
        found.update(part)
    return found.hexdigest()
