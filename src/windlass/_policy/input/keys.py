"""Keys: what makes two requests the same, or two effects. (P7, P8, D15, D16)"""

from hashlib import sha256

from ...errors import InvalidOption
from .payload import canonical
from .quoting import quoted

MAX_KEY_BYTES = 255


def idempotency_key(key: str) -> str:
    """The caller's key, checked: short enough for every store's index, and plain text."""
    return _checked(key, "idempotency key")


def once_key(key: str) -> str:
    """The key of an effect that is to happen once, checked alike."""
    return _checked(key, "key of ctx.once")


def _checked(key: str, what: str) -> str:
    if not isinstance(key, str) or not key:
        raise InvalidOption(f"the {what} must be a non-empty string, not {quoted(key)}")
    if not key.isprintable():
        raise InvalidOption(f"the {what} {quoted(key)} holds characters that cannot be printed")
    if len(key.encode()) > MAX_KEY_BYTES:
        raise InvalidOption(f"the {what} is longer than {MAX_KEY_BYTES} bytes; pass a hash of it")
    return key


def request_digest(type_name: str, payload: bytes) -> str:
    """What an idempotency key stands for: the same key must come with the same type and payload."""
    return _digest(type_name.encode(), canonical(payload))


def fingerprint(type_name: str, payload: bytes, priority: int, tenant: str) -> str:
    """Equal for tasks that would do the same work: type, payload, priority, and whose they are."""
    return _digest(type_name.encode(), canonical(payload), str(priority).encode(), tenant.encode())


def external_key(task_id: str, name: str = "") -> str:
    """A key for a call to an outside API: the same at every attempt of a task, different for each `name`."""
    return _digest(b"windlass", task_id.encode(), name.encode())[:40]


def _digest(*parts: bytes) -> str:
    digest = sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()
