"""The store's URL: where the servers are, the name of the store, and how it is replicated."""

import re
from contextlib import suppress
from secrets import token_hex
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from ..._model.brief import Brief
from ..._store.protocol import Durability
from ...errors import InvalidOption

DEFAULT_NAME = "windlass"
_PORT = 4222
_NAME = re.compile(r"[A-Za-z0-9_-]{1,60}")
_OPTIONS = ("replicas", "durability", "monitor", "creds", "inbox")

INBOXES = "_INBOX."
"""Prefix of the subjects of all answers."""


class Address(Brief, Struct, frozen=True, kw_only=True):
    """The servers of a NATS cluster, and a store on it."""

    hosts: tuple[tuple[str, int], ...]
    tls: bool = False
    user: str | None = None
    password: str | None = None
    creds: str | None = None  # path of a file with a JWT and a key
    name: str = DEFAULT_NAME
    replicas: int = 3  # of the streams, when they are created
    durability: Durability | None = None  # what the store must at least promise
    monitor: tuple[str, ...] = ()  # host:port of the servers' monitoring, to see whether they sync
    inbox: str | None = None  # first token of the inboxes, so that other users need no access to them

    @property
    def servers(self) -> list[str]:
        """The URLs of the servers, without user and password."""
        scheme = "tls" if self.tls else "nats"
        return [f"{scheme}://{_bracketed(host)}:{port}" for host, port in self.hosts]

    @property
    def display(self) -> str:
        """Hosts and name for messages, without user and password."""
        return f"{','.join(f'{_bracketed(host)}:{port}' for host, port in self.hosts)}/{self.name}"

    @property
    def log_stream(self) -> str:
        return f"WL_{self.name}"

    @property
    def base_stream(self) -> str:
        return f"WL_{self.name}_BASE"

    def new_inbox(self) -> str:
        """Return a new subject for answers, which nobody can guess."""
        return ".".join(filter(None, (INBOXES.rstrip("."), self.inbox, token_hex(8))))

    def subject(self, *tokens: str) -> str:
        """Return a subject of this store, as in `windlass.ask.claim`."""
        return ".".join((self.name, *tokens))


def parse(url: str) -> Address:
    """Parse a store's URL; InvalidOption if it is ambiguous, or an option is invalid."""
    scheme, _, rest = url.partition("://")
    with suppress(ValueError):
        parts = urlsplit(f"nats://{rest}")
        login, _, places = parts.netloc.rpartition("@")
        hosts = [urlsplit(f"//{place}") for place in places.split(",")]
        found = tuple((one.hostname or "localhost", one.port or _PORT) for one in hosts)
        path = unquote(parts.path.strip("/"))
        if "@" not in parts.path and "#" not in url and "/" not in path:
            user, _, password = login.partition(":")
            return Address(
                hosts=found,
                tls=scheme == "nats+tls",
                user=unquote(user) or None,
                password=unquote(password) or None,
                name=_name(path or DEFAULT_NAME),
                **_options(parts.query),
            )
    raise InvalidOption(
        "the store's URL is not valid: use nats://user:password@host:4222,host:4222/name, and write "
        "/ ? # @ : % in the password as %2F %3F %23 %40 %3A %25"
    )


def _name(path: str) -> str:
    if not _NAME.fullmatch(path):
        raise InvalidOption(
            "the name of the store in its URL is invalid: use up to 60 letters, digits, hyphens and "
            "underscores, as in nats://host:4222/shop"
        )
    return path


def _options(query: str) -> dict[str, Any]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    for option in given:
        if option not in _OPTIONS:
            raise InvalidOption(
                f"unknown option {option[:40]!r} in the store's URL; known: {', '.join(_OPTIONS)}"
            )
    replicas, durability = given.get("replicas", "3"), given.get("durability")
    if replicas not in ("1", "3", "5"):
        raise InvalidOption("replicas= in the store's URL is invalid: use 3 or 5, or 1 for a single server")
    if durability is not None and durability not in list(Durability):
        raise InvalidOption(f"durability= in the store's URL is invalid: use {', '.join(Durability)}")
    inbox = given.get("inbox") or None
    if inbox is not None and not _NAME.fullmatch(inbox):
        raise InvalidOption(
            "inbox= in the store's URL is invalid: use up to 60 letters, digits, hyphens and underscores"
        )
    return {
        "replicas": int(replicas),
        "durability": None if durability is None else Durability(durability),
        "monitor": tuple(one for one in given.get("monitor", "").split(",") if one),
        "creds": given.get("creds") or None,
        "inbox": inbox,
    }


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
