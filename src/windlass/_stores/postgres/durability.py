"""What an acknowledged write survives, as the server is set up."""

from ..._store import Durability, Promise
from .connections import Server

UNKNOWN = Promise(durability=Durability.RELAXED, why="Postgres has not been asked yet what it promises")


def promise(server: Server) -> Promise:
    """Durable unless a setting says otherwise; then which."""
    weak = [f"{name}={value}" for name, value in server.settings.items() if value in _WEAK.get(name, ())]
    if weak:
        why = f"Postgres runs with {', '.join(weak)}: what was committed can be lost with the machine"
        return Promise(durability=Durability.RELAXED, why=why)
    commit = server.settings.get("synchronous_commit", "on")
    return Promise(
        durability=Durability.DURABLE,
        why=f"Postgres {server.version} commits to disk (fsync=on, synchronous_commit={commit})",
    )


_WEAK = {
    "fsync": ("off",),
    "full_page_writes": ("off",),
    "synchronous_commit": ("off",),
}
