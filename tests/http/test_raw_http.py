"""Raw HTTP tricks: request smuggling, ambiguous framing, odd targets. One meaning per request, or none."""

import re
from contextlib import closing, suppress

import pytest

from tests.http.test_protocol import at, dial
from windlass._client.keys import Keys
from windlass._model.filter import Filter, Page
from windlass._model.key import Scope
from windlass._stores.memory import MemoryStore

TASK = b'{"type":"t"}'
CHUNKED = b"transfer-encoding: chunked"
LENGTH = b"content-length: %d" % len(TASK)
ONE_CHUNK = b"%x\r\n%b\r\n0\r\n\r\n" % (len(TASK), TASK)


def sent(url: str, data: bytes) -> bytes:
    """Send these bytes; all that comes back until the server closes the connection."""
    with closing(dial(url)) as line:
        line.sendall(data.replace(b"@/", at(url, "/").encode()))
        answer = b""
        with suppress(ConnectionResetError):  # it closed before it had read all
            while part := line.recv(65536):
                answer += part
        return answer


def statuses(answer: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


def request(*lines: bytes, body: bytes = b"", first: bytes = b"POST @/tasks HTTP/1.1") -> bytes:
    """A request that closes the connection; with a Host unless the lines have one."""
    given = [*lines] if any(one.lower().startswith(b"host") for one in lines) else [b"host: x", *lines]
    return b"\r\n".join([first, b"connection: close", b"content-type: application/json", *given, b"", body])


MALFORMED = {
    "two lengths": request(LENGTH, b"content-length: 0", body=TASK),
    "two equal lengths": request(LENGTH, LENGTH, body=TASK),
    "a list of lengths": request(b"content-length: 12, 12", body=TASK),
    "a signed length": request(b"content-length: +12", body=TASK),
    "a length in hex": request(b"content-length: 0xc", body=TASK),
    "a length beyond 64 bits": request(b"content-length: 99999999999999999999", body=TASK),
    "length and chunks": request(LENGTH, CHUNKED, body=ONE_CHUNK),
    "chunks and length": request(CHUNKED, LENGTH, body=ONE_CHUNK),
    "chunked, but not last": request(b"transfer-encoding: chunked, identity", body=ONE_CHUNK),
    "an unknown coding": request(b"transfer-encoding: xchunked", body=ONE_CHUNK),
    "a space before the colon": request(b"transfer-encoding : chunked", body=ONE_CHUNK),
    "a coding after a vertical tab": request(b"transfer-encoding:\x0bchunked", body=ONE_CHUNK),
    "a folded header": request(b"x: y", b" z: chunked", LENGTH, body=TASK),
    "a NUL in a header": request(b"x: a\0b", LENGTH, body=TASK),
    "a bare CR in a header": request(b"x: a\rb: c", LENGTH, body=TASK),
    "a header without a name": request(b": x", LENGTH, body=TASK),
    "a header without a colon": request(b"nothing", LENGTH, body=TASK),
    "a negative chunk": request(CHUNKED, body=b"-1\r\n" + TASK + b"\r\n0\r\n\r\n"),
    "a chunk in 0x": request(CHUNKED, body=b"0xc\r\n" + TASK + b"\r\n0\r\n\r\n"),
    "a chunk beyond 64 bits": request(CHUNKED, body=b"fffffffffffffffff\r\n" + TASK),
    "a chunk without a size": request(CHUNKED, body=b"\r\n" + TASK + b"\r\n0\r\n\r\n"),
    "a chunk longer than its size": request(CHUNKED, body=b"2\r\n" + TASK + b"\r\n0\r\n\r\n"),
    "a space in a chunk size": request(CHUNKED, body=b"1 0\r\n" + TASK + b"\r\n0\r\n\r\n"),
    "no host": b"GET @/healthz HTTP/1.1\r\nconnection: close\r\n\r\n",
    "no host in HTTP/1.0": b"GET @/healthz HTTP/1.0\r\n\r\n",
    "an empty host": request(b"host:", first=b"GET @/healthz HTTP/1.1"),
    "two hosts": request(b"host: a", b"host: b", first=b"GET @/healthz HTTP/1.1"),
    "two equal hosts": request(b"host: a", b"Host: a", first=b"GET @/healthz HTTP/1.1"),
    "a list of hosts": request(b"host: a, b", first=b"GET @/healthz HTTP/1.1"),
    "a host with a path": request(b"host: a/b", first=b"GET @/healthz HTTP/1.1"),
    "a host with a user": request(b"host: u@a", first=b"GET @/healthz HTTP/1.1"),
    "HTTP/0.9": b"GET @/healthz\r\n\r\n",
    "HTTP/0.9, named": request(first=b"GET @/healthz HTTP/0.9"),
    "HTTP/1.2": request(first=b"GET @/healthz HTTP/1.2"),
    "HTTP/2.0": request(first=b"GET @/healthz HTTP/2.0"),
    "http in lower case": request(first=b"GET @/healthz http/1.1"),
    "a tab": request(first=b"GET\t@/healthz HTTP/1.1"),
    "a relative target": request(first=b"GET healthz HTTP/1.1"),
    "another authority": request(first=b"GET http://other@/healthz HTTP/1.1"),
    "an authority with a user": request(first=b"GET http://u@x@/healthz HTTP/1.1"),
    "another scheme": request(first=b"GET ftp://x@/healthz HTTP/1.1"),
    "CONNECT": request(first=b"CONNECT x:443 HTTP/1.1"),
    "an unknown method": request(first=b"BREW @/healthz HTTP/1.1"),
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_malformed_requests_are_refused(name: str, open_url: str, store: MemoryStore) -> None:
    answer = sent(open_url, MALFORMED[name])
    assert statuses(answer) == [400], answer[:300]
    assert b"connection: close\r\n" in answer
    assert b'"code":"malformed"' in answer
    assert not (await store.find(Filter(), Page())).items


@pytest.mark.parametrize("name", MALFORMED)
async def test_nothing_behind_them_is_served(name: str, open_url: str, store: MemoryStore) -> None:
    """Whatever a proxy takes the rest for, here it is not a request."""
    hidden = request(LENGTH, body=TASK)
    assert statuses(sent(open_url, MALFORMED[name] + hidden)) == [400]
    assert not (await store.find(Filter(), Page())).items


PLAIN = {
    "a body": request(LENGTH, body=TASK),
    "chunks": request(CHUNKED, body=ONE_CHUNK),
    "chunks in capitals": request(b"Transfer-Encoding: Chunked", body=ONE_CHUNK),
    "a chunk extension": request(CHUNKED, body=b"c;a=b\r\n" + TASK + b"\r\n0\r\n\r\n"),
    "the full URL": request(LENGTH, body=TASK, first=b"POST http://x@/tasks HTTP/1.1"),
    "the full URL in capitals": request(LENGTH, body=TASK, first=b"POST HTTP://X@/tasks HTTP/1.1"),
    "a host with a port": request(b"host: x:80", LENGTH, body=TASK),
    "an IPv6 host": request(b"host: [::1]:80", LENGTH, body=TASK),
    "HTTP/1.0": request(LENGTH, body=TASK, first=b"POST @/tasks HTTP/1.0"),
    "a blank line before": b"\r\n" + request(LENGTH, body=TASK),
}


@pytest.mark.parametrize("name", PLAIN)
async def test_plain_requests_are_served(name: str, open_url: str, store: MemoryStore) -> None:
    assert statuses(sent(open_url, PLAIN[name])) == [201]
    assert len((await store.find(Filter(), Page())).items) == 1


def trailing(*lines: bytes) -> bytes:
    """The last chunk, with these lines after it."""
    return b"%x\r\n%b\r\n0\r\n%b\r\n\r\n" % (len(TASK), TASK, b"\r\n".join(lines))


async def test_a_key_in_a_trailer_is_no_key(url: str, keys: Keys, store: MemoryStore) -> None:
    key = (await keys.create("k", scopes=[Scope.ENQUEUE])).text.encode()
    assert statuses(sent(url, request(b"authorization: Bearer " + key, LENGTH, body=TASK))) == [201]
    answer = sent(url, request(CHUNKED, body=trailing(b"authorization: Bearer " + key)))
    assert statuses(answer) == [401]  # the trailer has arrived before the handler runs
    assert len((await store.find(Filter(), Page())).items) == 1


async def test_trailers_are_dropped(open_url: str, store: MemoryStore) -> None:
    lines = trailing(b"idempotency-key: k", b"host: y", b"traceparent: x")
    answer = sent(open_url, request(CHUNKED, body=lines))
    assert statuses(answer) == [201]
    (task,) = (await store.find(Filter(), Page())).items
    assert task.idempotency_key is None


async def test_endless_trailers_are_cut(open_url: str) -> None:
    lines = [b"x-%d: %b" % (number, b"y" * 100) for number in range(1_000)]
    assert sent(open_url, request(CHUNKED, body=trailing(*lines))).count(b"HTTP/1.1 ") <= 1


async def test_a_pipeline_is_served_in_order(open_url: str, store: MemoryStore) -> None:
    first = request(LENGTH, body=TASK).replace(b"connection: close\r\n", b"")
    last = request(first=b"GET @/healthz HTTP/1.1")
    assert statuses(sent(open_url, first + first + last)) == [201, 201, 200]
