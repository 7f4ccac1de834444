"""Make, parse, verify, rotate and revoke API keys; and who stays signed in with one.

A key reads wl_<id>_<secret>. The secret has 256 bits, too many to guess, so a plain hash of it is enough.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypedDict, cast

from msgspec import Struct
from msgspec.structs import asdict, replace

from .._model.brief import Brief
from .._model.key import ApiKey, FormerSecret, Login, Scope
from ..errors import InvalidOption, Refused
from .input.options import checked_name, checked_names, checked_sequence
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


OVERLAP = timedelta(hours=24)
"""How long the former secret stays valid after a rotation, unless told otherwise."""

MAX_FORMER = 5
"""Former secrets that may be valid at once."""

KEEP_FOR = timedelta(days=90)
"""How long a revoked or expired key is kept at least."""

LOGIN_LIFETIME = timedelta(hours=8)
"""How long someone stays signed in to the dashboard."""

MAX_LOGINS = 1_000
"""Logins that a store keeps; beyond, the oldest end."""

_BLIND = (Scope.OBSERVE, Scope.OPERATE)
"""The scopes that a key may have which sees no payloads."""

_STATE = frozenset(
    ("name", "hash", "created_at", "expires_at", "revoked_at", "rotated_at", "former", "last_used_at")
)
"""Fields of a key that are not part of the request to create it."""


class Rejection(StrEnum):
    """Why a key that was sent is not valid."""

    UNKNOWN = "unknown"  # no such key, or another secret
    EXPIRED = "expired"
    REVOKED = "revoked"


class PresentedKey(Brief, Struct, frozen=True):
    """A key as its holder sends it."""

    id: str
    secret: str

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


def rejection(sent: PresentedKey | None, kept: ApiKey | None, now: datetime) -> Rejection | None:
    """Why this is not a valid key; None if it is. Takes the same time if there is no such key."""
    given = hash_secret(sent.secret if sent else "")
    if sent is None or kept is None:
        hmac.compare_digest(given.encode(), _NOBODY.encode())
        return Rejection.UNKNOWN
    return rejection_of_hash(given, kept, now)


def rejection_of_hash(given: str, kept: ApiKey, now: datetime) -> Rejection | None:
    """Why a secret with this hash is not valid for the key; None if it is."""
    sent = given.encode()  # Text would have to be ASCII.
    same = hmac.compare_digest(sent, kept.hash.encode())
    if kept.revoked_at is not None:
        return Rejection.REVOKED
    for former in kept.former:
        same |= hmac.compare_digest(sent, former.hash.encode()) and now < former.expires_at
    if not same:
        return Rejection.UNKNOWN
    return None if is_active(kept, now) else Rejection.EXPIRED


def is_active(key: ApiKey, now: datetime) -> bool:
    """Whether a key is neither revoked nor expired."""
    return key.revoked_at is None and (key.expires_at is None or now < key.expires_at)


def is_obsolete(key: ApiKey, now: datetime) -> bool:
    """Whether a key was revoked or expired so long ago that it need not be kept."""
    return any(ended is not None and now - ended > KEEP_FOR for ended in (key.revoked_at, key.expires_at))


def revoked(key: ApiKey, now: datetime) -> ApiKey:
    """Return the key as revoked, without its hash: former versions of windlass know no revoked keys."""
    return replace(key, revoked_at=now, hash=_NOBODY, former=())


def rotated(key: ApiKey, secret: str, now: datetime, overlap: timedelta) -> ApiKey:
    """Return the key with a new secret; those it had end after the overlap, unless they end sooner."""
    if not is_active(key, now):
        state = "expired" if key.revoked_at is None else "revoked"
        raise Refused(f"key {key.name} is {state}; create another with `windlass keys create`")
    until = now + overlap
    replaced = (FormerSecret(hash=key.hash, expires_at=until), *key.former)
    former = tuple(
        replace(one, expires_at=min(one.expires_at, until))
        for one in replaced
        if now < min(one.expires_at, until)
    )
    if len(former) > MAX_FORMER:
        raise Refused(
            f"key {key.name} already has {MAX_FORMER} former secrets that are still valid; wait until the "
            f"first of them expires, or rotate it with a shorter overlap"
        )
    return replace(key, hash=hash_secret(secret), rotated_at=now, former=former)


def id_from(idempotency_key: str) -> str:
    """Return the id of the key that is created with an idempotency key, so that a repeat finds it.

    The secret is random all the same: whoever guesses the idempotency key learns the id only.
    """
    digest = hashlib.sha256(f"windlass key {idempotency_key}".encode()).digest()
    return new_key(digest.rjust(_LEAST_BYTES, b"\0")).id


def is_same_request(key: ApiKey, other: ApiKey) -> bool:
    """Whether two keys were requested alike: the same label, scopes, bounds, lifetime and rates."""
    return _requested(key) == _requested(other)


def _requested(key: ApiKey) -> dict[str, Any]:
    wanted = {name: value for name, value in asdict(key).items() if name not in _STATE}
    return wanted | {"lifetime": key.expires_at and key.expires_at - key.created_at}


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


def check_id(key_id: str) -> None:
    """Raise InvalidOption for what is not the id of a key."""
    if not _ID.fullmatch(key_id):
        raise InvalidOption(f"a key's id must be 12 letters and digits, got {quoted(key_id)}")


def check_stored(key: ApiKey) -> None:
    """Raise InvalidOption for the record of a key that no client makes."""
    check_id(key.name)
    if not all(map(_HASH.fullmatch, (key.hash, *(former.hash for former in key.former)))):
        raise InvalidOption("the hashes of a key must be 64 lower-case hex digits")
    if len(key.former) > MAX_FORMER:
        raise InvalidOption(f"a key has at most {MAX_FORMER} former secrets")
    checked_label(key.label)
    checked_scopes(key.scopes)
    if key.tenant is not None:
        checked_name(key.tenant, "tenant")
    if key.queues is not None:
        checked_queues(key.queues)
    checked_rates({name: getattr(key, name) for name in RATES})


def checked_scopes(scopes: Iterable[Scope | str]) -> tuple[Scope, ...]:
    """Check the scopes of a key."""
    known = ", ".join(Scope)
    found = []
    for one in checked_sequence(scopes, "scopes", "names"):
        try:
            found.append(Scope(one))
        except ValueError:
            raise InvalidOption(f"there is no scope {quoted(one)}; the scopes are: {known}") from None
    if not found:
        raise InvalidOption(f"a key needs at least one scope; the scopes are: {known}")
    if Scope.OBSERVE in found and (others := [one for one in found if one not in _BLIND]):
        raise InvalidOption(
            f"the scope observe goes with operate only: with {others[0]} a key gets or writes payloads"
        )
    return tuple(dict.fromkeys(found))


def allows(key: ApiKey, scope: Scope) -> bool:
    """Whether a key has this scope, or admin. One with `observe` may read: it is shown less."""
    if not sees_payloads(key):
        return scope in key.scopes if scope in _BLIND else scope is Scope.READ
    return scope in key.scopes or Scope.ADMIN in key.scopes


def sees_payloads(key: ApiKey) -> bool:
    """Whether what a key reads has payloads, results and texts of tasks in it."""
    return Scope.OBSERVE not in key.scopes


# -- logins ------------------------------------------------------------------------------------------


def login_name(value: str) -> str:
    """Return the name under which the login of a browser is stored. The value has 256 bits."""
    return hashlib.sha256(value.encode()).hexdigest()


def new_login(value: str, key: ApiKey, secret: str, now: datetime) -> Login:
    """Return the login of a browser that gets this value. `secret`: the hash of the secret that was sent."""
    until = now + LOGIN_LIFETIME
    return Login(name=login_name(value), key=key.name, secret=secret, created_at=now, expires_at=until)


def is_signed_in(login: Login, key: ApiKey | None, now: datetime) -> bool:
    """Whether a login still holds: until it, its key or the secret that was used ends."""
    if key is None or key.name != login.key or now >= login.expires_at:
        return False
    return rejection_of_hash(login.secret, key, now) is None


def superfluous_logins(logins: Sequence[Login], now: datetime) -> Sequence[Login]:
    """Return the logins to remove: those that have expired, and the oldest beyond `MAX_LOGINS`."""
    expired_first = sorted(logins, key=lambda login: (now < login.expires_at, login.created_at))
    expired = sum(now >= login.expires_at for login in logins)
    return expired_first[: max(expired, len(logins) - MAX_LOGINS)]


def check_login(login: Login) -> None:
    """Raise InvalidOption for the record of a login that no server makes."""
    if not (_HASH.fullmatch(login.name) and _HASH.fullmatch(login.secret)):
        raise InvalidOption("the name and the secret of a login must be 64 lower-case hex digits")
    check_id(login.key)
    if login.expires_at - login.created_at > LOGIN_LIFETIME:
        raise InvalidOption(f"a login lasts at most {LOGIN_LIFETIME.total_seconds() / 3600:.0f} hours")
