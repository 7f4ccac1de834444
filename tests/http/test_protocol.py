"""Raw sockets: slow heads, broken connections, stalled readers and malformed requests."""

import asyncio
import gc
import socket
import weakref
from contextlib import ExitStack, closing
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec
import pytest

from tests.http.conftest import DEADLINE, Ask
from tests.loops.workers import eventually
from tests.servers.api import ApiServer
from windlass._http.resources import store as remote
from windlass._http.server import connections
from windlass._http.server import protocol as connection
from windlass._http.web import body as receiving
from windlass._ids import new_id

JSON = "application/json"

pytestmark = pytest.mark.usefixtures("lives_on")


def head(method: str, path: str, *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: x", *lines, "", ""]).encode()


def dial(url: str) -> socket.socket:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return socket.create_connection((parts.hostname, parts.port), timeout=DEADLINE)


def at(url: str, path: str) -> str:
    return urlsplit(url).path + path


def talk(url: str, sent: bytes) -> bytes:
    """Send these bytes; what comes back first."""
    method, path, rest = sent.split(b" ", 2)
    with closing(dial(url)) as line:
        line.sendall(b" ".join([method, at(url, path.decode()).encode(), rest]))
        answer = line.recv(65536)
        while not answer.endswith(b"}"):
            part = line.recv(65536)
            assert part, answer
            answer += part
        return answer


def task(**changed: Any) -> dict[str, Any]:
    made = {"id": new_id(), "type": "t", "payload": {}, **changed}
    return {"root": made["id"], **made}


def is_let_go(line: socket.socket, drop: bytes) -> bool:
    """Whether the other side ends the line, though bytes keep coming."""
    line.settimeout(0.05)
    for _ in range(100):
        try:
            if line.recv(65536) == b"":
                return True
        except TimeoutError:
            pass
        except OSError:
            return True
        try:
            line.sendall(drop)
        except OSError:
            return True
    return False


def test_gone_in_the_middle_of_a_body(open_url: str) -> None:
    for _ in range(20):
        with closing(dial(open_url)) as line:
            path = at(open_url, "/store/enqueue")
            line.sendall(head("POST", path, f"content-type: {JSON}", "content-length: 1000") + b'{"batch"')


def test_gone_in_the_middle_of_a_head(open_url: str) -> None:
    for _ in range(20):
        with closing(dial(open_url)) as line:
            line.sendall(b"POST /work")


def test_gone_while_listening(open_url: str, api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PING_SECONDS", 0.01)
    before = api.tasks()
    lines = [dial(open_url) for _ in range(20)]
    for line in lines:
        line.sendall(head("POST", at(open_url, "/store/wakes"), f"content-type: {JSON}", "content-length: 0"))
        assert line.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert api.tasks() >= before + 20
    for line in lines:
        line.close()


@pytest.mark.parametrize(
    "following",
    [
        [{"id": new_id(), "type": "t"}],
        [{"id": "x", "type": "t", "payload": {}}],
        [{"id": new_id(), "type": "", "payload": {}}],
        [{"id": new_id(), "type": "t", "payload": {}, "max_attempts": 0}],
        [{"id": new_id(), "type": "t", "payload": {"a": "\0"}}],
        [{"id": new_id(), "type": "t", "payload": {}, "delay": "P5000D"}],
        [{"id": new_id(), "type": "t", "payload": {}}] * 1_001,
        [{"id": new_id(), "type": "t", "payload": {"x": "x" * 900_000}}] * 5,
        {"id": new_id()},
    ],
)
async def test_steps_that_no_worker_could_enqueue(following: Any, ask: Ask) -> None:
    response = await ask("enqueue", {"batch": [task(next=following)]})
    assert (response.status_code, response.json()["title"]) == (422, "invalid request"), response.text


async def test_hints_come_while_others_leave(http: httpx2.AsyncClient, open_url: str, ask: Ask) -> None:
    async with (
        asyncio.timeout(DEADLINE),
        http.stream("POST", f"{open_url}/store/wakes", json={"queues": ["default"]}) as heard,
    ):
        lines = heard.aiter_lines()
        await anext(lines)
        hint = asyncio.ensure_future(anext(lines))
        while not hint.done():
            await ask("enqueue", {"batch": [task()]})
            await asyncio.wait([hint], timeout=0.1)
        assert msgspec.json.decode(hint.result() or await anext(lines)) == "ready"


def test_a_body_that_never_ends(open_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "MAX_SECONDS", 0.1)
    answer = talk(open_url, head("POST", "/store/about", f"content-type: {JSON}", "content-length: 9") + b"{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"too-slow"' in answer


@pytest.mark.parametrize("seconds", [0.2])
def test_a_body_that_nobody_waits_for(seconds: float, open_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LINGER_SECONDS", seconds)
    with closing(dial(open_url)) as line:
        line.sendall(head("POST", at(open_url, "/store/about"), "content-length: 1000000"))
        assert line.recv(65536).startswith(b"HTTP/1.1 415 ")
        assert is_let_go(line, b"x")


@pytest.mark.parametrize(
    ("drop", "more"), [(b"G", b""), (b"\r\n", b"\r\n"), (b"GET / HTTP/1.1\r\nx: ", b"x")]
)
async def test_a_head_that_trickles(
    drop: bytes, more: bytes, ask: Ask, open_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.3)
    lines = [dial(open_url) for _ in range(50)]
    for line in lines:
        line.sendall(drop)
    assert (await ask("about")).status_code == 200  # others are served meanwhile
    for line in lines:
        assert await asyncio.to_thread(is_let_go, line, more)
        line.close()


def test_a_second_head_that_trickles(open_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.3)
    with closing(dial(open_url)) as line:
        line.sendall(head("GET", at(open_url, "/healthz")))
        assert line.recv(65536).startswith(b"HTTP/1.1 200 ")
        line.sendall(b"GET / HTTP/1.1\r\nx: ")
        assert is_let_go(line, b"x")


async def test_an_answer_that_takes_longer_than_a_head_may(
    open_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A half head behind a request that is being answered is nobody's fault."""
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.05)
    monkeypatch.setattr(remote, "PING_SECONDS", 0.05)
    with closing(dial(open_url)) as line:
        line.sendall(
            head("POST", at(open_url, "/store/wakes"), f"content-type: {JSON}", "content-length: 0") + b"GET "
        )
        heard = b""
        while heard.count(b"1\r\n\n\r\n") < 6:
            part = await asyncio.to_thread(line.recv, 65536)
            assert part
            heard += part


def test_silence(open_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.1)
    with closing(dial(open_url)) as line:
        assert line.recv(1) == b""


def test_an_endless_head(open_url: str) -> None:
    for lines in (["x: " + "y" * 20_000], [f"x-{n}: {'y' * 100}" for n in range(1000)]):
        answer = talk(open_url, head("GET", "/healthz", *lines))
        assert answer.startswith(b"HTTP/1.1 431 "), answer[:100]
        assert b'"code":"head-too-large"' in answer


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n", b"GET\r\n\r\n", b"BREW /pot HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"GET http:// HTTP/1.1\r\n\r\n", b"CONNECT x:443 HTTP/1.1\r\n\r\n",
    ],
)  # fmt: skip
def test_no_http(sent: bytes, open_url: str) -> None:
    with closing(dial(open_url)) as line:
        line.sendall(sent.replace(b" / ", f" {at(open_url, '/store/about')} ".encode()))
        answer = line.recv(65536)
        assert answer.startswith(b"HTTP/1.1 400 "), answer[:200]
        assert b"content-type: application/problem+json\r\n" in answer
        assert b"x-content-type-options: nosniff\r\n" in answer
        assert b'"code":"malformed"' in answer


def test_one_as_large_as_the_real_bound(open_url: str) -> None:
    said = receiving.MAX_BATCH_BODY + 1
    answer = talk(open_url, head("POST", "/store/about", f"content-type: {JSON}", f"content-length: {said}"))
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_who_takes_nothing_of_the_answer(
    ask: Ask, api: ApiServer, open_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STALL_SECONDS", 0.2)
    large = {"a": "x" * 1_000_000}
    await ask("enqueue", {"batch": [task(payload=large) for _ in range(20)]})
    body = b'{"where":{},"page":{}}'
    with closing(dial(open_url)) as line:
        said = (f"content-type: {JSON}", f"content-length: {len(body)}")
        line.sendall(head("POST", at(open_url, "/store/find"), *said) + body)
        assert line.recv(12) == b"HTTP/1.1 200"
        port = line.getsockname()[1]
        await eventually(lambda: port not in ports(api))


async def test_pipelined_answers_that_nobody_reads_are_bounded(
    api: ApiServer, open_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 1 << 20
    monkeypatch.setattr(connections, "MAX_UNREAD_BYTES", most)
    asked = head("GET", at(open_url, "/openapi.json")) * 60
    with ExitStack() as opened:
        lines = [opened.enter_context(closing(dial(open_url))) for _ in range(20)]
        for line in lines:
            line.sendall(asked)
        own = {line.getsockname()[1] for line in lines}
        await eventually(lambda: sum(unread(api).values()) > most // 2)

        await eventually(lambda: own - ports(api))

        await eventually(lambda: sum(unread(api).values()) <= most)
    await eventually(lambda: not unread(api))


async def test_a_connection_that_is_gone_is_freed_without_the_collector(
    api: ApiServer, open_url: str
) -> None:
    """With all requests of its pipeline: a server's collector runs seldom, and memory would grow."""
    asked = head("GET", at(open_url, "/openapi.json")) * 60
    gc.collect()
    gc.disable()
    try:
        with ExitStack() as opened:
            lines = [opened.enter_context(closing(dial(open_url))) for _ in range(5)]
            for line in lines:
                line.sendall(asked)
            own = {line.getsockname()[1] for line in lines}
            await eventually(lambda: len(own & unread(api).keys()) == len(own))
            found = [weakref.ref(one) for one in lines_of(api) if one.client[1] in own]
            assert any(len(one.pipeline) for one in lines_of(api) if one.client[1] in own)

        await eventually(lambda: not any(one() for one in found))
    finally:
        gc.enable()


def unread(api: ApiServer) -> dict[int, int]:
    """How many bytes each caller has not read yet."""
    held = {line: line.transport.get_write_buffer_size() for line in lines_of(api)}
    return {line.client[1]: size for line, size in held.items() if size}


def ports(api: ApiServer) -> set[int]:
    """Those of the callers that the server still has a line to."""
    return {line.client[1] for line in lines_of(api)}


def lines_of(api: ApiServer) -> set[Any]:
    return set(api._server.server_state.connections)
