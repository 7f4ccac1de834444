"""Fetching URLs: only checked addresses are reached, and everything that a server sends is bounded.

Names resolve by a stub, and every connection goes to the loopback.
"""

import asyncio
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest

from tests.loops.workers import eventually
from windlass._fetch import Fetched, Fetcher, FetchError, FetchRefused
from windlass._policy.addresses import parse_networks

LOOPBACK = parse_networks(["127.0.0.1"])
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


class Server:
    """Answers each connection with the next script; records what it was sent."""

    def __init__(
        self, *scripts: bytes | Callable[[socket.socket], None], tls: ssl.SSLContext | None = None
    ) -> None:
        self.requests: list[bytes] = []
        self._scripts = scripts
        self._tls = tls
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _serve(self) -> None:
        for script in self._scripts:
            try:
                connected, _ = self._listening.accept()
            except OSError:
                return
            with suppress(OSError), self._secured(connected) as client:  # which may have had enough
                self.requests.append(client.recv(100_000))
                script(client) if callable(script) else client.sendall(script)

    def _secured(self, connected: socket.socket) -> socket.socket:
        return connected if self._tls is None else self._tls.wrap_socket(connected, server_side=True)


def names(**addresses: list[str]) -> Callable[..., Any]:
    """Resolve these names (with _ for a full stop) to these addresses, and nothing else."""

    def resolve(host: str, port: int, **hints: Any) -> Any:
        if (found := addresses.get(host.replace(".", "_"))) is None:
            return socket.getaddrinfo(host, port, flags=socket.AI_NUMERICHOST, **hints)
        return [one for text in found for one in socket.getaddrinfo(text, port, **hints)]

    return resolve


async def get(url: str, **options: Any) -> Fetched:
    return await Fetcher(LOOPBACK, **{"deadline": 5.0} | options).fetch(url, max_bytes=1_000)


async def test_a_response_is_returned() -> None:
    with Server(OK) as server:
        fetched = await get(f"{server.url}a?b=c")

    assert (fetched.status, fetched.body, fetched.headers) == (200, b"hi", {"content-length": "2"})
    head = server.requests[0].decode()
    assert head.startswith("GET /a?b=c HTTP/1.1\r\n")
    assert f"Host: 127.0.0.1:{server.port}\r\n" in head
    assert "Accept-Encoding: identity" in head


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "2130706433",
        "0177.0.0.1",
        "0x7f.1",
        "127.1",
        "[::ffff:127.0.0.1]",
        "[::1]",
        "localhost",
        "0",
    ],
)
async def test_the_loopback_in_every_spelling_is_refused(host: str) -> None:
    with Server() as server, pytest.raises(FetchRefused, match="is not public"):
        await Fetcher(resolve=names(localhost=["127.0.0.1"])).fetch(f"http://{host}:{server.port}/")

    assert server.requests == []


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "fd00:ec2::254", "64:ff9b::a9fe:a9fe", "2002:7f00:1::1"]
)
async def test_a_name_that_leads_inside_is_refused(address: str) -> None:
    fetcher = Fetcher(resolve=names(evil_example=[address]))

    with pytest.raises(FetchRefused, match="add its network to allow_addresses"):
        await fetcher.fetch("http://evil.example/")


async def test_one_address_of_many_that_leads_inside_is_enough() -> None:
    fetcher = Fetcher(resolve=names(evil_example=["93.184.215.14", "127.0.0.1"]))

    with pytest.raises(FetchRefused, match=r"127\.0\.0\.1 is not public"):
        await fetcher.fetch("http://evil.example/")


async def test_a_name_is_resolved_once() -> None:
    answers = [["127.0.0.1"], ["127.0.0.2"]]
    asked: list[str] = []

    def rebind(host: str, port: int, **hints: Any) -> Any:
        asked.append(host)
        return socket.getaddrinfo(answers.pop(0)[0], port, **hints)

    with Server(OK) as server:
        fetched = await get(f"http://evil.example:{server.port}/", resolve=rebind)

    assert (fetched.status, asked) == (200, ["evil.example"])
    assert f"Host: evil.example:{server.port}".encode() in server.requests[0]


async def test_the_peer_that_was_reached_is_checked_again() -> None:
    """An address that passes, and leads elsewhere: as a network that translates addresses may do."""

    class Translated(str):
        """Reads as public; connects to the loopback."""

        __slots__ = ()

        def __str__(self) -> str:
            return "93.184.215.14"

    with Server() as server:
        place = (Translated("127.0.0.1"), server.port)
        fetcher = Fetcher(resolve=lambda *_, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place)])
        with pytest.raises(FetchRefused, match=r"127\.0\.0\.1 is not public"):
            await fetcher.fetch("http://evil.example/")

    assert server.requests in ([], [b""])


async def test_the_next_address_is_tried_if_the_first_does_not_answer() -> None:
    with Server(OK) as server:
        allowed = parse_networks(["127.0.0.0/8"])
        fetcher = Fetcher(allowed, deadline=5, resolve=names(two_example=["127.0.0.9", "127.0.0.1"]))
        fetched = await fetcher.fetch(f"http://two.example:{server.port}/")

    assert fetched.status == 200


# -- redirects -----------------------------------------------------------------------------------------


def moved(to: str, status: int = 302) -> bytes:
    return f"HTTP/1.1 {status} Moved\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode()


async def test_redirects_are_not_followed_by_default() -> None:
    with Server(moved("/elsewhere"), OK) as server:
        fetched = await get(server.url)

    assert (fetched.status, len(server.requests)) == (302, 1)


async def test_a_redirect_is_followed_if_it_is_allowed() -> None:
    with Server(moved("/b", 301), moved("c", 308), OK) as server:
        fetched = await get(f"{server.url}a", redirects=2)

    assert (fetched.status, fetched.url) == (200, f"{server.url}c")


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("http://169.254.169.254/latest", "169.254.169.254 is not public"),
        ("http://[::1]/", "::1 is not public"),
        ("file:///etc/passwd", "only http"),
        ("gopher://127.0.0.1/", "only http"),
        ("http://a:b@127.0.0.1/", "user name or password"),
        ("http://[bad/", "ValueError"),
    ],
)
async def test_a_redirect_is_checked_as_the_first_url(to: str, message: str) -> None:
    with Server(moved(to), OK) as server, pytest.raises(FetchError, match=message):
        await get(server.url, redirects=5)

    assert len(server.requests) == 1


async def test_redirects_are_bounded() -> None:
    with Server(*[moved("/")] * 5) as server, pytest.raises(FetchRefused, match="more than 2 redirects"):
        await get(server.url, redirects=2)

    assert len(server.requests) == 3


async def test_a_post_is_never_redirected() -> None:
    with Server(moved("/b", 307), OK) as server:
        fetched = await Fetcher(LOOPBACK, redirects=3).fetch(server.url, "POST", body=b"secret")

    assert (fetched.status, len(server.requests)) == (307, 1)


# -- hostile servers -----------------------------------------------------------------------------------


def endless(start: bytes, more: bytes) -> Callable[[socket.socket], None]:
    def send(connected: socket.socket) -> None:
        connected.sendall(start)
        while True:
            connected.sendall(more)

    return send


async def test_an_endless_body_is_cut() -> None:
    hose = endless(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 10_000)
    with Server(hose) as server, pytest.raises(FetchRefused, match="larger than 1,000 bytes"):
        await get(server.url)


async def test_a_body_that_ends_early_is_an_error() -> None:
    short = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nrope"
    with Server(short) as server, pytest.raises(FetchError, match="ended early"):
        await get(server.url)


async def test_a_body_can_be_cut_instead() -> None:
    hose = endless(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 10_000)
    packed = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b"
    with Server(hose, packed) as server:
        fetcher = Fetcher(LOOPBACK, deadline=5)
        bodies = [(await fetcher.fetch(server.url, max_bytes=7, cut=True)).body for _ in range(2)]

    assert bodies == [b"xxxxxxx", b""]


async def test_an_endless_head_is_cut() -> None:
    hose = endless(b"HTTP/1.1 200 OK\r\n", b"X-Y: " + b"x" * 500 + b"\r\n")
    with Server(hose) as server, pytest.raises(FetchError, match="HTTPException"):
        await get(server.url)


async def test_a_compressed_body_is_not_unpacked() -> None:
    bomb = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b"
    with Server(bomb) as server, pytest.raises(FetchRefused, match="compressed"):
        await get(server.url)


async def test_a_body_that_drips_ends_at_the_deadline() -> None:
    done = threading.Event()

    def drip(connected: socket.socket) -> None:
        connected.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n")
        while not done.wait(0.05):
            connected.sendall(b".")

    try:
        with Server(drip) as server:
            with pytest.raises(FetchError, match=r"no response within 0\.5 s"):
                await get(server.url, deadline=0.5)
            done.set()
    finally:
        done.set()


async def test_a_caller_that_gives_up_ends_the_request() -> None:
    gone = threading.Event()

    def wait(connected: socket.socket) -> None:
        connected.recv(1)  # returns when the client has gone
        gone.set()

    with Server(wait) as server:
        fetching = asyncio.create_task(get(server.url))
        await eventually(lambda: bool(server.requests))
        fetching.cancel()
        assert await asyncio.to_thread(gone.wait, 5)


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "http://", "http://h:0/", "http://a@h/", "http://h/\u00fc", "x"]
)
async def test_what_cannot_be_fetched_is_refused(url: str) -> None:
    with pytest.raises(FetchRefused):
        await get(url)


async def test_an_error_tells_nothing_of_what_was_received() -> None:
    with Server(b"\x1b[2J hunter2\r\n" * 10) as server, pytest.raises(FetchError) as failure:
        await get(server.url)

    assert str(failure.value) == "BadStatusLine"


async def test_a_port_that_is_closed_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
    with pytest.raises(FetchError, match="Connection refused"):
        await get(f"http://127.0.0.1:{port}/")


async def test_a_name_without_addresses_is_an_error() -> None:
    with pytest.raises(FetchError, match="OSError"):
        await get("http://nobody.example/", resolve=names(nobody_example=[]))


# -- TLS -----------------------------------------------------------------------------------------------


def certificate(folder: Path, name: str) -> ssl.SSLContext:
    """A server's TLS with a certificate for this name, which signs itself: cert.pem in the folder."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    named = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    subprocess.run([*made, *named, "-keyout", key, "-out", cert], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


async def test_the_certificate_must_be_that_of_the_name(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(OK, OK, OK, tls=certificate(tmp_path, "hook.example")) as server:
        resolve = names(hook_example=["127.0.0.1"], other_example=["127.0.0.1"])
        with pytest.raises(FetchError, match="SSLCertVerificationError"):
            await get(f"https://hook.example:{server.port}/", resolve=resolve)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        fetched = await get(f"https://hook.example:{server.port}/", resolve=resolve)
        with pytest.raises(FetchError, match="SSLCertVerificationError"):
            await get(f"https://other.example:{server.port}/", resolve=resolve)

    assert (fetched.status, len(server.requests)) == (200, 1)
