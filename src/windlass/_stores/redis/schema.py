"""The schema of a store: its number is written when the store is created, and checked before it is used.

There are no migrations so far: a store of another schema is refused.
"""

from secrets import token_hex

from ..._store.protocol import Finding
from ...errors import SchemaMismatch
from .. import findings
from .connection.client import Client
from .keys import Keys

SCHEMA = 4
"""The schema that this version reads and writes. Raise it whenever keys or rows are stored in another way."""

UNNUMBERED = 1
"""The schema of stores that have tasks and no number: they are older than the number."""


def new_version() -> str:
    """Return a version of the rules of queues that no other rules ever had.

    A counter would come to the same number again after the store was deleted, or after a failover that lost
    the last change; whoever has read the old rules would take the new ones for them.
    """
    return token_hex(8)


async def create(client: Client, keys: Keys) -> int:
    """Number a store that has no tasks; return the number of its schema.

    Another program of this version may do the same now: it numbers the store before it stores tasks, so tasks
    are looked for before the number.
    """
    has_tasks, number = await client.call_all([("EXISTS", keys.ids), ("HGET", keys.meta, "schema")])
    if has_tasks and number is None:
        return UNNUMBERED
    *_, number = await client.call_all(
        [
            ("HSETNX", keys.meta, "rules", new_version()),
            ("HSETNX", keys.meta, "schema", SCHEMA),
            ("HGET", keys.meta, "schema"),
        ]
    )
    return int(number)


def require(number: bytes | int, where: str) -> None:
    """Raise SchemaMismatch unless this code can work with a store of this schema."""
    found = int(number)
    if found > SCHEMA:
        raise SchemaMismatch(
            f"{where} has schema {found}, this version of windlass knows only up to {SCHEMA}: upgrade "
            f"windlass, or use another store (?name=… in its URL)"
        )
    if found < SCHEMA:
        raise SchemaMismatch(
            f"{where} has schema {found}, this version of windlass needs {SCHEMA}: finish its tasks with the "
            f"version that wrote them and delete its keys, or use another store (?name=… in its URL)"
        )


async def check(client: Client, keys: Keys) -> Finding:
    """Report the schema of a store to the health check."""
    where = client.address.display
    number, has_tasks = await client.call_all([("HGET", keys.meta, "schema"), ("EXISTS", keys.ids)])
    found = int(number or (UNNUMBERED if has_tasks else SCHEMA))
    try:
        require(found, where)
    except SchemaMismatch as mismatch:
        return findings.error("schema", str(mismatch))
    return findings.fine("schema", f"{where} has schema {found}, the newest")
