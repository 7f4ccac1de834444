"""The verbs of the seam as messages: the requests and responses between an HTTP store and its server.

A request class names its verb, the scope that a key needs for it, and the type of the response; its fields
are the parameters of the verb. Joining or opening a transaction and migrating have no
message: they need a connection to the database.
"""

from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, ClassVar, Generic, TypeVar, get_args

import msgspec
from msgspec import Struct

from .._model.attempt import Attempt
from .._model.filter import Action, By, Count, Dimension, Filter, Page, Slice
from .._model.key import Scope
from .._model.lease import Claim, Claimed, Heartbeat, HeartbeatReply, Lease
from .._model.limit import Usage
from .._model.queue import QueueSettings, Retention
from .._model.record import KINDS, Audit, Record, Session
from .._model.task import Enqueued, NewTask, Task, TaskId
from .._model.verdict import Settled, Settlement
from ..errors import InvalidOption
from .json_codec import Decoder
from .protocol import Finding, Promise, Promoted, Store

T = TypeVar("T")


class Request(Struct, Generic[T], frozen=True):
    """A call of one verb; T is the type of the response."""

    verb: ClassVar[str]
    scope: ClassVar[Scope]

    def call(self, store: Store) -> Coroutine[Any, Any, Any]:
        """Call the verb on a store, with the fields as its arguments."""
        arguments = {name: getattr(self, name) for name in self.__struct_fields__}
        response: Coroutine[Any, Any, Any] = getattr(store, self.verb)(**arguments)
        return response

    @classmethod
    def response_type(cls) -> Any:
        """The type of the response, as `Decoder` takes it."""
        (base,) = cls.__orig_bases__  # type: ignore[attr-defined]  # every generic class has them
        return get_args(base)[0]


class StoreInfo(Struct, frozen=True, kw_only=True):
    """A store's promise, capabilities and clock."""

    promise: Promise
    capabilities: tuple[str, ...]
    now: datetime


class AboutRequest(Request[StoreInfo], frozen=True):
    verb = "about"
    scope = Scope.READ

    async def call(self, store: Store) -> StoreInfo:
        await store.open()
        names = tuple(str(one.name) for one in store.capabilities)
        return StoreInfo(promise=store.promise, capabilities=names, now=await store.now())


class EnqueueRequest(Request[tuple[Enqueued, ...]], frozen=True):
    verb = "enqueue"
    scope = Scope.ENQUEUE
    batch: tuple[NewTask, ...]


class ClaimRequest(Request[tuple[Claimed, ...]], frozen=True):
    verb = "claim"
    scope = Scope.WORK
    claim: Claim


class SettleRequest(Request[Settled], frozen=True):
    verb = "settle"
    scope = Scope.WORK
    batch: tuple[Settlement, ...] = ()
    claim: Claim | None = None


class HeartbeatRequest(Request[HeartbeatReply], frozen=True):
    verb = "heartbeat"
    scope = Scope.WORK
    beat: Heartbeat


class OnceRequest(Request[bool], frozen=True):
    verb = "once"
    scope = Scope.WORK
    lease: Lease
    key: str


class LeadRequest(Request[bool], frozen=True):
    verb = "lead"
    scope = Scope.WORK
    holder: str
    lease_for: timedelta


class PromoteRequest(Request[Promoted], frozen=True):
    verb = "promote"
    scope = Scope.WORK
    limit: int


class RescueRequest(Request[tuple[Claimed, ...]], frozen=True):
    verb = "rescue"
    scope = Scope.WORK
    session: str
    limit: int


class PruneRequest(Request[int], frozen=True):
    verb = "prune"
    scope = Scope.OPERATE
    retention: Retention
    limit: int
    by: By | None = None


class FindRequest(Request[Slice[Task]], frozen=True):
    verb = "find"
    scope = Scope.READ
    where: Filter
    page: Page


class CountRequest(Request[tuple[Count, ...]], frozen=True):
    verb = "count"
    scope = Scope.READ
    where: Filter
    by: tuple[Dimension, ...] = ()


class AttemptsRequest(Request[tuple[Attempt, ...]], frozen=True):
    verb = "attempts"
    scope = Scope.READ
    task_id: TaskId


class ApplyRequest(Request[tuple[TaskId, ...]], frozen=True):
    verb = "apply"
    scope = Scope.OPERATE
    action: Action
    where: Filter
    limit: int


class PutRequest(Request[None], frozen=True):
    verb = "put"
    scope = Scope.OPERATE
    kind: str
    record: bytes
    by: By | None = None

    def call(self, store: Store) -> Coroutine[Any, Any, Any]:
        return store.put(decode_record(self.kind, self.record), self.by)


class RecordsRequest(Request[Any], frozen=True):
    """The response is a `Slice` of the kind asked for, which only the caller can decode."""

    verb = "records"
    scope = Scope.READ
    kind: str
    page: Page

    def call(self, store: Store) -> Coroutine[Any, Any, Any]:
        return store.records(record_type(self.kind), self.page)


class RemoveRequest(Request[bool], frozen=True):
    verb = "remove"
    scope = Scope.OPERATE
    kind: str
    name: str
    by: By | None = None

    def call(self, store: Store) -> Coroutine[Any, Any, Any]:
        return store.remove(record_type(self.kind), self.name, self.by)


class CheckRequest(Request[tuple[Finding, ...]], frozen=True):
    verb = "check"
    scope = Scope.READ


REQUESTS: dict[str, type[Request[Any]]] = {kind.verb: kind for kind in Request.__subclasses__()}
"""Every request, by its verb."""

RECORD_TYPES: dict[str, Any] = {
    "queue": QueueSettings,
    "session": Session,
    "audit": Audit,
    "usage": Usage,
    **{name: kind for kind, name in KINDS.items()},
}
"""The types of records, by their names in messages and in the audit log."""

_NAMES: dict[Any, str] = {kind: name for name, kind in RECORD_TYPES.items()}
_decoders: dict[str, Decoder[Any]] = {}


def record_type(name: str) -> type[Record]:
    """Return the type of record of this name. Raises InvalidOption if there is none."""
    if name not in RECORD_TYPES:
        raise InvalidOption(f"unknown kind of record {name[:80]!r}; known: {', '.join(RECORD_TYPES)}")
    kind: type[Record] = RECORD_TYPES[name]
    return kind


def record_name(kind: Any) -> str:
    """Return the name of a type of record."""
    return _NAMES[kind]


def decode_record(name: str, data: bytes) -> Record:
    """Decode a record of the named type from JSON. Raises InvalidOption if it is not one."""
    kind = record_type(name)
    if name not in _decoders:
        _decoders[name] = Decoder(kind)
    try:
        record: Record = _decoders[name].decode(data)
    except msgspec.DecodeError as error:
        raise InvalidOption(f"invalid record of kind {name!r}: {error}") from None
    return record
