"""The verbs of the seam as messages: all that can be asked from afar, and nothing that cannot."""

import inspect
from datetime import timedelta
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from tests.unit.samples import NOW
from windlass._model.filter import Page, Slice
from windlass._model.key import ApiKey, Scope
from windlass._model.limit import Limit
from windlass._model.queue import QueueSettings, Retention
from windlass._model.record import KINDS, Record
from windlass._model.schedule import Schedule
from windlass._store.json_codec import Decoder, encode
from windlass._store.messages import (
    RECORDS,
    VERBS,
    About,
    Nothing,
    Put,
    RecordsOf,
    Remove,
    kind_named,
    name_of,
    read_record,
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
    assert methods(Store) == (set(VERBS) - OWN) | set(NOT_FROM_AFAR)
    assert not set(VERBS) & set(NOT_FROM_AFAR)


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_goes_by_its_name_and_asks_what_can_be_read(name: str) -> None:
    verb = VERBS[name]

    assert verb.name == name
    assert issubclass(verb.asked, Struct)
    assert Decoder(verb.asked)
    assert Decoder(verb.answer)


@pytest.mark.parametrize("name", sorted(set(VERBS) - OWN))
def test_a_message_has_what_its_verb_takes(name: str) -> None:
    taken = set(inspect.signature(getattr(Store, name)).parameters) - {"self"}
    asked = {field.name for field in msgspec.structs.fields(VERBS[name].asked)}

    assert asked == taken | ({"kind"} if name == "put" else set())  # a record does not say what it is


def test_every_kind_of_record_has_one_name() -> None:
    assert set(RECORDS.values()) == set(get_args(Record))
    assert len(set(RECORDS.values())) == len(RECORDS)
    assert set(KINDS.values()) <= set(RECORDS)
    assert {name: name_of(kind_named(name)) for name in RECORDS} == {name: name for name in RECORDS}


@given(name=st.text())
def test_an_unknown_kind_is_refused(name: str) -> None:
    if name in RECORDS:
        return
    with pytest.raises(
        InvalidOption, match=r"there is no kind of record called .*; there are: queue, session"
    ):
        read_record(name, b"{}")
    with pytest.raises(InvalidOption):
        kind_named(name)


def test_a_refusal_does_not_repeat_a_book() -> None:
    with pytest.raises(InvalidOption) as refused:
        kind_named("x" * 100_000)

    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("record", KEPT, ids=lambda record: record.name)
def test_a_record_is_read_by_the_name_of_its_kind(record: Any) -> None:
    assert read_record(name_of(type(record)), encode(record)) == record


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"null", b'{"name":1}', b'{"name":"q","x":1}', b'{"name":"\xff"}']
)
def test_what_is_no_record_is_refused_by_its_kind(data: bytes) -> None:
    with pytest.raises(InvalidOption, match="no record of the kind 'queue'"):
        read_record("queue", data)


@pytest.mark.parametrize("record", KEPT, ids=lambda record: record.name)
async def test_a_record_is_put_listed_and_removed_as_messages(record: Any) -> None:
    store, kind = MemoryStore(), name_of(type(record))

    assert await told(store, "put", Put(kind, encode(record))) is None
    listed = Decoder[Slice[Any]](Slice[type(record)]).decode(
        await sent(store, "records", RecordsOf(kind, Page()))
    )
    assert listed == Slice(items=(record,))
    assert await told(store, "remove", Remove(kind, record.name)) is True
    assert await told(store, "remove", Remove(kind, record.name)) is False


async def test_a_store_tells_about_itself() -> None:
    store = MemoryStore()

    about: About = await told(store, "about", Nothing())

    assert about.promise == store.promise
    assert set(about.capabilities) == {one.name for one in store.capabilities}
    assert about.now.tzinfo is not None


async def sent(store: Store, name: str, message: Any) -> bytes:
    """What a store answers to a message, both over the wire."""
    verb = VERBS[name]
    return encode(await verb.call(store, Decoder[Any](verb.asked).decode(encode(message))))


async def told(store: Store, name: str, message: Any) -> Any:
    return Decoder[Any](VERBS[name].answer).decode(await sent(store, name, message))
