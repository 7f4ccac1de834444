"""The names of a store's keys. All have one hash tag, so that a store lives in one slot of a Cluster.

In the names of tasks and documents, and as a member of sorted sets, an id is packed into 16 bytes.

| key | type | content |
| --- | --- | --- |
| `meta` | hash | version of queue settings and limits, leader, number of the schema |
| `t:<id>` | string | a task (`rows.py`) |
| `d:<id>` | string | what does not change of a task, if that is long |
| `a:<id>` `m:<id>` | list, hash | recorded attempts; marks of `once` |
| `s:<id>` `w:<id>` | set | successors that wait for a task or need its result; the predecessors of one |
| `ids` | zset by name | every task |
| `groups` | set | names of the groups that have, or had, tasks |
| `g:<state, queue, type, tenant>` | zset by due_at | tasks of a group |
| `e:<state, queue, type>` | zset by finished_at | ended tasks, for retention |
| `r:<queue, place>` | zset by rank | ready tasks of a lane and key; the place is "" without either |
| `l:<queue>` | zset by name | places other than "" that have ready tasks |
| `scheduled` `expiring` | zset by instant | tasks that are not due; tasks that expire |
| `o:<root>` `i:<key>` | set | tasks of a root other than itself; tasks with an idempotency key |
| `keys` `keys_until` | hash, zset by instant | idempotency keys; when those with a period expire |
| `fingerprints` | hash | fingerprint to the task that has not ended |
| `sessions` `n:<session>` | zset by expiry, hash | sessions |
| `h:<session>` | hash | tasks that a session holds, each with the number of its claim |
| `u:<permit>` `buckets` | set, hash | running tasks that hold a permit; tokens of rates |
| `c:<kind>` `b:<kind>` | zset by name, hash | names and bodies of records |
| `relayout` | set | queues in which some ready tasks still have an outdated place |
| `wakes` | channel | hints |
"""

from contextlib import suppress
from functools import lru_cache

from ..._model.task import TaskId, is_task_id

SEPARATOR = "\x1f"  # between the parts of a name; never part of a queue, type or tenant
NO_PLACE = ""
_KEY = "\x00"  # between lane and key: sorts before every character of a lane
_ID_BYTES = 16
_TRACE_ID_BYTES = 16
_NO_UUID = bytes(_ID_BYTES + 1)  # before an id that is not a UUID, which nobody enqueues but some search for


class Keys:
    """The keys of the store of a name."""

    def __init__(self, name: str) -> None:
        self.prefix = f"{{{name}}}:"
        self._task = f"{self.prefix}t:".encode()
        self._document = f"{self.prefix}d:".encode()
        self.meta = f"{self.prefix}meta"
        self.ids = f"{self.prefix}ids"
        self.groups = f"{self.prefix}groups"
        self.scheduled = f"{self.prefix}scheduled"
        self.expiring = f"{self.prefix}expiring"
        self.idempotency = f"{self.prefix}keys"
        self.idempotency_until = f"{self.prefix}keys_until"
        self.fingerprints = f"{self.prefix}fingerprints"
        self.sessions = f"{self.prefix}sessions"
        self.buckets = f"{self.prefix}buckets"
        self.relayout = f"{self.prefix}relayout"
        self.wakes = f"{self.prefix}wakes"

    def task(self, task_id: TaskId) -> bytes:
        return self._task + packed(task_id)

    def document(self, task_id: TaskId) -> bytes:
        return self._document + packed(task_id)

    def attempts(self, task_id: str) -> str:
        return f"{self.prefix}a:{task_id}"

    def marks(self, task_id: str) -> str:
        return f"{self.prefix}m:{task_id}"

    def successors(self, task_id: str) -> str:
        return f"{self.prefix}s:{task_id}"

    def predecessors(self, task_id: str) -> str:
        return f"{self.prefix}w:{task_id}"

    def group(self, state: str, group: str) -> str:
        return f"{self.prefix}g:{state}{SEPARATOR}{group}"

    def ended(self, state: str, queue: str, type_name: str) -> str:
        return f"{self.prefix}e:{state}{SEPARATOR}{queue}{SEPARATOR}{type_name}"

    def ready(self, queue: str, place: str = NO_PLACE) -> str:
        return f"{self.prefix}r:{queue}{SEPARATOR}{place}"

    def places(self, queue: str) -> str:
        return f"{self.prefix}l:{queue}"

    def root(self, root: str) -> str:
        return f"{self.prefix}o:{root}"

    def with_key(self, key: str) -> str:
        return f"{self.prefix}i:{key}"

    def session(self, session: str) -> str:
        return f"{self.prefix}n:{session}"

    def held(self, session: str) -> str:
        return f"{self.prefix}h:{session}"

    def permit(self, permit: str) -> str:
        return f"{self.prefix}u:{permit}"

    def names(self, kind: str) -> str:
        return f"{self.prefix}c:{kind}"

    def bodies(self, kind: str) -> str:
        return f"{self.prefix}b:{kind}"


def packed(task_id: TaskId) -> bytes:
    """Return an id as scripts and sorted sets have it: shorter than its text, and in the same order."""
    if is_task_id(task_id):
        return bytes.fromhex(task_id.replace("-", ""))
    return _NO_UUID + task_id.encode()


def unpacked(member: bytes) -> TaskId:
    """Return the id that was packed."""
    if len(member) != _ID_BYTES:
        return member.removeprefix(_NO_UUID).decode()
    digits = member.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


@lru_cache(maxsize=256)
def packed_trace(trace: str | None) -> bytes | None:
    """Return a traceparent of version 00 in half as many bytes; any other text after a "=".

    Of one without a span (`synthetic_trace`) the trace id tells the rest.
    """
    if trace is None:
        return None
    with suppress(ValueError):
        for digits in (trace[3:35], trace.replace("-", "")):
            packed = bytes.fromhex(digits)
            if unpacked_trace(packed) == trace:
                return packed
    return b"=" + trace.encode()


def unpacked_trace(trace: bytes | None) -> str | None:
    """Return the trace that was packed."""
    if trace is None or trace[:1] == b"=":
        return None if trace is None else trace[1:].decode()
    digits = trace.hex()
    if len(trace) == _TRACE_ID_BYTES:
        return f"00-{digits}-{digits[:16]}-00"
    return "-".join((digits[:2], digits[2:34], digits[34:50], digits[50:]))


def group_of(queue: str, type_name: str, tenant: str) -> str:
    """Name the group of tasks that are counted together in each state."""
    return f"{queue}{SEPARATOR}{type_name}{SEPARATOR}{tenant}"


def place_of(lane: str, key: str) -> str:
    """Name the place of a ready task in its queue."""
    return f"{lane}{_KEY}{key}" if lane or key else NO_PLACE


def lane_and_key(place: str) -> tuple[str, str]:
    """Return the lane and the key of a place."""
    lane, _, key = place.partition(_KEY)
    return lane, key
