"""An API key: who may ask what over HTTP."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class Scope(StrEnum):
    """What a key allows. None includes another; `admin` includes all."""

    ENQUEUE = "enqueue"  # hand in tasks
    READ = "read"  # look at tasks, queues, workers
    WORK = "work"  # be a worker: claim, run and settle
    OPERATE = "operate"  # cancel, replay, discard; pause, limit, schedule
    ADMIN = "admin"  # everything, keys too


class ApiKey(Struct, frozen=True, gc=False, kw_only=True):
    """A key, by its id. The secret itself is shown once and kept nowhere: only its hash is.

    `tenant` and `queues` bind it: None is not bound. `rate` is how many requests a second a server answers.
    """

    name: str  # the key's id, the first part of what its holder sends
    label: str
    hash: str  # SHA-256 of the secret, in hex
    scopes: tuple[Scope, ...]
    created_at: datetime
    expires_at: datetime | None = None
    tenant: str | None = None
    queues: tuple[str, ...] | None = None
    rate: float | None = None
