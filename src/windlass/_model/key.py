"""API keys: what their holders may do over HTTP, and who is signed in with one."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from .brief import Brief


class Scope(StrEnum):
    """What a key allows. `admin` includes every other scope; no other scope includes another.

    `observe` goes with `operate` only: such a key never gets a payload, nor what repeats one.
    """

    ENQUEUE = "enqueue"  # enqueue tasks
    READ = "read"  # read tasks, queues and workers
    OBSERVE = "observe"  # the same without payloads and texts
    WORK = "work"  # claim, run and settle tasks
    OPERATE = "operate"  # cancel, replay, discard; pause, limit, schedule
    REVEAL = "reveal"  # see secret values
    ADMIN = "admin"  # everything, including keys


class Role(StrEnum):
    """What a person may do on the dashboard, if not a key tells: a set of scopes."""

    READ = "read"
    OPERATE = "operate"  # also enqueue
    ADMIN = "admin"

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The scopes that it has."""
        return _ROLES[self]


_ROLES = {
    Role.READ: (Scope.READ,),
    Role.OPERATE: (Scope.READ, Scope.ENQUEUE, Scope.OPERATE),
    Role.ADMIN: (Scope.ADMIN,),
}


class FormerSecret(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """The hash of a secret that a rotation has replaced; it is valid until `expires_at`."""

    hash: str
    expires_at: datetime


class ApiKey(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """A key as it is stored: the hash of its secret, never the secret itself.

    A revoked key is kept, so that a server that once had keys stays closed. `tenant` and `queues` restrict
    it; None is unrestricted. The rates are what it may do in a second, for each `windlass serve`: requests,
    tasks to enqueue, and bytes of those.
    """

    name: str  # the key's id, the first part of the text that its holder sends
    label: str
    hash: str  # SHA-256 of the secret, in hex
    scopes: tuple[Scope, ...]
    created_at: datetime
    expires_at: datetime | None = None
    tenant: str | None = None
    queues: tuple[str, ...] | None = None
    rate: float | None = None  # requests
    task_rate: float | None = None
    byte_rate: float | None = None
    revoked_at: datetime | None = None
    rotated_at: datetime | None = None
    former: tuple[FormerSecret, ...] = ()  # replaced by rotations, and still valid
    last_used_at: datetime | None = None  # to about a minute

    @property
    def former_expires_at(self) -> datetime | None:
        """When the last of the former secrets ends; None if there is none."""
        return max((former.expires_at for former in self.former), default=None)


class Login(Brief, Struct, frozen=True, gc=False, kw_only=True):
    """Someone who is signed in to the dashboard with a key.

    The browser has a random value, of which the store has only the hash. The login ends with the key, and
    with the secret that was used.
    """

    name: str  # SHA-256 of the browser's value, in hex
    key: str  # the key's id
    secret: str  # SHA-256 of the key's secret at that time, in hex
    created_at: datetime
    expires_at: datetime

    @property
    def id(self) -> str:
        """What people see of it."""
        return login_id(self.name)


def login_id(name: str) -> str:
    """Return the id of the login of this name: its first digits."""
    return name[:12]
