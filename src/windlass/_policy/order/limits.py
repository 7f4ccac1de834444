"""Which limits apply to a task, and whether they let it start.

Stores evaluate these inside the transaction that claims, with the counts that they have locked there.
"""

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from ..._model.brief import Brief
from ..._model.limit import COLUMNS, HOST, Limit, Usage

_MAX_VALUE = 100
_PORTS = {"http": "80", "https": "443"}
_SEPARATOR = "\x1f"  # between limit and value; never part of a name
_BEYOND = "\x20"  # sorts right after the separator
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode
_grouping = attrgetter(*COLUMNS, "by")


class Permit(Brief, Struct, frozen=True):
    """What a task needs of one limit: the limit, and the value that is counted separately."""

    limit: Limit
    value: str
    key: str = ""  # what it is counted under; made of the others

    def __post_init__(self) -> None:
        force_setattr(self, "key", f"{self.limit.name}{_SEPARATOR}{self.value}")


class PermitUsage(Struct, frozen=True):
    """What is in use under a permit's key. `now` is the instant of the count, if it waited for a lock."""

    running: int
    tokens: float | None = None  # left at `at`; None: never used
    at: datetime | None = None
    now: datetime | None = None


class Subject(Brief, Struct, frozen=True):
    """The fields of a task that limits look at."""

    queue: str
    type: str
    tenant: str
    payload: bytes


def limits_in_queue(limits: Iterable[Limit], queue: str) -> tuple[Limit, ...]:
    """Return the limits that can apply to tasks of a queue."""
    return tuple(limit for limit in limits if limit.queue is None or limit.queue == queue)


def regroups_tasks(before: Limit | None, after: Limit | None) -> bool:
    """Whether a change of a limit changes which tasks are counted together."""
    return before is None or after is None or _grouping(before) != _grouping(after)


def changes_refill(before: Limit | None, after: Limit | None) -> bool:
    """Whether a change ends the refill of the old limit, so that its tokens must be computed up to now."""
    if before is None or not before.is_metered:
        return False
    return after is None or (before.rate, before.capacity) != (after.rate, after.capacity)


def key_range(limit: Limit) -> tuple[str, str]:
    """Return the half-open range of keys that the permits of a limit are in."""
    return f"{limit.name}{_SEPARATOR}", f"{limit.name}{_BEYOND}"


def permits_of(limits: Iterable[Limit], task: Subject) -> tuple[Permit, ...]:
    """Return the permits that a task needs to start, ordered by key."""
    needed = [Permit(limit, _value(limit, task)) for limit in limits if _applies(limit, task)]
    return tuple(sorted(needed, key=lambda permit: permit.key))


def limit_key(limits: Sequence[Limit], task: Subject) -> str:
    """Return a hash of the permits a task needs: tasks with equal keys are limited alike. "" if none."""
    needed = permits_of(limits, task) if limits else ()
    if not needed:
        return ""
    keys = "\n".join(permit.key for permit in needed)
    return hashlib.blake2b(keys.encode(), digest_size=8).hexdigest()


def split_key(key: str) -> tuple[str, str]:
    """Return the name of the limit and the value of a permit's key."""
    name, _, value = key.partition(_SEPARATOR)
    return name, value


def _applies(limit: Limit, task: Subject) -> bool:
    return (
        (limit.queue is None or limit.queue == task.queue)
        and (limit.type is None or limit.type == task.type)
        and (limit.tenant is None or limit.tenant == task.tenant)
    )


def _value(limit: Limit, task: Subject) -> str:
    if limit.by is None:
        return ""
    if limit.field is None:
        return str(getattr(task, limit.by))
    try:
        value = _decode(task.payload).get(limit.field)  # Tasks without the field are counted together.
    except ValueError:  # A payload that cannot be read: one bad task must not stop its queue.
        value = None
    if limit.by.endswith(HOST):
        value = _host(value)
    text = value if isinstance(value, str) else _encode(value).decode()
    if len(text) > _MAX_VALUE or not text.isprintable():
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return text


def _host(value: Any) -> str | None:
    """Return the host of a URL, with its port unless that is the usual one; None if it has none."""
    if not isinstance(value, str):
        return None
    try:
        url = urlsplit(value)
    except ValueError:
        return None
    host = url.netloc.rpartition("@")[2].lower()
    name, colon, port = host.rpartition(":")
    if colon and port in ("", _PORTS.get(url.scheme)):
        host = name
    return host.removesuffix(".") or None


# -- during a claim ----------------------------------------------------------------------------------


def tokens_at(limit: Limit, use: PermitUsage, now: datetime) -> float:
    """Return the tokens of a metered limit at an instant. A clock that was set back adds none."""
    assert limit.rate is not None
    if use.tokens is None or use.at is None:
        return float(limit.capacity)
    gained = max((now - use.at).total_seconds(), 0.0) * limit.rate
    return min(use.tokens + gained, float(limit.capacity))


def seconds_to_fill(limit: Limit) -> float:
    """Return after how long without use the tokens of a metered limit are complete, whatever they were."""
    assert limit.rate is not None
    return limit.capacity / limit.rate


def usage_of(key: str, limit: Limit, use: PermitUsage, now: datetime) -> Usage:
    """Return what is in use under a permit's key at an instant, as operators see it."""
    tokens = tokens_at(limit, use, now) if limit.is_metered else None
    return Usage(name=key, limit=limit.name, value=split_key(key)[1], running=use.running, tokens=tokens)


def needs_lock(permit: Permit, use: PermitUsage) -> bool:
    """Whether a permit, counted without a lock, may let a task start or must be corrected: then lock it."""
    assert use.now is not None
    if permit.limit.running is not None and use.running >= permit.limit.running:
        return False
    if not permit.limit.is_metered or (use.at is not None and use.at > use.now):  # The clock was set back.
        return True
    return tokens_at(permit.limit, use, use.now) >= 1.0


class Ledger:
    """What permits allow, minus what one claim has taken."""

    def __init__(self, now: datetime) -> None:
        self.now = now  # the instant of the last count, which may have waited for a lock
        self._running: dict[str, int] = {}
        self.tokens: dict[str, float] = {}  # left under each key of a metered limit
        self.wait: float | None = None
        self.is_rewound = False  # the clock was set back, before a count: all tokens must be written again

    def enter(self, permit: Permit, use: PermitUsage) -> None:
        """Record the count of a permit, made under its lock."""
        self.now = use.now or self.now
        self._running[permit.key] = use.running
        if permit.limit.is_metered:
            self.tokens[permit.key] = tokens_at(permit.limit, use, self.now)
            self.is_rewound |= use.at is not None and use.at > self.now

    def knows(self, permit: Permit) -> bool:
        """Whether the permit's count is recorded."""
        return permit.key in self._running

    def room(self, permits: Iterable[Permit], most: int) -> int:
        """Return how many tasks that need these permits may start now, at most `most`."""
        return max(min([most, *(self._room(permit, most) for permit in permits)]), 0)

    def _room(self, permit: Permit, most: int) -> int:
        limit, key = permit.limit, permit.key
        room = most if limit.running is None else min(limit.running - self._running[key], most)
        if limit.rate is None:
            return room
        whole = int(self.tokens[key])
        if whole < room:  # The rate is the bottleneck: note when the next token arrives.
            seconds = (whole + 1 - self.tokens[key]) / limit.rate
            self.wait = seconds if self.wait is None else min(self.wait, seconds)
        return min(room, whole)

    def start(self, permits: Iterable[Permit]) -> bool:
        """Take the permits of a task; return False and take nothing if one is exhausted."""
        needed = tuple(permits)
        if not self.room(needed, 1):
            return False
        for permit in needed:
            self._running[permit.key] += 1
            if permit.key in self.tokens:
                self.tokens[permit.key] -= 1.0
                self._room(permit, 1)  # Taking the last token notes when the next one arrives.
        return True
