"""Make, parse and verify API keys.

A key reads wl_<id>_<secret>. The secret has 256 bits, too many to guess, so a plain hash of it is enough.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict, cast

from msgspec import Struct

from .._model.key import ApiKey, Scope
from ..errors import InvalidOption
from .input.options import checked_name, checked_names
from .input.quote import quoted, suggestion

PREFIX = "wl"
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SENT = re.compile(r"wl_([0-9A-Za-z]{12})_([0-9A-Za-z]{43})", re.ASCII)
_ID_LETTERS, _SECRET_LETTERS = 12, 43
_LEAST_BYTES = 42
_NOBODY = "0" * 64
_MAX_LABEL = 100
_ID = re.compile(r"[0-9A-Za-z]{12}", re.ASCII)
_HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)
RATES = {
    "rate": ("requests", 0.001, 1_000_000),
    "task_rate": ("tasks", 0.001, 1_000_000),
    "byte_rate": ("bytes", 1_000, 10_000_000_000),
}
"""The rates of a key: what each counts, and the least and the most that it may be a second."""


class KeyRates(TypedDict, total=False):
    """The rates of a key, as callers write them. None is the same as leaving one out."""

    rate: float | None
    task_rate: float | None
    byte_rate: float | None


class PresentedKey(Struct, frozen=True):
    """A key as its holder sends it."""

    id: str
    secret: str

    def __repr__(self) -> str:
        return f"PresentedKey(id={self.id!r}, secret=…)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("id", self.id)]

    @property
    def text(self) -> str:
        """The whole key, as sent after `Bearer`."""
        return f"{PREFIX}_{self.id}_{self.secret}"


def new_key(entropy: bytes) -> PresentedKey:
    """Make a key from at least 42 random bytes: with fewer, keys would not be uniformly distributed."""
    if len(entropy) < _LEAST_BYTES:
        raise ValueError(f"a key needs at least {_LEAST_BYTES} random bytes, got {len(entropy)}")
    number = int.from_bytes(entropy, "big")
    letters = []
    for _ in range(_ID_LETTERS + _SECRET_LETTERS):
        number, rest = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[rest])
    return PresentedKey("".join(letters[:_ID_LETTERS]), "".join(letters[_ID_LETTERS:]))


def parse_key(text: str) -> PresentedKey | None:
    """Parse the text of a key; None if it is malformed."""
    found = _SENT.fullmatch(text)
    return None if found is None else PresentedKey(found[1], found[2])


def hash_secret(secret: str) -> str:
    """Return the hash of a secret, which is what the store keeps."""
    return hashlib.sha256(secret.encode()).hexdigest()


def is_valid(sent: PresentedKey | None, kept: ApiKey | None, now: datetime) -> bool:
    """Whether this is the stored key and it has not expired. Takes the same time if there is no such key."""
    given, wanted = hash_secret(sent.secret if sent else ""), kept.hash if kept else _NOBODY
    same = hmac.compare_digest(given.encode(), wanted.encode())  # Text would have to be ASCII.
    if sent is None or kept is None or not same:
        return False
    return kept.expires_at is None or now < kept.expires_at


def checked_rates(rates: Mapping[str, Any]) -> KeyRates:
    """Check the rates of a key. Raises InvalidOption."""
    return cast("KeyRates", {name: _checked_rate(name, value) for name, value in rates.items()})


def _checked_rate(name: str, value: Any) -> float | None:
    if name not in RATES:
        raise InvalidOption(f"unknown option {quoted(name)} of a key{suggestion(name, RATES)}")
    if value is None:
        return None
    unit, least, most = RATES[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidOption(f"{name} must be from {least:,} to {most:,} {unit} a second, got {quoted(value)}")
    return float(value)


def checked_label(label: str) -> str:
    """Check the label of a key."""
    if not isinstance(label, str) or not label.strip() or len(label) > _MAX_LABEL or not label.isprintable():
        raise InvalidOption(f"a label must be 1 to {_MAX_LABEL} printable characters, got {quoted(label)}")
    return label


def checked_queues(queues: Iterable[str]) -> tuple[str, ...]:
    """Check the queues that a key is bound to."""
    found = tuple(dict.fromkeys(checked_name(queue, "queue") for queue in checked_names(queues, "queues")))
    if not found:
        raise InvalidOption("a key needs at least one queue; None allows every queue")
    return found


def check_stored(key: ApiKey) -> None:
    """Raise InvalidOption for the record of a key that no client makes."""
    if not _ID.fullmatch(key.name) or not _HASH.fullmatch(key.hash):
        raise InvalidOption("a key's id must be 12 letters and digits, its hash 64 lower-case hex digits")
    checked_label(key.label)
    if not key.scopes:
        raise InvalidOption("a key needs at least one scope")
    if key.tenant is not None:
        checked_name(key.tenant, "tenant")
    if key.queues is not None:
        checked_queues(key.queues)
    checked_rates({name: getattr(key, name) for name in RATES})


def allows(key: ApiKey, scope: Scope) -> bool:
    """Whether a key has this scope, or admin."""
    return scope in key.scopes or Scope.ADMIN in key.scopes
