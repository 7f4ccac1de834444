"""Which server to use: the one named, the primary that Sentinels know, or the owner of the store's slot."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace
from redis import exceptions
from redis.crc import key_slot

from .address import Address
from .errors import NoPrimaryError

Place: TypeAlias = tuple[str, int]
OpenLink: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]
"""Opens a connection to an address, at a host and port."""


class Primary:
    """Finds the primary by any of the servers that are known; the other nodes of a Cluster are learned."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._known: list[Place] = list(address.hosts)
        self._slot = key_slot(f"{{{address.name}}}".encode())

    @property
    def may_move(self) -> bool:
        """Whether another server may be the primary later."""
        return self._address.kind != ""

    async def find(self, open_link: OpenLink) -> Place:
        """Return host and port of the primary. Raises ConnectionError of redis-py if no server knows it."""
        if not self.may_move:
            return self._known[0]
        failure: Exception | None = None
        for place in list(self._known):
            try:
                found = await self._ask(place, open_link)
            except (exceptions.RedisError, OSError, TimeoutError) as error:
                failure = error
            else:
                if found is not None:
                    return found
        what = f"slot {self._slot}" if self._address.kind == "cluster" else repr(self._address.service)
        why = "" if failure is None else f" ({failure})"
        raise NoPrimaryError(f"no server knows the primary of {what}{why}") from failure

    async def _ask(self, place: Place, open_link: OpenLink) -> Place | None:
        address = self._address
        if address.kind == "sentinel":
            address = replace(address, user=address.sentinel_user, password=address.sentinel_password)
        link = await open_link(address, *place)
        try:
            if address.kind == "cluster":
                (shards,) = await link.request([("CLUSTER SHARDS",)])
                return self._owner(_raised(shards), place)
            (found,) = await link.request([("SENTINEL GET-MASTER-ADDR-BY-NAME", address.service)])
            return None if _raised(found) is None else (_text(found[0]), int(found[1]))
        finally:
            link.terminate()

    def _owner(self, shards: Sequence[Any], asked: Place) -> Place | None:
        """Return the primary that owns the slot, and remember all nodes."""
        owner: Place | None = None
        known: list[Place] = []
        for shard in map(_pairs, shards):
            slots = shard["slots"]
            ranges = zip(slots[::2], slots[1::2], strict=True)
            is_ours = any(int(first) <= self._slot <= int(last) for first, last in ranges)
            for node in map(_pairs, shard["nodes"]):
                host = _text(node.get("endpoint") or node["ip"]) or asked[0]
                place = host, int(node["tls-port"] if self._address.tls else node["port"])
                known.append(place)
                if is_ours and _text(node["role"]) == "master" and _text(node["health"]) == "online":
                    owner = place
        self._known = list(dict.fromkeys([*known, *self._address.hosts]))
        return owner


def _raised(reply: Any) -> Any:
    if isinstance(reply, Exception):
        raise reply
    return reply


def _pairs(flat: Any) -> dict[str, Any]:
    """Read a list of names and values in turn."""
    if isinstance(flat, dict):
        return {_text(name): value for name, value in flat.items()}
    return {_text(name): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
