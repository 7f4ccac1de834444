"""What an acknowledged write survives, as the server is set up."""

from ...._store.protocol import Durability, Promise
from .client import Server

UNKNOWN = Promise(durability=Durability.RELAXED, why="Postgres has not been asked yet what it promises")

_DURABLE = "Postgres writes a commit to the disk before it answers"
_WEAK = {
    ("fsync", "off"): "fsync is off: a crash of the machine can destroy the whole database; switch it on",
    (
        "full_page_writes",
        "off",
    ): "full_page_writes is off: a crash of the machine can tear pages; switch it on",
    ("synchronous_commit", "off"): (
        "synchronous_commit is off for this user: a crash of the server loses the last commits that it "
        "answered; switch it on, for this user at least"
    ),
}


def promise(server: Server) -> Promise:
    """What an acknowledged write survives on a server that is set up so."""
    weak = [why for (name, value), why in _WEAK.items() if server.settings.get(name) == value]
    if weak:
        return Promise(durability=Durability.RELAXED, why="; ".join(weak))
    return Promise(durability=Durability.DURABLE, why=_DURABLE)
