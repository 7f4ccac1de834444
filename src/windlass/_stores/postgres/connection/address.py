"""Where the database is: a URL as libpq takes it, and a few words of our own in it."""

import re
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from ....errors import InvalidOption
from ..statements import DEFAULT_SCHEMA

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_OURS = frozenset({"schema", "listen", "connections"})


class Address(Struct, frozen=True, kw_only=True):
    """A database, and how it is used.

    `listen` is where to LISTEN, for a database behind a pooler that hands connections round. A process opens
    up to `connections` of them for each event loop, and one more to listen.
    """

    dsn: str
    schema: str = DEFAULT_SCHEMA
    listen: str | None = None
    connections: int = 8

    @property
    def place(self) -> str:
        """Where it is, as it may be shown: without user and password."""
        parts = urlsplit(self.dsn)
        return f"{parts.netloc.rpartition('@')[2]}{parts.path}" or "postgresql://"


def parse(url: str) -> Address:
    """The address in a store's URL; InvalidOption for what cannot be one."""
    parts = urlsplit(url)
    asked = parse_qsl(parts.query, keep_blank_values=True)
    ours = {name: value for name, value in asked if name in _OURS}
    rest = [(name, value) for name, value in asked if name not in _OURS]
    dsn = urlunsplit(parts._replace(scheme="postgresql", query=urlencode(rest)))
    return Address(
        dsn=dsn,
        schema=_schema(ours.get("schema", DEFAULT_SCHEMA)),
        listen=ours.get("listen"),
        connections=_connections(ours.get("connections", "8")),
    )


def _schema(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidOption(
            f"schema={name} in the store's URL is not acceptable: "
            f"lower-case letters, digits and underscores, up to 40 of them, no digit first"
        )
    return name


def _connections(number: str) -> int:
    if not number.isdecimal() or not 1 <= int(number) <= 1000:
        raise InvalidOption(f"connections={number} in the store's URL is not a number from 1 to 1000")
    return int(number)
