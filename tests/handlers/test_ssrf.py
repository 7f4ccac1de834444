"""Addresses and tricks that lead inside a network: none gets through, whichever handler is asked.

Names resolve by a stub that knows no other address, and nothing but the loopback could be connected to.
"""

import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest

from tests.examples import sample
from tests.handlers.http_sink import http_sink
from tests.handlers.runs import run
from windlass import App, State, Task, handlers
from windlass._fetch import Fetcher, FetchError, FetchRefused

INSIDE_4 = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.254", "100.64.0.1", "100.100.100.200", "127.0.0.1",
    "127.0.0.53", "127.255.255.254", "169.254.0.1", "169.254.169.254", "169.254.170.2", "172.16.0.1",
    "172.31.255.254", "192.0.0.1", "192.0.0.8", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1",
    "192.168.255.254", "198.18.0.1", "198.19.255.254", "198.51.100.1", "203.0.113.1", "224.0.0.1",
    "239.255.255.255", "240.0.0.1", "255.255.255.255",
]  # fmt: skip
INSIDE_6 = [
    "::", "::1", "::2", "::127.0.0.1", "64:ff9b:1::1", "100::1", "2001::1", "2001:10::1", "2001:20::1",
    "2001:db8::1", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fd12:3456::1", "fe80::1",
    "fe80::a9fe:a9fe", "fec0::1", "ff02::1", "ff05::1",
]  # fmt: skip


def carried(address: str) -> list[str]:
    """IPv6 addresses that carry an IPv4 address: mapped, translated, 6to4, NAT64, Teredo."""
    number = int(IPv4Address(address))
    high, low = divmod(number, 1 << 16)
    teredo = (0x20010000 << 96) | (number ^ 0xFFFFFFFF)
    return [
        f"::ffff:{address}",
        f"::ffff:0:{address}",
        f"2002:{high:x}:{low:x}::1",
        f"64:ff9b::{high:x}:{low:x}",
        str(IPv6Address(teredo)),
    ]


def spelled(address: str) -> list[str]:
    """Ways to write an IPv4 address that resolvers understand."""
    number = int(IPv4Address(address))
    parts = [int(part) for part in address.split(".")]
    return [
        str(number),
        hex(number),
        f"0{number:o}",
        ".".join(f"0{part:o}" for part in parts),
        ".".join(hex(part) for part in parts),
        f"{parts[0]}.{number & 0xFFFFFF}",
        f"{parts[0]}.{parts[1]}.{number & 0xFFFF}",
    ]


SPELLED = ["127.0.0.1", "169.254.169.254", "10.0.0.1", "192.168.1.1", "172.16.0.1", "100.100.100.200"]
RESOLVED = [*INSIDE_4, *INSIDE_6, *(one for address in INSIDE_4 for one in carried(address))]
HOSTS = [
    *INSIDE_4,
    *(f"[{address}]" for address in INSIDE_6),
    *(one for address in SPELLED for one in spelled(address)),
]
TRICKS = [
    "http://127.0.0.1@example.org/", "http://example.org@127.0.0.1/", "http://example.org:80@127.0.0.1/",
    "http://example.org#@127.0.0.1/", "http://127.0.0.1\\@example.org/", "http://127.0.0.1%2f@example.org/",
    "file:///etc/passwd", "gopher://127.0.0.1:25/", "dict://127.0.0.1/", "ftp://127.0.0.1/", "jar:http://x!/",
    "//127.0.0.1/", "http:127.0.0.1", "http:///127.0.0.1/", "http://", "http://\t127.0.0.1/",
    "http://127.0.0.1 /", "http://127.0.0.1\r\nHost: x/", "http://\u2460\u2461\u2466.0.0.1/",
    "http://127\u30020\u30020\u30021/", "http://\uff11\uff12\uff17.0.0.1/", "http://[::1%25lo]/",
    "http://127.0.0.1:0/", "http://127.0.0.1:99999/", "http://[::ffff:7f00:1]/",
]  # fmt: skip


LOOPBACK = ["127.0.0.1", "127.0.0.2", "127.0.0.53", "127.1.2.3", "127.9.9.9", "127.255.255.254"]
ASKED = [
    *("127.0.0.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "0.0.0.0", "0", "[::1]", "[::]"),
    *(one for address in LOOPBACK for one in [*spelled(address), f"[::ffff:{address}]"]),
]
ASKED = [*dict.fromkeys(ASKED)]  # of the whole tasks, which could connect: this machine only


def stub(address: str) -> Callable[..., Any]:
    """A resolver that resolves every name to this address."""

    def resolve(host: str, port: int, **hints: Any) -> Any:
        return socket.getaddrinfo(address, port, flags=socket.AI_NUMERICHOST, **hints)

    return resolve


def numeric(host: str, port: int, **hints: Any) -> Any:
    """A resolver that knows no names."""
    return socket.getaddrinfo(host, port, flags=socket.AI_NUMERICHOST, **hints)


def test_the_corpus_is_large() -> None:
    assert len({*RESOLVED, *HOSTS, *TRICKS}) >= 200
    assert len({*ASKED}) * len(TYPES) >= 242


@pytest.mark.parametrize("address", RESOLVED)
async def test_a_name_that_resolves_inside_is_refused(address: str) -> None:
    with pytest.raises(FetchRefused, match="is not public"):
        await Fetcher(resolve=stub(address)).fetch("http://example.org/")


@pytest.mark.parametrize("host", HOSTS)
async def test_an_address_inside_is_refused(host: str) -> None:
    with pytest.raises(FetchRefused, match="is not public"):
        await Fetcher(resolve=numeric).fetch(f"http://{host}/")


@pytest.mark.parametrize("url", TRICKS)
async def test_a_trick_is_refused(url: str) -> None:
    with pytest.raises(FetchError):
        await Fetcher(resolve=numeric, deadline=2).fetch(url)


TYPES: list[tuple[Any, dict[str, Any]]] = [
    (handlers.Webhooks(), {"endpoint": "URL", "body": {}}),
    (handlers.Pages(), {"url": "URL"}),
    (handlers.Images(), {"url": "URL"}),
    (handlers.Requests(), {"url": "URL"}),
    (
        handlers.Email(sender="a@example.org", smtp="smtp://localhost"),
        {"to": "b@example.org", "subject": "x", "text": "x", "attachments": {"url": "URL"}},
    ),
]


async def ran_at(url: str, settings: Any, payload: dict[str, Any]) -> Task:
    app = App("memory://")
    given = {
        name: {"url": url} if isinstance(value, dict) and value else url if value == "URL" else value
        for name, value in payload.items()
    }
    task = await run(app.include(settings), app, **given)
    await app.close()
    return task


handled = pytest.mark.parametrize(("settings", "payload"), TYPES, ids=lambda one: type(one).__name__)


@handled
@pytest.mark.parametrize("host", sample(ASKED[:4], ASKED[4:]))
async def test_every_handler_refuses_them(settings: Any, payload: dict[str, Any], host: str) -> None:
    with http_sink() as sink:
        task = await ran_at(sink.url.replace("127.0.0.1", host), settings, payload)

    assert (task.state, task.attempt) == (State.DEAD, 1)
    assert task.error is not None
    assert "is not public" in task.error.message
    assert sink.received == []


@handled
@pytest.mark.parametrize("host", ["a..b", ".a", "a" * 64])
async def test_every_handler_refuses_bad_labels_at_once(
    settings: Any, payload: dict[str, Any], host: str
) -> None:
    task = await ran_at(f"http://{host}/", settings, payload)

    assert (task.state, task.attempt) == (State.DEAD, 1)
    assert task.error is not None
    assert "1 to 63 characters" in task.error.message


@handled
@pytest.mark.parametrize("host", ["[fe80::1%25lo]", "[fe80::1%lo]", "[v1.a:b]", "a%2eb", 'a"b', "a*b"])
async def test_every_handler_refuses_odd_hosts_at_once(
    settings: Any, payload: dict[str, Any], host: str
) -> None:
    """Addresses with a zone id, addresses of a later version, and characters that no name has."""
    task = await ran_at(f"http://{host}/", settings, payload)

    assert (task.state, task.attempt) == (State.DEAD, 1)
    assert task.error is not None
    assert "an IPv6 address without a zone" in task.error.message
