"""Messages between handles and owners: together, in parts, and hostile ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.servers.nats import Nats
from tests.servers.owners import Owners
from windlass._stores.jetstream import JetStreamStore
from windlass._stores.jetstream.address import parse
from windlass._stores.jetstream.client import connect
from windlass._stores.jetstream.wire import MAX_PART_BYTES, Parts, decode_answers, in_parts
from windlass.errors import StoreUnavailable
from windlass.testing.conformance.steps import a_task


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


@pytest.mark.parametrize("place", ["0/2/x", "3/2/x", "1/2000/x", "a/b/c", "1/2"])
def test_invalid_parts_are_refused(place: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  whatever says so
        Parts().add(b"", {"Windlass-Part": place})


def test_an_invalid_answer_is_an_error_of_the_store() -> None:
    with pytest.raises(StoreUnavailable, match="invalid answer"):
        decode_answers(b"\x00nonsense")


async def test_an_owner_survives_messages_that_are_nonsense(
    nats: Nats, store: JetStreamStore, url: str, owners: Owners, tmp_path
) -> None:
    owners.start(url, tmp_path)
    address = parse(url)
    client = await connect(address)
    for verb in ("enqueue", "settle", "nothing"):
        for data in (b"", b"\xff" * 100, b"\x91\x93\x01\x02\x03", b"[]"):
            await client.publish(address.subject("ask", verb), data)
            await client.publish(address.subject("ask", verb), data, reply="_INBOX.nobody.1")
            headers = {"Windlass-Part": "1/3/x"}
            await client.publish(address.subject("ask", verb), data, reply="_INBOX.a.1", headers=headers)
    answer = await client.request(address.subject("ask", "enqueue"), b"\xff\xff", timeout=10)
    assert b"invalid-option" in answer.data
    await client.publish(address.subject("log"), b"not an entry")
    await client.flush()

    assert len(await store.enqueue([a_task()])) == 1
    owners.stand_by(url, tmp_path)
    assert len(await store.enqueue([a_task()])) == 1
    await client.close()
