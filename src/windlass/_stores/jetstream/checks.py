"""What the servers promise, and whether they are fit for a store."""

import asyncio
import json
import logging
from contextlib import suppress
from datetime import datetime
from typing import TypeGuard
from urllib.request import ProxyHandler, build_opener

import msgspec
import nats.js.errors
from msgspec import Struct
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import ClusterInfo, PersistMode, RetentionPolicy, StorageType, StreamConfig

from ..._store.clock import SystemClock
from ..._store.protocol import Durability, Finding, Promise
from ...errors import StoreError, StoreUnavailable
from .. import findings
from .address import Address
from .stream import TRANSIENT
from .wire import UNREADABLE

logger = logging.getLogger("windlass.owner")

OLDEST = (2, 14, 4)
_LEAST_PAYLOAD = 1 << 20
_TRIES = 60
_TRIES_UNTIL_WARNING = 3
_PAUSE = 0.5
_NOT_CLUSTERED = 10074  # several replicas on a single server, by the codes of errors of NATS
_MONITOR_SECONDS = 2.0
_LIMITS = ("max_msgs", "max_bytes", "max_age", "max_msg_size", "max_msgs_per_subject")
_HARMFUL = (
    "no_ack",
    "sealed",
    "allow_rollup_hdrs",
    "allow_msg_ttl",
    "mirror",
    "sources",
    "subject_transform",
)
_CLOCK_SECONDS = 10  # clocks may differ by this much, an answer that is late included
_PRESENCE_SECONDS = 0.3  # for all that follow the log to answer
now = SystemClock().now
_open = build_opener(ProxyHandler({})).open  # A proxy of the environment is for other hosts.


class Servers(Struct, frozen=True, kw_only=True):
    """The settings of servers and streams, as far as a store depends on them."""

    version: tuple[int, ...]
    replicas: int
    max_payload: int
    synced: bool | None  # whether every server syncs before it acknowledges; None: they do not show it
    unseen: str = ""  # why not
    clock_error: int = 0  # seconds by which the owner's clock is ahead of a server's; 0 if that is little

    @property
    def promise(self) -> Promise:
        """What an acknowledged write survives."""
        several = self.replicas > 1
        kept = f"{self.replicas} servers keep the log" if several else "one server keeps the log"
        if self.synced:
            most = "a majority of them syncs" if several else "syncs"
            return Promise(
                durability=Durability.DURABLE,
                why=f"{kept} and {most} each commit before it is acknowledged (sync_interval always)",
            )
        if self.synced is None:
            why = f"{kept}; whether each commit is synced is not visible: {self.unseen}"
        else:
            why = f"{kept}, but commits are not synced at once: set sync_interval: always on every server"
        return Promise(
            durability=Durability.RELAXED,
            why=f"{why}; a power failure{' of a majority' if several else ''} may lose some commits",
        )

    def findings(self) -> list[Finding]:
        """Report what is unfit, and what is fine."""
        version = ".".join(map(str, self.version))
        found = [findings.fine("server", f"NATS {version}; copies of the log: {self.replicas}")]
        if self.replicas < 3:
            found.append(
                findings.warning(
                    "replicas",
                    "one server has the only copy of the log; create the store with replicas=3 on a cluster, "
                    "or give both of its streams three replicas (docs/jetstream.md)",
                )
            )
        if self.clock_error:
            found.append(findings.warning("clock", _of_clock(self.clock_error)))
        report = findings.fine if self.promise.durability is Durability.DURABLE else findings.warning
        return [*found, report("durability", self.promise.why)]


async def prepare(client: Client, address: Address) -> Servers:
    """Create the streams that are missing, and check servers and streams. Raises StoreError if unfit."""
    version = client.connected_server_version
    numbers = (version.major, version.minor, version.patch)
    if numbers < OLDEST:
        raise StoreError(
            f"NATS at {address.display} is version {'.'.join(map(str, numbers))}; use 2.14.4 or newer"
        )
    if client.max_payload < _LEAST_PAYLOAD:
        raise StoreError(
            f"NATS at {address.display} accepts messages of {client.max_payload} bytes; set max_payload to "
            f"1MB or more"
        )
    log = await _stream(client, _log_config(address), address)
    base = await _stream(client, _base_config(address), address)
    replicas = min(log.num_replicas or 1, base.num_replicas or 1)
    synced, unseen = await asyncio.to_thread(_syncs, address, replicas)
    clock_error = await _clock_error(client, address)
    if clock_error:
        logger.warning("%s", _of_clock(clock_error))
    return Servers(
        version=numbers,
        replicas=replicas,
        max_payload=client.max_payload,
        synced=synced,
        unseen=unseen,
        clock_error=clock_error,
    )


async def _clock_error(client: Client, address: Address) -> int:
    """Return the seconds by which the clock of this machine is ahead of a server's; 0 if that is little."""
    with suppress(*TRANSIENT, ValueError, TypeError, KeyError):
        info = f"$JS.API.STREAM.INFO.{address.log_stream}"
        answer = await client.request(info, timeout=_MONITOR_SECONDS)
        there = datetime.fromisoformat(json.loads(answer.data)["ts"][:19] + "+00:00")
        seconds = round((now() - there).total_seconds())
        return seconds if abs(seconds) > _CLOCK_SECONDS else 0
    return 0


def _of_clock(seconds: int) -> str:
    differs = f"{abs(seconds)} s {'ahead of' if seconds > 0 else 'behind'}"
    return (
        f"the clock of the owner's machine is {differs} that of NATS: synchronise both, as all instants are "
        f"those of the owner"
    )


def _log_config(address: Address) -> StreamConfig:
    return StreamConfig(
        name=address.log_stream,
        subjects=[address.subject("log")],
        storage=StorageType.FILE,
        num_replicas=address.replicas,
        duplicate_window=0.1,
        deny_delete=True,
        description="The log of a windlass store: only its owners may write here",
    )


def _base_config(address: Address) -> StreamConfig:
    return StreamConfig(
        name=address.base_stream,
        subjects=[address.subject("base", "*", "*")],
        storage=StorageType.FILE,
        num_replicas=address.replicas,
        duplicate_window=0.1,
        max_msgs_per_subject=1,
        description="Snapshots of a windlass store",
    )


async def _stream(client: Client, wanted: StreamConfig, address: Address) -> StreamConfig:
    """Return the stream's configuration; create it if it is missing, however long an election takes."""
    stream = client.jetstream(timeout=3)
    assert wanted.name is not None
    problem: BaseException | None = None
    for number in range(_TRIES):
        try:
            try:
                config = (await stream.stream_info(wanted.name)).config
            except nats.js.errors.NotFoundError:
                config = (await stream.add_stream(wanted)).config
        except TRANSIENT as error:
            problem = error
            if _is_refusal(error):
                raise StoreError(
                    f"NATS at {address.display} refuses the stream {wanted.name}: {error.description}; a "
                    f"store with replicas={address.replicas} needs that many servers in a cluster with "
                    f"JetStream, and replicas=1 one server"
                ) from error
            if number == _TRIES_UNTIL_WARNING:
                logger.warning("%s; retrying", _not_served(wanted, address, problem))
            await asyncio.sleep(_PAUSE)
            continue
        _refuse_unfit(config, wanted)
        return config
    raise StoreUnavailable(_not_served(wanted, address, problem))


def _is_refusal(error: BaseException) -> TypeGuard[nats.js.errors.APIError]:
    """Whether the servers will never create the stream as it is wanted."""
    is_single = isinstance(error, nats.js.errors.APIError) and error.err_code == _NOT_CLUSTERED
    return is_single or isinstance(error, nats.js.errors.BadRequestError)


def _not_served(wanted: StreamConfig, address: Address, problem: BaseException | None) -> str:
    if isinstance(problem, nats.js.errors.ServiceUnavailableError):
        said = "no server with JetStream answers"
    else:
        said = str(problem) or type(problem).__name__
    several = address.replicas > 1
    remedy = f"all {address.replicas} servers and start most of them" if several else "it (nats-server -js)"
    return (
        f"NATS at {address.display} does not serve the stream {wanted.name}: {said}; enable JetStream on "
        f"{remedy}"
    )


def _refuse_unfit(config: StreamConfig, wanted: StreamConfig) -> None:
    """Raise StoreError for a stream that could lose entries."""

    def limit(config: StreamConfig, name: str) -> float:
        return max(getattr(config, name) or 0, 0)  # Servers show no limit as -1 or 0.

    unfit = [name for name in _LIMITS if limit(config, name) != limit(wanted, name)]
    unfit += [name for name in _HARMFUL if getattr(config, name, None)]
    if config.storage != StorageType.FILE:
        unfit.append("storage")
    if config.retention not in (None, RetentionPolicy.LIMITS):
        unfit.append("retention")
    if config.persist_mode == PersistMode.ASYNC:
        unfit.append("persist_mode")
    if sorted(config.subjects or []) != sorted(wanted.subjects or []):
        unfit.append("subjects")
    if unfit:
        raise StoreError(
            f"the stream {wanted.name} is unfit for a store: it was created with another {', '.join(unfit)}; "
            f"entries of its log could be lost. Delete it if it is not a store's, or use another name in the "
            f"store's URL"
        )


def _syncs(address: Address, replicas: int) -> tuple[bool | None, str]:
    """Ask the monitoring of the servers whether they sync every write."""
    if not address.monitor:
        return None, "add monitor=host:8222,… with the monitoring address of each server to the owner's URL"
    if len(set(address.monitor)) < replicas:
        return None, f"monitor= in the store's URL names fewer than {replicas} servers"
    answers = [_varz(place) for place in address.monitor]
    if None in answers:
        return None, f"the monitoring at {address.monitor[answers.index(None)]} does not answer"
    return all(answers), ""


def _varz(place: str) -> bool | None:
    with (
        suppress(OSError, ValueError, TypeError, KeyError),
        _open(f"http://{place}/varz", timeout=_MONITOR_SECONDS) as response,
    ):
        return json.load(response)["jetstream"]["config"].get("sync_always", False) is True
    return None


async def presence(client: Client, address: Address) -> dict[str, str]:
    """Return the processes that follow the log, by name, and which one owns the store."""
    inbox, found = client.new_inbox(), {}

    async def hear(message: Msg) -> None:
        with suppress(*UNREADABLE):
            name, role = msgspec.msgpack.decode(message.data, type=tuple[str, str])
            found[name] = role

    subscription = await client.subscribe(inbox, cb=hear)
    try:
        await client.publish(address.subject("owners"), b"", reply=inbox)
        await asyncio.sleep(_PRESENCE_SECONDS)
    finally:
        await subscription.unsubscribe()
    return found


async def current_findings(client: Client, address: Address) -> list[Finding]:
    """Report what changes while a process owns the store: which servers have the log, and who stands by."""
    found = [_standby_finding(await presence(client, address))]
    with suppress(*TRANSIENT):  # An owner whose server just fails answers without.
        log = await client.jetstream(timeout=_MONITOR_SECONDS).stream_info(address.log_stream)
        if (log.config.num_replicas or 1) > 1:
            found.insert(0, copies_finding(log.cluster))
    return found


def copies_finding(cluster: ClusterInfo | None) -> Finding:
    """Report the servers that do not have the whole log."""
    peers = (cluster.replicas if cluster else None) or []
    missing = [
        f"{peer.name} is {'offline' if peer.offline else 'behind'}"
        for peer in peers
        if peer.offline or not peer.current
    ]
    if not missing:
        return findings.fine("copies", f"all {len(peers) + 1} servers have the whole log")
    return findings.warning(
        "copies",
        f"{', '.join(missing)}: {len(peers) + 1 - len(missing)} of {len(peers) + 1} servers have the whole "
        f"log; without a majority nothing is acknowledged",
    )


def _standby_finding(found: dict[str, str]) -> Finding:
    """Report how many processes could take over."""
    standbys = sum(role == "standby" for role in found.values())
    if standbys:
        return findings.fine("owner", f"one process owns the store; standing by: {standbys}")
    return findings.warning(
        "owner", "no process stands by to take over from the owner: run `windlass owner` on another machine"
    )
