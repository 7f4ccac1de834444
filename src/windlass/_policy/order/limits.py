"""Which limits a task falls under, and whether they let it start. (F4, F5)

Guards: a store asks these inside the step that claims, with what it has locked and counted there.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from ..._model.limit import COLUMNS, Limit

_MAX_VALUE = 100
_SEPARATOR = "\x1f"  # between limit and value; no name has it in it
_BEYOND = "\x20"  # sorts right after it
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


class Permit(Struct, frozen=True):
    """What a task needs of one limit: the limit, and the value that is counted for itself."""

    limit: Limit
    value: str

    @property
    def key(self) -> str:
        """Its name among all permits."""
        return f"{self.limit.name}{_SEPARATOR}{self.value}"


class PermitUsage(Struct, frozen=True):
    """What is in use under a permit's key. `tokens` None: nothing was ever started under it.

    `now` is the instant of the count, where that had to wait for others.
    """

    running: int
    tokens: float | None = None
    at: datetime | None = None
    now: datetime | None = None


class Subject(Struct, frozen=True):
    """A task, as far as limits look at it."""

    queue: str
    type: str
    tenant: str
    payload: bytes


def limits_in_queue(limits: Iterable[Limit], queue: str) -> tuple[Limit, ...]:
    """The limits that tasks of a queue can fall under."""
    return tuple(limit for limit in limits if limit.queue is None or limit.queue == queue)


def regroups_tasks(before: Limit | None, after: Limit | None) -> bool:
    """Whether tasks are told apart otherwise under the new limit than under the old one."""
    if before is None or after is None:
        return True
    return (before.queue, before.type, before.tenant, before.by) != (
        after.queue,
        after.type,
        after.tenant,
        after.by,
    )


def changes_rate(before: Limit | None, after: Limit | None) -> bool:
    """Whether a rate ends here. What it has given until now stands, whatever it is from here on."""
    if before is None or before.rate is None:
        return False
    return after is None or (before.rate, before.capacity) != (after.rate, after.capacity)


def key_range(limit: Limit) -> tuple[str, str]:
    """Between which keys the permits of a limit lie: not below the first, and below the second."""
    return f"{limit.name}{_SEPARATOR}", f"{limit.name}{_BEYOND}"


def permits_of(limits: Iterable[Limit], task: Subject) -> tuple[Permit, ...]:
    """What a task needs to start, in the order of the keys."""
    needed = [Permit(limit, _value(limit, task)) for limit in limits if _applies(limit, task)]
    return tuple(sorted(needed, key=lambda permit: permit.key))


def limit_key(limits: Sequence[Limit], task: Subject) -> str:
    """What tells tasks apart that different permits let start; "" for one that needs none."""
    needed = permits_of(limits, task) if limits else ()
    if not needed:
        return ""
    keys = "\n".join(permit.key for permit in needed)
    return hashlib.blake2b(keys.encode(), digest_size=8).hexdigest()


def split_key(key: str) -> tuple[str, str]:
    """The name of the limit and the value that a permit's key stands for."""
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
    if limit.by in COLUMNS:
        return str(getattr(task, limit.by))
    value = _decode(task.payload).get(limit.by)  # Those without the field are counted together.
    text = value if isinstance(value, str) else _encode(value).decode()
    if len(text) > _MAX_VALUE or not text.isprintable():
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return text


# -- the claim's own reckoning -----------------------------------------------------------------------


def tokens_at(limit: Limit, use: PermitUsage, now: datetime) -> float:
    """The starts that a rate has left at an instant. A clock that was set back refills nothing."""
    assert limit.rate is not None
    if use.tokens is None or use.at is None:
        return float(limit.capacity)
    gained = max((now - use.at).total_seconds(), 0.0) * limit.rate
    return min(use.tokens + gained, float(limit.capacity))


def needs_lock(permit: Permit, use: PermitUsage) -> bool:
    """Whether a permit might let something start, by what was counted without a lock; or must be mended.

    What has nothing left by then has nothing to give: it need not be locked.
    """
    assert use.now is not None
    if permit.limit.running is not None and use.running >= permit.limit.running:
        return False
    if permit.limit.rate is None or (use.at is not None and use.at > use.now):  # The clock was set back.
        return True
    return tokens_at(permit.limit, use, use.now) >= 1.0


class Ledger:
    """What permits allow, and what one claim takes of them."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self._running: dict[str, int] = {}
        self._tokens: dict[str, float] = {}
        self.wait: float | None = None
        self.is_rewound = False  # the clock: something was counted at a later instant than now

    def enter(self, permit: Permit, use: PermitUsage) -> None:
        """What was counted for a permit, under its lock."""
        self.now = use.now or self.now
        self._running[permit.key] = use.running
        if permit.limit.rate is not None:
            self._tokens[permit.key] = tokens_at(permit.limit, use, self.now)
            self.is_rewound |= use.at is not None and use.at > self.now

    def knows(self, permit: Permit) -> bool:
        """Whether it was counted."""
        return permit.key in self._running

    def room(self, permits: Iterable[Permit], most: int) -> int:
        """How many tasks that need these may start now, up to so many."""
        return max(min([most, *(self._room(permit, most) for permit in permits)]), 0)

    def _room(self, permit: Permit, most: int) -> int:
        limit, key = permit.limit, permit.key
        room = most if limit.running is None else min(limit.running - self._running[key], most)
        if limit.rate is None:
            return room
        whole = int(self._tokens[key])
        if whole < room:  # Time alone will help.
            seconds = (whole + 1 - self._tokens[key]) / limit.rate
            self.wait = seconds if self.wait is None else min(self.wait, seconds)
        return min(room, whole)

    def start(self, permits: Iterable[Permit]) -> bool:
        """Take what a task needs; False, and nothing taken, if one permit cannot be had."""
        needed = tuple(permits)
        if not self.room(needed, 1):
            return False
        for permit in needed:
            self._running[permit.key] += 1
            if permit.key in self._tokens:
                self._tokens[permit.key] -= 1.0
                self._room(permit, 1)  # Who takes the last says when there is another.
        return True

    @property
    def tokens(self) -> Mapping[str, float]:
        """The starts left under each key of a limit with a rate."""
        return self._tokens
