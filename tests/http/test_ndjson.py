"""Streams of tasks as JSON lines, answered as they are enqueued."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import pytest

from tests.http.api_client import Api
from tests.http.problem import assert_safe, problem
from tests.loops.workers import eventually
from tests.servers.api import ApiServer
from windlass._client.keys import Keys
from windlass._http import auth as access
from windlass._http.server import protocol as connection
from windlass._http.web import ndjson as lines
from windlass._model.filter import Filter, Page
from windlass._model.key import Scope
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass.testing.faults import Fault, FaultyStore, scripted

NDJSON = "application/x-ndjson"
LINE = b'{"type":"t"}\n'


async def number_in(store: Store) -> int:
    return sum(one.number for one in await store.count(Filter(), ()))


async def connected(
    api: Api, more: str = "", *, length: int | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which a stream of lines is begun: by chunks, or of so many bytes."""
    url = httpx2.URL(api.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    size = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    path = url.path.rstrip("/")
    head = f"POST {path}/tasks/stream HTTP/1.1\r\nhost: {url.host}\r\ncontent-type: {NDJSON}\r\n{size}\r\n"
    writer.write(f"{head}{more}\r\n".encode())
    return reader, writer


async def sent(api: Api, content: Any, **headers: str) -> tuple[httpx2.Response, list[dict[str, Any]]]:
    """The lines of the answer to all of it."""
    told = {"content-type": NDJSON} | api.headers | headers
    response = await api.http.post(f"{api.url}/tasks/stream", content=content, headers=told)
    assert_safe(response)
    return response, [msgspec.json.decode(line) for line in response.content.splitlines()]


class TestLines:
    async def test_each_is_answered_in_order(self, on_each: Api, kept: Store) -> None:
        content = b"".join(b'{"type":"t","payload":{"n":%d}}\n' % number for number in range(2500))
        response, answers = await sent(on_each, content)
        assert (response.status_code, response.headers["content-type"]) == (200, NDJSON)
        assert [one["line"] for one in answers] == list(range(1, 2501))
        assert all(one["created"] and one["problem"] is None for one in answers)
        numbers = []
        cursor = None
        while len(numbers) < 2500:
            page = await kept.find(Filter(), Page(limit=1000, cursor=cursor))
            numbers += [msgspec.json.decode(task.payload)["n"] for task in page.items]
            cursor = page.cursor
        assert sorted(numbers) == list(range(2500))

    @pytest.mark.parametrize(
        ("content", "number"),
        [(b"", 0), (b"\n \n\r\n", 0), (LINE.strip(), 1), (b"\n" + LINE + b"\n\n" + LINE + b" \n", 2)],
    )
    async def test_blank_ones_do_not_count_and_the_last_need_not_end(
        self, content: bytes, number: int, api_of: Api, store: MemoryStore
    ) -> None:
        _, answers = await sent(api_of, content)
        assert [one["line"] for one in answers] == list(range(1, number + 1))
        assert await number_in(store) == number

    @pytest.mark.parametrize(
        ("bad", "code"),
        [
            (b"{", "invalid-request"),
            (b"7", "invalid-request"),
            (b'{"type":"t","payload":{"a":"\xff"}}', "invalid-request"),
            (b'{"type":"t","payload":{"a":"\\u0000"}}', "invalid-payload"),
            (b'{"type":"\xff"}', "invalid-request"),
            (b'{"type":"t","what":1}', "invalid-request"),
            (b'{"type":"t","payload":' + b"[" * 100_000, "invalid-request"),
            (b'{"type":"t","payload":' + b"[" * 100 + b"]" * 100 + b"}", "invalid-payload"),
        ],
    )
    async def test_a_bad_one_ends_it_and_those_before_stand(
        self, bad: bytes, code: str, api_of: Api, store: MemoryStore
    ) -> None:
        _, answers = await sent(api_of, LINE * 3 + bad + b"\n" + LINE * 3)
        assert [one["line"] for one in answers] == [1, 2, 3, 4]
        assert (answers[3]["problem"]["code"], answers[3]["id"]) == (code, None)
        assert await number_in(store) == 3

    async def test_a_duplicate_in_the_middle_of_a_part(self, on_each: Api, kept: Store) -> None:
        unique = b'{"type":"t","payload":{"n":1},"unique":true}\n'
        _, answers = await sent(on_each, LINE * 2 + unique + LINE + unique + LINE * 2)
        assert [one["line"] for one in answers] == [1, 2, 3, 4, 5]
        assert answers[4]["problem"]["code"] == "duplicate-task"
        assert answers[4]["problem"]["standing"] == answers[2]["id"]
        assert await number_in(kept) == 4

    async def test_one_that_is_huge(self, api_of: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lines, "MAX_LINE", 100_000)

        async def growing() -> AsyncIterator[bytes]:
            yield LINE
            for _ in range(20):
                yield b"x" * 10_000

        _, answers = await sent(api_of, growing())
        assert [one["line"] for one in answers] == [1, 2]
        assert answers[1]["problem"]["code"] == "too-large"

    async def test_with_keys_all_of_it_may_be_sent_again(self, on_each: Api, kept: Store) -> None:
        content = b"".join(b'{"type":"t","idempotency_key":"%d"}\n' % number for number in range(50))
        _, first = await sent(on_each, content)
        _, again = await sent(on_each, content)
        assert [one["id"] for one in first] == [one["id"] for one in again]
        assert [one["created"] for one in again] == [False] * 50
        assert await number_in(kept) == 50


async def test_one_after_another_is_answered_before_the_next_is_sent(api_of: Api, store: MemoryStore) -> None:
    heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def one_by_one() -> AsyncIterator[bytes]:
        for number in range(1, 6):
            yield LINE
            answer = await heard.get()
            assert answer["line"] == number
            assert await number_in(store) == number

    reader, writer = await connected(api_of)
    async with asyncio.timeout(10):
        async for line in one_by_one():
            writer.write(b"%x\r\n%b\r\n" % (len(line), line))
            while not (part := await reader.readline()).startswith(b"{"):
                assert part
            heard.put_nowait(msgspec.json.decode(part))
        writer.write(b"0\r\n\r\n")
        await reader.readuntil(b"\r\n0\r\n\r\n")
    writer.close()


@pytest.mark.usefixtures("lives_on")
class TestEnds:
    async def test_who_goes_in_the_middle_leaves_what_was_answered(
        self, api_of: Api, store: MemoryStore
    ) -> None:
        gone = asyncio.Event()

        async def some() -> AsyncIterator[bytes]:
            yield LINE * 10
            await gone.wait()

        sending = asyncio.ensure_future(sent(api_of, some()))
        await eventually(lambda: number_in(store))
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert await number_in(store) == 10

    async def test_who_is_silent_is_told(self, api_of: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lines, "SILENCE_SECONDS", 0.1)
        reader, writer = await connected(api_of, length=1000)
        writer.write(LINE)
        async with asyncio.timeout(10):
            told = (await reader.readuntil(b"\r\n0\r\n\r\n")).decode()
        assert '"line":1,' in told
        assert '"code":"too-slow"' in told
        writer.close()

    async def test_who_reads_nothing_is_let_go(
        self, api_of: Api, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever sends all of it before he reads any of it waits for us, and we for him: that must end."""
        monkeypatch.setattr(connection, "STALL_SECONDS", 0.5)
        reader, writer = await connected(api_of, length=1_000_000_000)
        reader._transport.pause_reading()  # type: ignore[attr-defined]

        async def send_on() -> None:
            while True:
                writer.write(LINE * 5_000)
                await writer.drain()

        with pytest.raises(ConnectionError):
            await asyncio.wait_for(send_on(), 60)
        assert await number_in(store) > 0
        writer.transport.abort()


async def test_a_revoked_key_is_heard_no_more(
    http: httpx2.AsyncClient, url: str, keys: Keys, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "FRESH_FOR", 0.0)
    new = await keys.create("k", scopes=[Scope.ENQUEUE])

    async def some() -> AsyncIterator[bytes]:
        yield LINE
        await eventually(lambda: number_in(store))
        await keys.revoke(new.key.name)
        yield LINE

    _, answers = await sent(Api(http, url, new.text), some())
    assert answers[1]["problem"]["code"] == "unauthorized"
    assert await number_in(store) == 1


async def test_a_key_for_the_whole_is_refused(api_of: Api, store: MemoryStore) -> None:
    response, _ = await sent(api_of, LINE, **{"idempotency-key": "k"})
    problem(response, 422, "invalid-option")
    assert await number_in(store) == 0


@pytest.mark.parametrize("kind", ["application/json", "text/plain", ""])
async def test_of_another_type(kind: str, api_of: Api) -> None:
    response = await api_of.http.post(
        f"{api_of.url}/tasks/stream", content=LINE, headers={"content-type": kind}
    )
    problem(response, 415, "unsupported-media-type")


async def test_the_bounds_of_a_key_hold_for_each_line(
    http: httpx2.AsyncClient, url: str, keys: Keys, store: MemoryStore
) -> None:
    key = (await keys.create("k", scopes=[Scope.ENQUEUE], tenant="acme", queues=["mail"])).text
    good = b'{"type":"t","queue":"mail"}\n'
    _, answers = await sent(Api(http, url, key), good + b'{"type":"t","queue":"mail","tenant":"bob"}\n')
    assert (answers[0]["created"], answers[1]["problem"]["code"]) == (True, "forbidden")
    (task,) = (await store.find(Filter(), Page())).items
    assert task.tenant == "acme"


async def test_memory_stays_flat_over_many_lines(api_of: Api, store: MemoryStore) -> None:
    """Many lines of one and the same task: the store does not grow, nor must the server."""
    keyed = b'{"type":"t","idempotency_key":"k","payload":{"text":"%b"}}\n' % (b"x" * 5_000) * 100

    async def many(parts: int) -> AsyncIterator[bytes]:
        for _ in range(parts):
            yield keyed

    await read(api_of, many(5))
    tracemalloc.start()
    try:
        number = await read(api_of, many(60))  # 30 MB
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert number == 6_000
    assert most < 8_000_000
    assert await number_in(store) == 1


async def read(api: Api, content: AsyncIterator[bytes]) -> int:
    """How many lines were answered, read while they are sent."""
    reader, writer = await connected(api, "connection: close\r\n")

    async def counted() -> int:
        number = 0
        async for line in reader:
            number += line.startswith(b'{"line"')
        return number

    counting = asyncio.ensure_future(counted())
    async for part in content:
        writer.write(b"%x\r\n%b\r\n" % (len(part), part))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    number = await counting
    writer.close()
    return number


async def test_what_a_store_says_is_logged_and_not_told(
    api: ApiServer, http: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    url = api.serve(FaultyStore(MemoryStore(), scripted(enqueue=[Fault.BEFORE] * 10)), open_to_all=True)
    _, (answer,) = await sent(Api(http, url), LINE)
    told = answer["problem"]
    assert (told["code"], told["detail"]) == ("store-unavailable", "the store failed; retry")
    assert "a planned fault" in caplog.text
