"""Large batches over HTTP: all or nothing, decoded in parts, and refused as the caller's mistake."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import FULL
from tests.foreign_input import task
from tests.http.conftest import Ask
from tests.http.problem import problem
from windlass import RESULT, App
from windlass._cli.root import root
from windlass._http.store_input import LARGE, MAX_AT_ONCE
from windlass._http.web.json_structure import MAX_NESTING, listed_places
from windlass._http.web.problems import Problem
from windlass._model.filter import Filter, Page
from windlass._model.state import State
from windlass._model.verdict import Complete, Receipt, Settlement
from windlass._store.protocol import Store
from windlass._stores.http import HttpStore
from windlass.errors import DuplicateTask, InvalidOption, StoreUnavailable
from windlass.testing.conformance.steps import a_task, some_tasks, worker_on
from windlass.testing.faults import Fault, FaultyStore, scripted

MANY = 100_000 if FULL else 20_000  # more than 500,000 values as JSON
ENOUGH = 2_500  # tasks of more bytes than are decoded in one go

pytestmark = pytest.mark.usefixtures("lives_on")


@pytest.fixture
async def remote(open_url: str) -> AsyncIterator[HttpStore]:
    remote = HttpStore(open_url)
    await remote.open()
    yield remote
    await remote.close()


async def stored(store: Store) -> int:
    return sum(one.number for one in await store.count(Filter(), ()))


@pytest.mark.more
async def test_as_many_tasks_as_a_call_may_have(open_url: str, store: Store) -> None:
    app = App(open_url)

    @app.task(name="import.row")
    def row(n: int) -> None: ...

    handles = await app.client.enqueue_many([row.step(n=number) for number in range(MANY)])

    assert await stored(store) == len({one.id for one in handles}) == MANY
    assert all(one.created for one in handles)
    last = (await store.find(Filter(ids=(handles[-1].id,)), Page(limit=1))).items[0]
    assert json.loads(last.payload) == {"n": MANY - 1}
    await app.close()


async def test_a_large_group_is_one_step(open_url: str, store: Store) -> None:
    app = App(open_url)

    @app.task(name="import.row")
    def row(n: int) -> int:
        return n

    @app.task(name="import.done")
    def done(rows: list[int]) -> None: ...

    *_, then = await app.client.enqueue_group(
        [row.step(n=number) for number in range(ENOUGH)], done.step(rows=RESULT)
    )

    assert await stored(store) == ENOUGH + 1
    assert await then.state() is State.WAITING
    await app.close()


async def test_one_that_is_refused_refuses_all(remote: HttpStore, store: Store) -> None:
    (standing,) = await store.enqueue([a_task(fingerprint="f" * 64)])
    batch = [*some_tasks(ENOUGH), a_task(fingerprint="f" * 64)]

    with pytest.raises(DuplicateTask) as raised:
        await remote.enqueue(batch)

    assert raised.value.standing == standing.id
    assert await stored(store) == 1


async def test_a_lost_reply_enqueues_nothing_twice(api: Any, store: Store) -> None:
    app = App(api.serve(FaultyStore(store, scripted(enqueue=[Fault.AFTER])), open_to_all=True))

    @app.task(name="import.row")
    def row(n: int) -> None: ...

    handles = await app.client.enqueue_many([row.step(n=number) for number in range(ENOUGH)])

    assert await stored(store) == ENOUGH
    assert all(one.created for one in handles)
    await app.close()


def listed(*last: str, number: int = ENOUGH) -> bytes:
    """Return a large body whose last tasks are these."""
    tasks = [*(json.dumps(task()) for _ in range(number)), *last]
    return b'{"batch":[%b]}' % ",".join(tasks).encode()


A_TASK = json.dumps(task())
WRONG: dict[str, tuple[bytes, str]] = {
    "unknown field": (listed('{"colour": 1}'), f"$.batch[{ENOUGH}]"),
    "wrong type": (listed(A_TASK[:-1] + ',"priority":"x"}'), f"$.batch[{ENOUGH}].priority"),
    "name twice": (listed(A_TASK[:-1] + ',"queue":"a","queue":"b"}'), f"$.batch[{ENOUGH}]`"),
    "name twice in a payload": (
        listed(json.dumps(task()).replace('"payload": {}', '"payload": {"a":{"b":1,"b":2}}')),
        f"$.batch[{ENOUGH}].payload.a`",
    ),
    "name twice in a large payload": (
        listed(json.dumps(task()).replace('"payload": {}', '"payload": {"t":"%s","t":2}' % ("x" * 900_000))),
        f"$.batch[{ENOUGH}].payload`",
    ),
    "no task": (listed("5", A_TASK), f"$.batch[{ENOUGH}]"),
    "no comma": (listed()[:-2] + A_TASK.encode() + b"]}", f"$.batch[{ENOUGH}]"),
    "two commas": (listed("", A_TASK), f"$.batch[{ENOUGH}]"),
    "comma at the end": (listed()[:-2] + b",]}", "JSON is malformed"),
    "two lists": (listed()[:-1] + b',"batch":[]}', "twice"),
    "another list": (listed()[:-1] + b',"more":[%b]}' % A_TASK.encode(), "$.batch"),
    "another name": (listed().replace(b"batch", b"butch"), "butch"),
    "not closed": (listed()[:-1], "truncated"),
    "cut in a text": (listed()[: -len(A_TASK) // 2], ""),
    "something after it": (listed() + b"{}", "malformed"),
    "not UTF-8": (listed(A_TASK[:-1] + ',"queue":"Q"}').replace(b'"Q"', b'"\xff"'), "not UTF-8"),
    "no id": (listed(A_TASK.replace('"id": "', '"id": "x')), "id must be"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_malformed_batch_stores_nothing(what: str, ask: Ask, store: Store) -> None:
    body, expected = WRONG[what]
    assert len(body) > LARGE

    response = await ask("enqueue", body)

    assert response.status_code == 422, response.text
    assert expected in response.json()["detail"], response.text
    assert await stored(store) == 0


async def test_bounds_of_a_batch(ask: Ask, remote: HttpStore, store: Store) -> None:
    problem(
        await ask("enqueue", b'{"batch":[%b]}' % b",".join([b"{}"] * (MAX_AT_ONCE + 1))), 413, "too-large"
    )
    problem(await ask("enqueue", listed('{"a":["%s"]}' % ("x" * (8 << 20)))), 413, "too-large")
    problem(await ask("enqueue", listed("[" * MAX_NESTING)), 422, "invalid-request")
    for strings in (b'""', b"0"):
        response = await ask("enqueue", b'{"batch":[%b,{}]}' % b",".join([strings] * 1_000_000))
        assert response.status_code in (413, 422), response.text
    large = [a_task(payload=b'{"text":"%b"}' % (b"x" * 1_000_000)) for _ in range(68)]
    with pytest.raises(
        InvalidOption, match=r"this enqueue is 68,.* takes at most 67,108,864 .*: nothing was sent"
    ):
        await remote.enqueue(large)
    assert await stored(store) == 0


async def test_a_command_with_more_than_a_request_may_have_stores_nothing(
    open_url: str, store: Store
) -> None:
    lines = b'{"text":"%b"}\n' % (b"x" * 1_000_000) * 68
    arguments = ("enqueue", "t", "--stdin", "--store", open_url)

    ran = await asyncio.to_thread(CliRunner().invoke, root, arguments, input=lines)

    assert ran.exit_code == 2
    assert "takes at most 67,108,864 in one call: nothing was sent" in " ".join(ran.stderr.split())
    assert await stored(store) == 0


async def test_a_server_that_refuses_the_size_refuses_the_call(api: Any) -> None:
    async def refuse(_scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send(
            {"type": "http.response.start", "status": 413, "headers": [(b"content-type", b"text/html")]}
        )
        await send({"type": "http.response.body", "body": b"<h1>413</h1>"})

    remote = HttpStore(api.serve_asgi(refuse))
    with pytest.raises(InvalidOption, match=r"a proxy refused the request .* client_max_body_size"):
        await remote.enqueue([a_task()])
    await remote.close()


async def test_results_too_large_for_one_request_are_settled(remote: HttpStore, store: Store) -> None:
    number = 70
    await store.enqueue(some_tasks(number))
    worker = await worker_on(remote)
    claimed = await worker.claim(number)
    result = Complete(result=b'"%b"' % (b"x" * 1_000_000))

    batch = [Settlement(lease=one.lease, verdict=result, outcome="returned") for one in claimed]
    settled = await remote.settle(batch, worker.next_claim(1))

    assert settled.receipts == (Receipt.APPLIED,) * number
    assert set((await remote.settle(batch)).receipts) == {Receipt.REPEATED}


async def test_a_part_of_the_results_that_fails_is_settled_again(api: Any, store: Store) -> None:
    number = 12
    await store.enqueue(some_tasks(number + 1))
    faulty = FaultyStore(store, scripted(settle=[Fault.BEFORE]))
    remote = HttpStore(api.serve(faulty, open_to_all=True))
    worker = await worker_on(remote)
    claimed = await worker.claim(number)
    result = Complete(result=b'"%b"' % (b"x" * 1_000_000))

    batch = [Settlement(lease=one.lease, verdict=result, outcome="returned") for one in claimed]
    settled = await remote.settle(batch, worker.next_claim(1))

    assert settled.receipts == (Receipt.UNKNOWN,) * 6 + (Receipt.APPLIED,) * 6
    assert len(settled.claimed) == 1
    assert set((await remote.settle(batch)).receipts) == {Receipt.APPLIED, Receipt.REPEATED}
    await remote.close()


VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(st.sampled_from('a"\\{}[],: é'), max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text('a{"', max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    objects=st.lists(st.dictionaries(st.text('ab"]', max_size=2), VALUES, max_size=3), max_size=5),
    indent=st.sampled_from([None, 0, 2]),
    ascii=st.booleans(),
)
def test_the_places_are_those_of_the_objects(objects: list[Any], indent: int | None, ascii: bool) -> None:  # noqa: A002
    body = json.dumps({"batch": objects}, indent=indent, ensure_ascii=ascii).encode()
    assert [msgspec.json.decode(body[start:end]) for start, end in listed_places(body, 5)] == objects


@given(st.binary(max_size=40), st.text('{}[]",:a\\', max_size=40))
def test_what_is_no_json_has_places_too(noise: bytes, text: str) -> None:
    for body in (noise, text.encode()):
        assert all(0 <= start < end <= len(body) for start, end in listed_places(body, 100))


def test_the_time_is_linear_in_what_is_no_json() -> None:
    assert listed_places(b'"a' * 500_001, 1) == []  # would take hours if each quote were looked at again
    assert listed_places(b'"' + b"\\" * 1_000_001, 1) == []
    with pytest.raises(Problem, match="deeper than 512"):
        listed_places(b"[" * 600, 1)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "http://127.0.0.1:1",
            "cannot connect to http://127.0.0.1:1: Connection refused; check host and port, and",
        ),
        ("http://nowhere.invalid", r"cannot connect to http://nowhere.invalid \(port 80\): .*not known"),
    ],
)
async def test_what_cannot_be_reached_is_named(url: str, expected: str) -> None:
    remote = HttpStore(url)
    with pytest.raises(StoreUnavailable, match=expected):
        await remote.open()
    await remote.close()


async def test_a_lost_connection_is_named() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        remote = HttpStore(url)
        with pytest.raises(
            StoreUnavailable, match=f"lost the connection to {url}: .*; the request may have been"
        ):
            await remote.open()
        await remote.close()
