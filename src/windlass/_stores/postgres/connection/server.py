"""The server as found at the first connection: pooler, durability; and the settings to use."""

from typing import Any

import asyncpg
from msgspec import Struct

from ...._store.protocol import Durability, Promise
from ...pool import Connection

# The plans that the statements were written for, whatever the statistics say: an index leads to every row.
_SETTINGS = {
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    "TimeZone": "UTC",  # where every day has 24 hours
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_sort": "off",  # where an index gives the order, that index is meant
    "default_transaction_isolation": "read committed",
    "idle_in_transaction_session_timeout": "120s",
}
# Ends a statement that waits for a lock soon after its client has gone. From version 14, not on all systems.
_CONNECTION_CHECK = {"client_connection_check_interval": "5s"}

_DURABILITY_SETTINGS = ("fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names")

SET_LOCAL = "".join(
    f"SET LOCAL {name} = {value!r};"
    for name, value in _SETTINGS.items()
    if name != "default_transaction_isolation"
)
"""The settings for one transaction: behind a pooler nothing else lasts as long as it is needed."""

UNKNOWN = Promise(
    durability=Durability.RELAXED,
    why="Postgres's durability settings have not been read yet; open the store first",
)

_DURABLE = "Postgres writes each commit to disk before it acknowledges it"
_REPLICATED = {
    "remote_write": (
        "Postgres writes each commit to disk, and a synchronous standby has received it, before it "
        "acknowledges it"
    ),
    "on": "Postgres writes each commit to disk, here and on a synchronous standby, before it acknowledges it",
}
_UNCONFIRMED = (
    "the URL names several hosts, but commits do not wait for a standby: a failover can lose the last "
    "acknowledged ones; set synchronous_standby_names"
)
_LOCAL = (
    "synchronous_commit is local for this user, so commits do not wait for the synchronous standby: a "
    "failover can lose the last acknowledged ones; set synchronous_commit = on"
)
_RELAXED = {
    ("fsync", "off"): "fsync is off: a machine crash can corrupt the whole database; set fsync = on",
    ("full_page_writes", "off"): (
        "full_page_writes is off: a machine crash can corrupt pages; set full_page_writes = on"
    ),
    ("synchronous_commit", "off"): (
        "synchronous_commit is off for this user: a server crash loses the last acknowledged commits; "
        "set synchronous_commit = on, at least for this user"
    ),
}


class Server(Struct, frozen=True, kw_only=True):
    """The server as it was found at the first connection, with the settings that the last one found.

    `pooled`: a pooler in transaction mode is in between, so nothing lasts from one transaction to the next,
    prepared statements and settings included.
    """

    pooled: bool
    settings: dict[str, str]
    checks_clients: bool = False  # It notices in the middle of a statement that its client has gone.
    several_hosts: bool = False

    @property
    def has_synchronous_standbys(self) -> bool:
        """Whether the configuration names synchronous standbys, connected or not."""
        return bool(self.settings.get("synchronous_standby_names", "").strip())

    @property
    def commit_level(self) -> str:
        """The value of synchronous_commit for this user."""
        return self.settings.get("synchronous_commit", "on")

    @property
    def awaits_standbys(self) -> bool:
        """Whether a commit is acknowledged only after a synchronous standby has it."""
        return self.has_synchronous_standbys and self.commit_level not in ("off", "local")

    @property
    def promise(self) -> Promise:
        relaxed = [why for (name, value), why in _RELAXED.items() if self.settings.get(name) == value]
        if self.has_synchronous_standbys and self.commit_level == "local":
            relaxed.append(_LOCAL)
        elif self.several_hosts and not self.has_synchronous_standbys:
            relaxed.append(_UNCONFIRMED)
        if relaxed:
            return Promise(durability=Durability.RELAXED, why="; ".join(relaxed))
        replicated = _REPLICATED.get(self.commit_level, _REPLICATED["on"])
        return Promise(durability=Durability.DURABLE, why=replicated if self.awaits_standbys else _DURABLE)

    def options(self, *, tuned: bool) -> dict[str, Any]:
        """Return asyncpg's options for a connection; `tuned` adds the settings that the statements need."""
        settings = _SETTINGS | (_CONNECTION_CHECK if self.checks_clients else {})
        return {
            "statement_cache_size": 0 if self.pooled else 200,
            "max_cached_statement_lifetime": 0,
            "max_cacheable_statement_size": 0,  # A claim from many queues is long, and planning it is slow.
            "server_settings": {"application_name": "windlass"}
            | (settings if tuned and not self.pooled else {}),
        }


async def inspect(connection: Connection, *, several_hosts: bool = False) -> Server:
    # A pooler answers the start-up itself and invents a process id. Without parameters the query needs no
    # prepared statement, which a pooler might lose.
    reported_pid = int(connection.get_server_pid())
    status = await connection.execute(f"SELECT WHERE pg_backend_pid() = {reported_pid}")
    settings = await read_settings(connection)
    pooled = status == "SELECT 0"
    return Server(
        pooled=pooled,
        settings=settings,
        checks_clients=not pooled and await _can_check_clients(connection),
        several_hosts=several_hosts,
    )


async def read_settings(connection: Connection) -> dict[str, str]:
    """Return what durability depends on, as it is for this user."""
    wanted = ", ".join(f"current_setting('{name}')" for name in _DURABILITY_SETTINGS)
    async with connection.transaction():
        values = await connection.fetchrow(f"SELECT {wanted}")
    return dict(zip(_DURABILITY_SETTINGS, values, strict=True))


async def _can_check_clients(connection: Connection) -> bool:
    try:
        for name, value in _CONNECTION_CHECK.items():
            await connection.execute(f"SET {name} = {value!r}")
    except asyncpg.PostgresError:
        return False
    return True
