"""The check of a store: what was found, good and bad."""

from typing import Annotated

from msgspec import Meta, Struct

from .._store.protocol import Durability, Finding, Migration
from .fields import Instant


class CheckDocument(Struct, kw_only=True):
    """What a check found at an instant, and how long it took in seconds.

    `durability` is what an acknowledged write survives, and `why`. `migrations` are the steps of the store's
    schema; a store without one has none.
    """

    at: Instant
    seconds: float
    durability: Durability
    why: str
    version: Annotated[str, Meta(description="Of windlass, on the server.")]
    python: Annotated[str, Meta(description="Version of Python, on the server.")]
    findings: list[Finding]
    migrations: list[Migration]
