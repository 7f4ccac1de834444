"""API keys: what is sent, what is kept, and whether the two fit. (I3)

A key reads wl_<id>_<secret>. The secret has 256 bits: a plain hash of it is enough, nobody can try them all.
"""

import hashlib
import hmac
import re
from datetime import datetime
from typing import Any

from msgspec import Struct

from .._model.key import ApiKey, Scope
from ..errors import InvalidOption
from .input.quoting import quoted

PREFIX = "wl"
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SENT = re.compile(r"wl_([0-9A-Za-z]{12})_([0-9A-Za-z]{43})", re.ASCII)
_ID_LETTERS, _SECRET_LETTERS = 12, 43
_LEAST_BYTES = 42
_NOBODY = "0" * 64
SLOWEST, FASTEST = 0.001, 1_000_000


class PresentedKey(Struct, frozen=True):
    """A key as its holder sends it."""

    id: str
    secret: str

    def __repr__(self) -> str:
        return f"Sent(id={self.id!r}, secret=…)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("id", self.id)]

    @property
    def text(self) -> str:
        """What goes behind Bearer."""
        return f"{PREFIX}_{self.id}_{self.secret}"


def new_key(entropy: bytes) -> PresentedKey:
    """A key of 42 random bytes or more: with fewer, some keys would be likelier than others."""
    if len(entropy) < _LEAST_BYTES:
        raise ValueError(f"a key takes {_LEAST_BYTES} random bytes or more, not {len(entropy)}")
    number = int.from_bytes(entropy, "big")
    letters = []
    for _ in range(_ID_LETTERS + _SECRET_LETTERS):
        number, rest = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[rest])
    return PresentedKey("".join(letters[:_ID_LETTERS]), "".join(letters[_ID_LETTERS:]))


def parse_key(text: str) -> PresentedKey | None:
    """A key as it was sent; None if it cannot be one."""
    found = _SENT.fullmatch(text)
    return None if found is None else PresentedKey(found[1], found[2])


def hash_secret(secret: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def is_valid(sent: PresentedKey | None, kept: ApiKey | None, now: datetime) -> bool:
    """Whether what was sent is this key, and still good. It takes as long whether or not there is one."""
    given, wanted = hash_secret(sent.secret if sent else ""), kept.hash if kept else _NOBODY
    same = hmac.compare_digest(given.encode(), wanted.encode())  # as text it would have to be ASCII
    if sent is None or kept is None or not same:
        return False
    return kept.expires_at is None or now < kept.expires_at


def checked_rate(value: float) -> float:
    """How many requests a second a key may be used for, checked."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not SLOWEST <= value <= FASTEST:
        raise InvalidOption(
            f"a key's rate is {SLOWEST:g} to {FASTEST:,} requests a second, not {quoted(value)}"
        )
    return float(value)


def allows(key: ApiKey, scope: Scope) -> bool:
    """Whether a key may do what takes this scope."""
    return scope in key.scopes or Scope.ADMIN in key.scopes
