"""The verbs of a store as messages: every verb that works over HTTP has one, and no other."""

import inspect
from datetime import timedelta
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.samples import NOW
from windlass._model.filter import Page, Slice
from windlass._model.key import ApiKey, Scope
from windlass._model.limit import Limit, Quota
from windlass._model.queue import QueueSettings, Retention
from windlass._model.record import KINDS, Record
from windlass._model.schedule import Schedule
from windlass._store.json_codec import Decoder, encode
from windlass._store.messages import (
    RECORD_TYPES,
    REQUESTS,
    AboutRequest,
    PutRequest,
    RecordsRequest,
    RemoveRequest,
    Request,
    StoreInfo,
    decode_record,
    record_name,
    record_type,
)
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass.errors import InvalidOption

NOT_FROM_AFAR = {
    **dict.fromkeys(["join", "transaction"], "a transaction lives on a connection"),
    **dict.fromkeys(["migrations", "migrate"], "a schema is nursed where the store is"),
    **dict.fromkeys(["open", "close", "another"], "a handle is the caller's own"),
    **dict.fromkeys(["now", "capabilities", "promise"], "`about` answers them"),
    "wakes": "a stream, which has an address of its own",
}
OWN = {"about"}  # no method of a store

KEPT: list[Any] = [
    QueueSettings(name="mail", retention=Retention(dead=None), weights={}),
    ApiKey(name="k1", label="web", hash="0" * 64, scopes=(Scope.READ, Scope.WORK), created_at=NOW),
    Limit(name="calls", rate=0.5, by="tenant"),
    Quota(name="acme", tasks=100, bytes=1 << 30),
    Schedule(name="nightly", type="report", payload=b'{ "a":1}', every=timedelta(hours=1), since=NOW),
]


def methods(protocol: type) -> set[str]:
    return {
        name
        for one in protocol.__mro__
        for name, value in vars(one).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    }


def test_every_verb_of_a_store_can_be_asked_or_has_its_reason() -> None:
    assert methods(Store) == (set(REQUESTS) - OWN) | set(NOT_FROM_AFAR)
    assert not set(REQUESTS) & set(NOT_FROM_AFAR)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_verb_goes_by_its_name_and_asks_what_can_be_read(name: str) -> None:
    request = REQUESTS[name]

    assert request.verb == name
    assert Decoder(request)
    assert Decoder(request.response_type())


@pytest.mark.parametrize("name", sorted(set(REQUESTS) - OWN))
def test_a_message_has_what_its_verb_takes(name: str) -> None:
    taken = set(inspect.signature(getattr(Store, name)).parameters) - {"self"}
    fields = set(REQUESTS[name].__struct_fields__)

    assert fields == taken | ({"kind"} if name == "put" else set())  # a record does not say what it is


def test_every_kind_of_record_has_one_name() -> None:
    assert set(RECORD_TYPES.values()) == set(get_args(Record))
    assert len(set(RECORD_TYPES.values())) == len(RECORD_TYPES)
    assert set(KINDS.values()) <= set(RECORD_TYPES)
    assert {name: record_name(record_type(name)) for name in RECORD_TYPES} == {
        name: name for name in RECORD_TYPES
    }


@given(name=st.text())
def test_an_unknown_kind_is_refused(name: str) -> None:
    if name in RECORD_TYPES:
        return
    with pytest.raises(InvalidOption, match=r"unknown kind of record .*; known: queue, session"):
        decode_record(name, b"{}")
    with pytest.raises(InvalidOption):
        record_type(name)


def test_a_refusal_does_not_repeat_a_book() -> None:
    with pytest.raises(InvalidOption) as refused:
        record_type("x" * 100_000)

    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("record", KEPT, ids=lambda record: record.name)
def test_a_record_is_read_by_the_name_of_its_kind(record: Any) -> None:
    assert decode_record(record_name(type(record)), encode(record)) == record


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"null", b'{"name":1}', b'{"name":"q","x":1}', b'{"name":"\xff"}']
)
def test_what_is_no_record_is_refused_by_its_kind(data: bytes) -> None:
    with pytest.raises(InvalidOption, match="invalid record of kind 'queue'"):
        decode_record("queue", data)


@pytest.mark.parametrize("record", KEPT, ids=lambda record: record.name)
async def test_a_record_is_put_listed_and_removed_as_messages(record: Any) -> None:
    store, kind = MemoryStore(), record_name(type(record))

    assert await told(store, PutRequest(kind, encode(record))) is None
    listed = Decoder[Slice[Any]](Slice[type(record)]).decode(await sent(store, RecordsRequest(kind, Page())))
    assert listed == Slice(items=(record,))
    assert await told(store, RemoveRequest(kind, record.name)) is True
    assert await told(store, RemoveRequest(kind, record.name)) is False


async def test_a_store_tells_about_itself() -> None:
    store = MemoryStore()

    about: StoreInfo = await told(store, AboutRequest())

    assert about.promise == store.promise
    assert set(about.capabilities) == {one.name for one in store.capabilities}
    assert about.now.tzinfo is not None


async def sent(store: Store, request: Request[Any]) -> bytes:
    """Send a request to a store as JSON; return the response as JSON."""
    received = Decoder[Request[Any]](type(request)).decode(encode(request))
    return encode(await received.call(store))


async def told(store: Store, request: Request[Any]) -> Any:
    return Decoder[Any](request.response_type()).decode(await sent(store, request))
