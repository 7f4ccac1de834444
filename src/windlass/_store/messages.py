"""The verbs of the seam as messages: the requests and responses between an HTTP store and its server.

A request class is named after its verb and has the scope that a key needs for it and the type of the
response; its fields are the parameters of the verb. Joining or opening a transaction and migrating have no
message: they need a connection to the database. `RemoteStore` has the verbs as methods that send these.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, TypeVar, get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType

from .._model.attempt import Attempt
from .._model.brief import Brief
from .._model.filter import Action, By, Count, Dimension, Filter, Page, Reveal, Rewrite, Slice
from .._model.key import Scope
from .._model.lease import Claim, Claimed, Heartbeat, HeartbeatReply, Lease
from .._model.limit import Usage
from .._model.queue import QueueSettings, Retention
from .._model.record import KINDS, Audit, Record, Session
from .._model.task import Enqueued, NewTask, Task, TaskId
from .._model.transition import Applied, Pruned
from .._model.verdict import Settled, Settlement
from ..errors import InvalidOption
from .json_codec import Decoder, encode
from .protocol import Finding, Promise, Promoted, Store

P = ParamSpec("P")
T = TypeVar("T")

MAX_REQUEST_BYTES = 64 << 20
"""Bytes of a request as JSON, over HTTP."""

_NULL = b"null"


class Request(Brief, Struct, Generic[T], frozen=True):
    """A call of one verb; T is the type of the response."""

    verb: ClassVar[str]
    scope: ClassVar[Scope]
    other_scopes: ClassVar[tuple[Scope, ...]] = ()  # that some requests of this verb need instead

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.verb = cls.__name__.removesuffix("Request").lower()

    @property
    def needed_scope(self) -> Scope:
        """The scope that a key needs for this very request."""
        return self.scope

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
    scope = Scope.READ

    async def call(self, store: Store) -> StoreInfo:
        await store.open()
        names = tuple(str(one.name) for one in store.capabilities)
        return StoreInfo(promise=store.promise, capabilities=names, now=await store.now())


class EnqueueRequest(Request[tuple[Enqueued, ...]], frozen=True):
    scope = Scope.ENQUEUE
    batch: tuple[NewTask, ...]


class ClaimRequest(Request[tuple[Claimed, ...]], frozen=True):
    scope = Scope.WORK
    claim: Claim


class SettleRequest(Request[Settled], frozen=True):
    scope = Scope.WORK
    batch: tuple[Settlement, ...] = ()
    claim: Claim | None = None


class HeartbeatRequest(Request[HeartbeatReply], frozen=True):
    scope = Scope.WORK
    beat: Heartbeat


class OnceRequest(Request[bool], frozen=True):
    scope = Scope.WORK
    lease: Lease
    key: str


class LeadRequest(Request[bool], frozen=True):
    scope = Scope.WORK
    holder: str
    lease_for: timedelta


class PromoteRequest(Request[Promoted], frozen=True):
    scope = Scope.WORK
    limit: int


class RescueRequest(Request[tuple[Claimed, ...]], frozen=True):
    scope = Scope.WORK
    session: str
    limit: int


class PruneRequest(Request[Pruned], frozen=True):
    scope = Scope.OPERATE
    default: Retention
    limit: int
    by: By | None = None


class FindRequest(Request[Slice[Task]], frozen=True):
    scope = Scope.READ
    where: Filter
    page: Page


class CountRequest(Request[tuple[Count, ...]], frozen=True):
    scope = Scope.READ
    where: Filter
    by: tuple[Dimension, ...] = ()
    sized: bool = False


class EndedRequest(Request[tuple[TaskId, ...]], frozen=True):
    scope = Scope.READ
    ids: tuple[TaskId, ...]


class AttemptsRequest(Request[tuple[Attempt, ...]], frozen=True):
    scope = Scope.READ
    task_id: TaskId


class ApplyRequest(Request[Applied], frozen=True):
    scope = Scope.OPERATE
    other_scopes: ClassVar[tuple[Scope, ...]] = (Scope.REVEAL, Scope.ADMIN)
    action: Action
    where: Filter
    limit: int

    @property
    def needed_scope(self) -> Scope:
        if isinstance(self.action, Rewrite):  # it could give ended tasks other results
            return Scope.ADMIN
        return Scope.REVEAL if isinstance(self.action, Reveal) else self.scope


class PutRequest(Request[None], frozen=True):
    scope = Scope.OPERATE
    kind: str
    record: bytes
    by: By | None = None
    expected: bytes | None = None  # `null`: no record; left out: whatever is stored

    def call(self, store: Store) -> Coroutine[Any, Any, Any]:
        expected: Record | UnsetType | None = UNSET
        if self.expected is not None:
            expected = None if self.expected == _NULL else decode_record(self.kind, self.expected)
        return store.put(decode_record(self.kind, self.record), self.by, expected)


class RecordsRequest(Request[Any], frozen=True):
    """The response is a `Slice` of the kind asked for, which only the caller can decode."""

    scope = Scope.READ
    kind: str
    page: Page

    def call(self, store: Store) -> Coroutine[Any, Any, Any]:
        return store.records(record_type(self.kind), self.page)


class RemoveRequest(Request[bool], frozen=True):
    scope = Scope.OPERATE
    kind: str
    name: str
    by: By | None = None

    def call(self, store: Store) -> Coroutine[Any, Any, Any]:
        return store.remove(record_type(self.kind), self.name, self.by)


class CheckRequest(Request[tuple[Finding, ...]], frozen=True):
    scope = Scope.READ


def _sent(
    request: Callable[P, Request[T]],
) -> Callable[Concatenate["RemoteStore", P], Coroutine[Any, Any, T]]:
    """Return the verb of a request class as a method that takes its fields and sends it."""

    def send(self: "RemoteStore", /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return self.request(request(*args, **kwargs))

    return send


class RemoteStore(ABC):
    """A store elsewhere: the verbs that have a message, sent by `request`.

    Left to the subclass: `records`, whose response only the caller can decode, and what has no message.
    """

    @abstractmethod
    def request(self, request: Request[T]) -> Coroutine[Any, Any, T]:
        """Send a request to the store and return its response. Raises what the store raised."""

    claim = _sent(ClaimRequest)
    heartbeat = _sent(HeartbeatRequest)
    once = _sent(OnceRequest)
    lead = _sent(LeadRequest)
    promote = _sent(PromoteRequest)
    rescue = _sent(RescueRequest)
    prune = _sent(PruneRequest)
    find = _sent(FindRequest)
    attempts = _sent(AttemptsRequest)
    apply = _sent(ApplyRequest)
    check = _sent(CheckRequest)

    def enqueue(self, batch: Sequence[NewTask]) -> Coroutine[Any, Any, Sequence[Enqueued]]:
        return self.request(EnqueueRequest(tuple(batch)))

    def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Coroutine[Any, Any, Settled]:
        return self.request(SettleRequest(tuple(batch), claim))

    def ended(self, ids: Sequence[TaskId]) -> Coroutine[Any, Any, Sequence[TaskId]]:
        return self.request(EndedRequest(tuple(ids)))

    def count(
        self, where: Filter, by: Sequence[Dimension], *, sized: bool = False
    ) -> Coroutine[Any, Any, Sequence[Count]]:
        return self.request(CountRequest(where, tuple(by), sized))

    def put(
        self, record: Record, by: By | None = None, expected: Record | UnsetType | None = UNSET
    ) -> Coroutine[Any, Any, None]:
        before = None if expected is UNSET else encode(expected)
        return self.request(PutRequest(record_name(type(record)), encode(record), by, before))

    def remove(self, kind: type[Record], name: str, by: By | None = None) -> Coroutine[Any, Any, bool]:
        return self.request(RemoveRequest(record_name(kind), name, by))


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
_decoder = cache(Decoder[Any])


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
    try:
        record: Record = _decoder(kind).decode(data)
    except msgspec.DecodeError as error:
        raise InvalidOption(f"invalid record of kind {name!r}: {error}") from None
    return record
