"""Messages between handles and owners: together, in parts, and hostile ones."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.servers.nats import Nats
from tests.servers.owners import Owners
from windlass._store.messages import EnqueueRequest
from windlass._stores.jetstream import JetStreamStore, wire
from windlass._stores.jetstream.address import parse
from windlass._stores.jetstream.client import connect
from windlass._stores.jetstream.wire import (
    MAX_PART_BYTES,
    PART,
    Gathered,
    Parts,
    answered,
    decode_answers,
    encode_answers,
    encode_request,
    in_parts,
    value_of,
)
from windlass.errors import InvalidOption, StoreError, StoreUnavailable
from windlass.testing.conformance.steps import a_task

NOT_UTF8 = b"\x95\x02\x00\x00\xa1\xff\x00"  # an entry of the log whose owner is not text
NESTED = b"\x91" * 100_000


@given(size=st.integers(0, 3 * MAX_PART_BYTES), order=st.randoms(use_true_random=False))
def test_a_message_in_parts_is_whole_again_in_any_order_and_with_repetitions(size: int, order) -> None:
    data = bytes(number % 251 for number in range(1000)) * (size // 1000 + 1)
    parts = list(in_parts(data[:size]))
    sent = [*parts, *parts[:1]]
    order.shuffle(sent)
    gathered, whole = Parts(), None
    for part, headers in sent:
        whole = gathered.add(part, headers) or whole
    assert whole == (data[:size] or None)


def test_parts_of_two_answers_do_not_mix() -> None:
    """An owner died after the first part of its answer; the next one answers otherwise."""
    one, two = b"1" * (MAX_PART_BYTES * 2), b"2" * (MAX_PART_BYTES + 1)
    parts = Parts()
    assert parts.add(*next(in_parts(one))) is None
    assert [parts.add(*part) for part in in_parts(two)] == [None, two]


def test_an_owner_gathers_so_much_and_drops_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_GATHERED_BYTES", 100)
    gathered = Gathered()
    assert gathered.add("first", b"1" * 60, {PART: "1/2/x"}) is None
    assert gathered.add("second", b"2" * 60, {PART: "1/2/x"}) is None
    assert gathered.add("second", b"2", {PART: "2/2/x"}) == b"2" * 61
    assert gathered.add("first", b"1", {PART: "2/2/x"}) is None
    assert gathered.add("first", b"1" * 60, {PART: "1/2/x"}) == b"1" * 61


def test_a_request_that_is_too_large_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_BYTES", 1000)
    encode_request(EnqueueRequest((a_task(),)))
    with pytest.raises(InvalidOption, match=r"a request of enqueue has \d+ bytes, and .* 1000: send fewer"):
        encode_request(EnqueueRequest((a_task(payload=b'"%s"' % (b"x" * 1000)),)))


def test_an_answer_that_is_too_large_becomes_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_BYTES", 1000)
    found = decode_answers(encode_answers([answered("x" * 600), answered("y" * 600)]), 2)
    assert len(found) == 2
    with pytest.raises(StoreError, match="ask for less at once"):
        value_of(found[0])


@pytest.mark.parametrize("place", ["0/2/x", "3/2/x", "1/2000/x", "a/b/c", "1/2"])
def test_invalid_parts_are_refused(place: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  whatever says so
        Parts().add(b"", {"Windlass-Part": place})


def test_an_invalid_answer_is_an_error_of_the_store() -> None:
    with pytest.raises(StoreUnavailable, match="invalid answer"):
        decode_answers(b"\x00nonsense", 1)


async def test_an_owner_survives_messages_that_are_nonsense(
    nats: Nats, store: JetStreamStore, url: str, owners: Owners, tmp_path
) -> None:
    owners.start(url, tmp_path)
    address = parse(url)
    client = await connect(address)
    for verb in ("enqueue", "settle", "nothing"):
        for data in (b"", b"\xff" * 100, b"\x91\x93\x01\x02\x03", b"[]", NOT_UTF8, NESTED):
            await client.publish(address.subject("ask", verb), data)
            await client.publish(address.subject("ask", verb), data, reply="_INBOX.nobody.1")
            headers = {"Windlass-Part": "1/3/x"}
            await client.publish(address.subject("ask", verb), data, reply="_INBOX.a.1", headers=headers)
    for nonsense in (b"\xff\xff", NOT_UTF8, NESTED):
        answer = await client.request(address.subject("ask", "enqueue"), nonsense, timeout=10)
        assert b"invalid-option" in answer.data
    for nonsense in (b"not an entry", NOT_UTF8, NESTED):
        await client.publish(address.subject("log"), nonsense)
    await client.flush()

    assert len(await store.enqueue([a_task()])) == 1
    owners.stand_by(url, tmp_path)
    assert len(await store.enqueue([a_task()])) == 1
    await client.close()


async def test_an_answer_to_no_request_of_several_fails_all(
    store: JetStreamStore, url: str, owners: Owners, tmp_path
) -> None:
    """An owner of another version cannot read what travels together."""
    owners.start(url, tmp_path)
    await store.open()
    line = await store._lines.line()
    asked = [line.ask("count", Raw(b"\x01")), line.ask("count", Raw(b"\x01"))]
    async with asyncio.timeout(20):
        failed = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(error) for error in failed] == [InvalidOption, InvalidOption]
