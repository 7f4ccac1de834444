"""The store's URL: a URL as libpq takes it, with a few options of our own."""

import re
from contextlib import suppress
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from msgspec import Struct

from ...._model.brief import Brief
from ....errors import InvalidOption
from ..statements import DEFAULT_SCHEMA

_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_OWN_OPTIONS = frozenset({"schema", "listen", "connections"})


class Address(Brief, Struct, frozen=True, kw_only=True):
    """A database, and how it is used."""

    dsn: str
    schema: str = DEFAULT_SCHEMA
    listen: str | None = None  # the URL for LISTEN, if `dsn` leads through a pooler in transaction mode
    connections: int = 8  # that a process opens at most for each event loop; and one more to listen

    @property
    def display(self) -> str:
        """Host and database for messages, without user and password."""
        parts = urlsplit(self.dsn)
        return f"{parts.netloc.rpartition('@')[2]}{parts.path}" or "postgresql://"


def parse(url: str) -> Address:
    """Parse a store's URL; InvalidOption if it is ambiguous, or an option of ours is invalid."""
    parts = _split(url)
    options = parse_qsl(parts.query, keep_blank_values=True)
    own = {name: value for name, value in options if name in _OWN_OPTIONS}
    rest = [(name, value) for name, value in options if name not in _OWN_OPTIONS]
    dsn = url_of(parts._replace(query=urlencode(rest)))
    schema, connections = own.get("schema", DEFAULT_SCHEMA), own.get("connections", "8")
    if not _NAME.fullmatch(schema):
        raise InvalidOption(
            "schema= in the store's URL is invalid: use up to 40 lower-case letters, digits and "
            "underscores, and no digit first"
        )
    if not connections.isdecimal() or not 1 <= int(connections) <= 1000:
        raise InvalidOption("connections= in the store's URL is invalid: use a number from 1 to 1000")
    if "listen" in own:
        _split(own["listen"])
    return Address(dsn=dsn, schema=schema, listen=own.get("listen"), connections=int(connections))


def url_of(parts: SplitResult) -> str:
    """Return the URL of these parts; urlunsplit would write one without a host as `postgresql:/database`."""
    return f"postgresql://{parts.netloc}{parts.path}{'?' if parts.query else ''}{parts.query}"


def _split(url: str) -> SplitResult:
    """Split a URL; InvalidOption, which quotes nothing of it, if its password may divide it elsewhere."""
    with suppress(ValueError):
        parts = urlsplit(url)
        hosts = [urlsplit(f"//{host}") for host in parts.netloc.rpartition("@")[2].split(",")]
        if all(one.port != 0 for one in hosts) and "@" not in parts.path and "#" not in url:
            return parts
    raise InvalidOption(
        "the store's URL is not valid: use postgresql://user:password@host:port/database, and write "
        "/ ? # @ : % in the password as %2F %3F %23 %40 %3A %25"
    )
