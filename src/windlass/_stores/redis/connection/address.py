"""The store's URL: where the server is, and the options that are ours."""

import re
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from ...._model.brief import Brief
from ...._store.protocol import Durability
from ....errors import InvalidOption

DEFAULT_NAME = "windlass"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,60}")
_PORTS = {"sentinel": 26379}
_OPTIONS = ("name", "connections", "durability", "replicas")
_SENTINEL_OPTIONS = (*_OPTIONS, "sentinel_user", "sentinel_password")


class Address(Brief, Struct, frozen=True, kw_only=True):
    """A server or several, and how they are used."""

    kind: str  # "", "cluster" or "sentinel"
    hosts: tuple[tuple[str, int], ...]
    tls: bool = False
    user: str | None = None
    password: str | None = None
    database: int = 0
    service: str = ""  # of Sentinel: the name of the primary
    sentinel_user: str | None = None
    sentinel_password: str | None = None
    name: str = DEFAULT_NAME  # of the store: several may share a server
    connections: int = 16  # that a process opens at most for each event loop; and one more to listen
    durability: Durability | None = None  # what the store must at least promise
    replicas: int = 0  # that must have every write before it is acknowledged

    @property
    def display(self) -> str:
        """Hosts, database and name for messages, without user and password."""
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"{hosts}/{self.service or self.database} ({self.name})"


def parse(url: str) -> Address:
    """Parse a store's URL; InvalidOption if it is ambiguous, or an option is invalid."""
    scheme, _, rest = url.partition("://")
    _, _, kind = scheme.partition("+")
    with suppress(ValueError):
        parts = urlsplit(f"redis://{rest}")
        login, _, places = parts.netloc.rpartition("@")
        hosts = [urlsplit(f"//{place}") for place in places.split(",")]
        port = _PORTS.get(kind, 6379)
        found = tuple((one.hostname or "localhost", one.port or port) for one in hosts)
        path = unquote(parts.path.strip("/"))
        if "@" not in parts.path + parts.query and "#" not in url and "/" not in path:
            user, _, password = login.partition(":")
            return Address(
                kind=kind,
                hosts=found,
                tls=scheme.startswith(("rediss", "valkeys")),
                user=unquote(user) or None,
                password=unquote(password) or None,
                **_place(kind, path),
                **_options(kind, parts.query),
            )
    raise InvalidOption(
        "the store's URL is not valid: use redis://user:password@host:port/0, and write "
        "/ ? # @ : % in the password as %2F %3F %23 %40 %3A %25"
    )


def _place(kind: str, path: str) -> dict[str, Any]:
    if kind == "sentinel":
        if not path:
            raise InvalidOption(
                "the store's URL names no primary: use redis+sentinel://host:26379,host:26379/name"
            )
        return {"service": path}
    if path and not (path.isdecimal() and int(path) < 1 << 16):
        raise InvalidOption(
            "the database in the store's URL is invalid: use a number, as in redis://host:6379/0"
        )
    return {"database": int(path or 0)}


def _options(kind: str, query: str) -> dict[str, Any]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    known = _SENTINEL_OPTIONS if kind == "sentinel" else _OPTIONS
    for option in given:
        if option not in known:
            raise InvalidOption(
                f"unknown option {option[:40]!r} in the store's URL; known: {', '.join(known)}"
            )
    name, durability = given.get("name", DEFAULT_NAME), given.get("durability")
    if not _NAME.fullmatch(name):
        raise InvalidOption(
            "name= in the store's URL is invalid: use up to 60 letters, digits, dots, hyphens and underscores"
        )
    if durability is not None and durability not in list(Durability):
        raise InvalidOption(f"durability= in the store's URL is invalid: use {', '.join(Durability)}")
    return {
        "name": name,
        "connections": _number("connections", given.get("connections", "16"), 1, 1000),
        "durability": None if durability is None else Durability(durability),
        "replicas": _number("replicas", given.get("replicas", "0"), 0, 10),
        "sentinel_user": given.get("sentinel_user") or None,
        "sentinel_password": given.get("sentinel_password") or None,
    }


def _number(option: str, value: str, least: int, most: int) -> int:
    if not value.isdecimal() or not least <= int(value) <= most:
        raise InvalidOption(f"{option}= in the store's URL is invalid: use a number from {least} to {most}")
    return int(value)
