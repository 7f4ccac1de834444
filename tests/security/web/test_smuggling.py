"""Request smuggling: however a request is framed, what is within its body is never a second request.

tests/http/test_raw_http.py has the tricks one by one. Here are all combinations of lengths, codings, line
ends and chunks, each with a request hidden where a proxy that reads it otherwise would see one.
"""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress
from itertools import product

import pytest
from msgspec import Struct

from tests.examples import FULL
from tests.http.test_protocol import at, dial
from tests.servers.api import ApiServer
from windlass._http.server import protocol
from windlass._http.web import body
from windlass._model.filter import Filter, Page
from windlass._stores.memory import MemoryStore

HEAD = b"POST @/tasks HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
HIDDEN = HEAD + b'content-length: 17\r\n\r\n{"type":"hidden"}'
ENDING = b"GET @/healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
LENGTHS: dict[str, bytes] = {
    "none": b"",
    "exact": b"content-length: %d\r\n",
    "zero": b"content-length: 0\r\n",
    "short": b"content-length: 5\r\n",
    "doubled": b"content-length: 0\r\ncontent-length: %d\r\n",
    "a list": b"content-length: 0, %d\r\n",
    "signed": b"content-length: +%d\r\n",
    "with a zero in front": b"content-length: 0%d\r\n",
    "spaced": b"content-length : %d\r\n",
    "with an underscore": b"content_length: %d\r\n",
    "folded": b"content-length:\r\n %d\r\n",
}
CODINGS: dict[str, bytes] = {
    "none": b"",
    "chunked": b"transfer-encoding: chunked\r\n",
    "capitals": b"Transfer-Encoding: CHUNKED\r\n",
    "twice": b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
    "identity first": b"transfer-encoding: identity\r\ntransfer-encoding: chunked\r\n",
    "identity last": b"transfer-encoding: chunked, identity\r\n",
    "gzip": b"transfer-encoding: gzip, chunked\r\n",
    "unknown": b"transfer-encoding: xchunked\r\n",
    "quoted": b'transfer-encoding: "chunked"\r\n',
    "a space before": b"transfer-encoding : chunked\r\n",
    "a space in front": b" transfer-encoding: chunked\r\n",
    "a tab": b"transfer-encoding:\tchunked\r\n",
    "a vertical tab": b"transfer-encoding: \x0bchunked\r\n",
    "a form feed": b"transfer-encoding: chunked\x0c\r\n",
    "a NUL": b"transfer-encoding: chunked\x00\r\n",
    "folded": b"transfer-encoding:\r\n chunked\r\n",
    "behind a bare LF": b"x: y\ntransfer-encoding: chunked\r\n",
    "behind a bare CR": b"x: y\rtransfer-encoding: chunked\r\n",
    "an underscore": b"transfer_encoding: chunked\r\n",
    "high bytes": b"transfer-encoding: \xffchunked\r\n",
}
BODIES: dict[str, bytes] = {
    "plain": b"%b",
    "an end, then": b"0\r\n\r\n%b",
    "one chunk": b"%x\r\n%b\r\n0\r\n\r\n",
    "an extension with a line feed": b"%x;a\n=b\r\n%b\r\n0\r\n\r\n",
    "bare line feeds": b"%x\n%b\n0\n\n",
    "no line end after the chunk": b"%x\r\n%b0\r\n\r\n",
    "a chunk that says less": b"1\r\n%b\r\n0\r\n\r\n",
    "a trailer": b"0\r\nx: y\r\n\r\n%b",
    "a trailer that never ends": b"0\r\n%b",
}


class Framing(Struct, frozen=True):
    """How a request tells where its body ends."""

    length: str
    coding: str
    body: str

    def request(self) -> bytes:
        shape = BODIES[self.body]
        body = shape % ((len(HIDDEN), HIDDEN) if b"%x" in shape else HIDDEN)
        length = LENGTHS[self.length]
        told = length % len(body) if b"%d" in length else length
        return HEAD + told + CODINGS[self.coding] + b"\r\n" + body

    @property
    def ends_before(self) -> bool:
        """Whether by RFC 9112 the hidden request is behind the body, and so a request of its own."""
        if self.coding in ("chunked", "capitals", "a tab") and self.length in ("none", "with an underscore"):
            return self.body in ("an end, then", "a trailer")
        if self.coding not in ("none", "an underscore"):
            return False
        if self.length == "short":
            return self.body == "an end, then"
        return self.length in ("none", "zero", "with an underscore") and self.body == "plain"


def framings() -> Iterator[Framing]:
    every = [Framing(*one) for one in product(LENGTHS, CODINGS, BODIES)]
    return iter(every if FULL else every[::37])


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    store = MemoryStore()
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def url(api: ApiServer, store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(protocol, "LINGER_SECONDS", 0.1)
    monkeypatch.setattr(body, "MAX_SECONDS", 0.3)
    return api.serve(store, open_to_all=True)


def sent(url: str, data: bytes) -> bytes:
    """Send this; all that comes back until the server closes the line."""
    with closing(dial(url)) as line:
        line.sendall(data.replace(b"@", at(url, "").encode()))
        answer = b""
        with suppress(ConnectionResetError):
            while part := line.recv(65536):
                answer += part
        return answer


def statuses(answer: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


async def tasks(store: MemoryStore) -> list[str]:
    return [one.type for one in (await store.find(Filter(), Page(limit=1_000))).items]


@pytest.mark.more
@pytest.mark.timeout(600)
async def test_no_framing_hides_a_request(url: str, store: MemoryStore) -> None:
    probes, behind = 0, 0
    for one in framings():
        answer = sent(url, one.request() + ENDING)
        hidden = len(await tasks(store)) - behind
        assert hidden == (1 if one.ends_before else 0), (one, answer)
        behind += hidden
        assert len(statuses(answer)) <= 2 + hidden, (one, answer)
        assert b" 500 " not in answer
        probes += 1
    assert probes >= (1_900 if FULL else 50)


async def test_requests_behind_each_other_are_served(url: str, store: MemoryStore) -> None:
    """The hidden request is a good one: on its own, and in a pipeline."""
    assert statuses(sent(url, HIDDEN + ENDING)) == [201, 200]
    assert statuses(sent(url, HIDDEN * 20 + ENDING)) == [201] * 20 + [200]
    assert await tasks(store) == ["hidden"] * 21


@pytest.mark.more
async def test_nothing_follows_a_refusal(url: str, store: MemoryStore) -> None:
    """After a request that is malformed, or whose body is refused unread, the rest is not read."""
    refused = [
        b"GET @/healthz HTTP/1.1\r\n\r\n",
        b"POST @/tasks HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n",
        b"POST @/tasks HTTP/1.1\r\nhost: x\r\ncontent-type: text/html\r\ncontent-length: 5\r\n\r\n",
        b"POST @/tasks HTTP/1.1\r\nhost: x\r\nexpect: 200-ok\r\ncontent-length: 200\r\n\r\n",
        b"POST @/tasks HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 4000\r\n\r\n",
        b"GET @/healthz HTTP/1.1\r\nhost: x\r\nupgrade: h2c\r\nconnection: upgrade, close\r\n\r\n",
        b"GET @/healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        b"GET @/healthz HTTP/1.0\r\nhost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ]
    for one, times in product(refused, (1, 5)):
        answer = sent(url, one + HIDDEN * times)
        found = statuses(answer)
        assert found.count(201) == len(await tasks(store)) == 0, (one, answer)


@pytest.mark.more
async def test_split_anywhere_it_is_one_request(url: str, store: MemoryStore) -> None:
    """The same request in two parts, cut at each place, is one task."""
    whole = HIDDEN.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    cuts = range(1, len(whole), 1 if FULL else 11)
    for cut in cuts:
        with closing(dial(url)) as line:
            data = whole.replace(b"@", at(url, "").encode())
            line.sendall(data[:cut])
            line.sendall(data[cut:])
            answer = b""
            while part := line.recv(65536):
                answer += part
        assert statuses(answer) == [201], (cut, answer)
    assert len(await tasks(store)) == len(cuts)
