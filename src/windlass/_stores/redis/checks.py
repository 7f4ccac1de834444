"""What a server promises, and whether it is fit for a store."""

from msgspec import Struct

from ..._store.protocol import Durability, Finding, Promise
from ...errors import StoreError, StoreUnavailable
from .. import findings
from .connection.client import Client

OLDEST = (7, 0)
UNKNOWN = Promise(durability=Durability.VOLATILE, why="Redis; what it survives is known once it is connected")
_SUPPORTED = "Redis 7.0, Valkey 7.2 or newer"
_SETTINGS = ("maxmemory-policy", "appendfsync", "no-appendfsync-on-rewrite")
_ORDER = (Durability.VOLATILE, Durability.RELAXED, Durability.DURABLE)


class Server(Struct, frozen=True, kw_only=True):
    """A server's settings as far as a store depends on them; None: it does not show them."""

    name: str
    version: str
    role: str
    eviction: str | None
    appendonly: str
    appendfsync: str | None
    syncs_on_rewrite: bool = True  # also while it rewrites the append-only file or takes a snapshot
    fails_over: bool = False  # a replica takes over by itself: behind Sentinels, or in a Cluster
    replicas: int = 0  # that have a write before it is acknowledged

    @property
    def promise(self) -> Promise:
        """What an acknowledged write survives."""
        if self.appendonly != "yes":
            return Promise(
                durability=Durability.VOLATILE,
                why=f"{self.name} keeps no append-only file (appendonly no): a crash of the server loses "
                f"what is not in its last snapshot",
            )
        if self.appendfsync is None:
            return Promise(
                durability=Durability.RELAXED,
                why=f"{self.name} does not show how often it syncs its append-only file; "
                f"assumed: every second",
            )
        if self.appendfsync == "always" and not self.syncs_on_rewrite:
            return Promise(
                durability=Durability.RELAXED,
                why=f"{self.name} does not sync its append-only file while it rewrites it "
                f"(no-appendfsync-on-rewrite yes): a power failure at that time loses what was written since",
            )
        if self.appendfsync == "no":
            return Promise(
                durability=Durability.RELAXED,
                why=f"{self.name} leaves it to the operating system when its append-only file is synced "
                f"(appendfsync no): a power failure loses about half a minute",
            )
        if self.appendfsync == "always" and self.fails_over and not self.replicas:
            return Promise(
                durability=Durability.RELAXED,
                why=f"{self.name} syncs its append-only file before it answers, but a failover loses what no "
                f"replica had yet; replicas=1 in the store's URL waits for one",
            )
        if self.appendfsync == "always":
            return Promise(
                durability=Durability.DURABLE,
                why=f"{self.name} syncs its append-only file before it answers (appendfsync always)",
            )
        return Promise(
            durability=Durability.RELAXED,
            why=f"{self.name} syncs its append-only file every second (appendfsync {self.appendfsync}): "
            f"a power failure loses a second or two, and so may a failover",
        )

    def findings(self) -> list[Finding]:
        """Report what is unfit, and what is fine."""
        promise = self.promise
        found = [findings.fine("server", f"{self.name} {self.version}, {self.role}")]
        if _version(self.version) < OLDEST:
            found.append(findings.error("version", f"{self.version} is too old; use {_SUPPORTED}"))
        if self.role != "master":
            found.append(findings.error("role", "the server is a replica; connect to the primary"))
        if self.eviction is None:
            found.append(findings.warning("eviction", "maxmemory-policy is not shown; it must be noeviction"))
        elif self.eviction != "noeviction":
            found.append(
                findings.error(
                    "eviction",
                    f"maxmemory-policy {self.eviction} deletes tasks when memory is full; set noeviction",
                )
            )
        else:
            found.append(findings.fine("eviction", "noeviction"))
        report = findings.fine if promise.durability is Durability.DURABLE else findings.warning
        return [*found, report("durability", promise.why)]


async def read_server(client: Client) -> Server:
    """Ask a server for its settings."""
    about = _lines(await client.call("INFO", "server"))
    role = _lines(await client.call("INFO", "replication"))
    persistence = _lines(await client.call("INFO", "persistence"))
    try:
        settings = await client.call("CONFIG GET", *_SETTINGS)
    except StoreUnavailable:
        raise
    except StoreError:  # Managed services hide it.
        settings = []
    known = {name.decode(): value.decode() for name, value in zip(settings[::2], settings[1::2], strict=True)}
    name = "Valkey" if "valkey_version" in about else "Redis"
    return Server(
        name=name,
        version=about.get("valkey_version") or about.get("redis_version", ""),
        role=role.get("role", "master"),
        eviction=known.get("maxmemory-policy"),
        appendonly="yes" if persistence.get("aof_enabled") == "1" else "no",
        appendfsync=known.get("appendfsync"),
        syncs_on_rewrite=known.get("no-appendfsync-on-rewrite") != "yes",
        fails_over=client.address.kind != "",
        replicas=client.address.replicas,
    )


def refuse(server: Server, wanted: Durability | None, address: str) -> None:
    """Raise StoreError if the server must not be used, or promises less than was asked for."""
    if server.eviction not in (None, "noeviction"):
        raise StoreError(
            f"Redis at {address} evicts keys when memory is full (maxmemory-policy {server.eviction}), "
            f"which would delete tasks; set maxmemory-policy noeviction"
        )
    if _version(server.version) < OLDEST:
        raise StoreError(f"Redis at {address} is version {server.version}; use {_SUPPORTED}")
    if server.role != "master":
        raise StoreError(f"Redis at {address} is a replica; connect to the primary")
    promise = server.promise
    if wanted is not None and _ORDER.index(promise.durability) < _ORDER.index(wanted):
        sync = "always, no-appendfsync-on-rewrite no" if wanted is Durability.DURABLE else "everysec"
        raise StoreError(
            f"Redis at {address} is {promise.durability}, but durability={wanted} was asked for: "
            f"{promise.why}; set appendonly yes, appendfsync {sync}"
        )


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdecimal())


def _lines(info: bytes) -> dict[str, str]:
    """Read the reply to INFO."""
    return dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
