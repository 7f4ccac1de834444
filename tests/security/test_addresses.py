"""Forbidden addresses of webhooks, alerts and fetched URLs, by other roads than tests/handlers/test_ssrf.py.

Names resolve by stubs. An audit hook fails whatever would connect to anything but the loopback.
"""

import socket
import sys
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import cycle, product
from typing import Any

import pytest

from tests.handlers.http_sink import Answer, Received, http_sink
from tests.handlers.runs import new_app, run
from tests.security.probes import ENOUGH, chosen
from windlass import InvalidOption, State, handlers
from windlass._fetch import Fetcher, FetchError, FetchRefused
from windlass._policy.addresses import parse_networks, refused
from windlass._policy.alerts import webhook_url
from windlass._webhook import Message, deliver

pytestmark = pytest.mark.more

LOOPBACK = parse_networks(["127.0.0.1"])
PUBLIC = [
    "8.8.8.8",
    "1.1.1.1",
    "2606:4700::1111",
    "2a00:1450::1",
    "64:ff9b::808:808",
    "2002:808:808::1",
    "2c0f::1",
]
INSIDE = [
    "127.0.0.2",
    "10.0.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.1",
]
NAT64 = int(IPv6Address("64:ff9b:1::"))
watched: list[Any] = []
is_watching = False


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if is_watching and event == "socket.connect" and isinstance(arguments[1], tuple):
        address = str(arguments[1][0]).partition("%")[0]
        watched.append(address)
        if address != "127.0.0.1":
            raise AssertionError(f"a connection to {address}")


sys.addaudithook(_watch)


@pytest.fixture(autouse=True)
def connections() -> Iterator[list[Any]]:
    """The addresses that were connected to; any but 127.0.0.1 is prevented."""
    global is_watching  # noqa: PLW0603  hooks cannot be removed
    watched.clear()
    is_watching = True
    yield watched
    is_watching = False
    assert {*watched} <= {"127.0.0.1"}


def local_nat64(address: str, length: int) -> str:
    """Carry an IPv4 address as RFC 6052 does by the length of the prefix; 8.8.8 is where others look."""
    number, bits = int(IPv4Address(address)), NAT64 | 0x080808
    at = length
    for byte in number.to_bytes(4, "big"):
        at += 8 if at == 64 else 0  # these bits are always zero
        bits |= byte << (120 - at)
        at += 8
    return str(IPv6Address(bits))


CARRIED = [
    *(local_nat64(one, length) for one, length in product(INSIDE, (48, 56, 64))),
    *(str(IPv6Address(NAT64 | int(IPv4Address(one)))) for one in (*INSIDE, "8.8.8.8")),
    *(f"64:ff9b:1:{n:x}::8.8.8.8" for n in (0, 1, 0x7F00, 0xA9FE, 0xFFFF)),
    *(str(IPv6Address((0x2002 << 112) | int(IPv4Address(one)) << 80 | 1)) for one in INSIDE),
    *(f"{prefix}{one}" for prefix, one in product(["::ffff:", "::ffff:0:", "::", "64:ff9b::"], INSIDE)),
]
UNASSIGNED = [
    str(IPv6Address((first << 112) | rest))
    for first, rest in product(
        (
            0x0001,
            0x0100,
            0x0200,
            0x0300,
            0x0400,
            0x0800,
            0x1000,
            0x1FFF,
            0x4000,
            0x5FFF,
            0x8000,
            0xA000,
            0xC000,
            0xE000,
            0xF000,
            0xF800,
            0xFC00,
            0xFD00,
            0xFE00,
            0xFE80,
            0xFEC0,
            0xFF02,
        ),
        (1, 0xA9FE << 16 | 0xA9FE),
    )
]
FORBIDDEN = [*dict.fromkeys([*CARRIED, *UNASSIGNED, *INSIDE])]
ODD_HOSTS = [
    "2130706434",
    "0x7f000002",
    "017700000002",
    "0177.0.0.2",
    "0x7f.0.0.2",
    "127.2",
    "127.0.2",
    "10.1",
    "0xa000001",
    "2852039166",
    "0xA9FEA9FE",
    "0251.0376.0251.0376",
    "169.0xfe.43518",
    "[::]",
    "[0::0]",
    "[::127.0.0.2]",
    "0",
]
URLS = [
    *(f"http://[{one}]/" if ":" in one else f"http://{one}/" for one in FORBIDDEN),
    *(f"http://{one}:{port}/" for one, port in product(ODD_HOSTS, (80, 25, 6379, 65535))),
    *(f"http://[fe80::1%25{zone}]/" for zone in ("lo", "eth0", "1", "a%0d%0aX:y")),
]
BAD_LABELS = ["a..b", ".", "..", ".a", "a..", "a" * 64, "a" * 64 + ".b", "b." + "a" * 64, "127.0.0..1"]
ODD_URLS = [
    *(
        f"{scheme}://127.0.0.1/"
        for scheme in ("file", "ftp", "gopher", "dict", "ldap", "tftp", "ws", "jar", "data", "unix", "")
    ),
    *(f"http://{who}@127.0.0.1/" for who in ("a", "a:b", "8.8.8.8", "8.8.8.8:80", "a%40b", "")),
    *(
        f"http://127.0.0.1{tail}"
        for tail in ("\\@8.8.8.8/", ":0/", ":65536/", ":-1/", ":x/", "\t/", " /", "\r\n/", "\x00/")
    ),
    *(
        f"http://{host}/"
        for host in (
            "\u24ea.0.0.0",
            "\uff11\uff12\uff17.0.0.1",
            "127\u30020\u30020\u30021",
            "\u2488\u2488",
            "lo\u200dcalhost",
            "[v1.a]",
            "[::1",
            "::1",
            "[]",
            "-",
            *BAD_LABELS,
        )
    ),
    "http:/127.0.0.1",
    "http:127.0.0.1",
    "http:///127.0.0.1",
    "//127.0.0.1",
    "http://",
    "http://#127.0.0.1",
    "http://?127.0.0.1",
    "",
]


def stub(*answers: list[str]) -> Callable[..., Any]:
    """A resolver whose answers follow each other, the last again and again; numbers are what they are."""
    left = [*answers]

    def resolve(host: str, port: int, **hints: Any) -> Any:
        try:
            return socket.getaddrinfo(host, port, flags=socket.AI_NUMERICHOST, **hints)
        except socket.gaierror:
            found = left.pop(0) if len(left) > 1 else left[0]
        return [
            place
            for one in found
            for place in socket.getaddrinfo(one, port, flags=socket.AI_NUMERICHOST, **hints)
        ]

    return resolve


def test_the_corpora_are_large() -> None:
    assert len({*URLS}) >= ENOUGH
    assert len({*FORBIDDEN}) * 4 + len({*ODD_URLS}) >= ENOUGH


def test_every_forbidden_address_is_known_as_such() -> None:
    assert [one for one in FORBIDDEN if refused([one]) is None] == []
    assert [one for one in PUBLIC if refused([one]) is not None] == []  # the control
    assert {ip_address(local_nat64("169.254.169.254", 48))} == {IPv6Address("64:ff9b:1:a9fe:a9:fe00:8:808")}


def test_a_local_nat64_can_be_allowed() -> None:
    allowed = parse_networks(["64:ff9b:1::/48"])
    assert refused(["64:ff9b:1::8.8.8.8"], allowed) is None


async def test_a_name_with_a_forbidden_address_is_refused() -> None:
    """Alone, and before or after addresses that may be reached."""
    for one in chosen(FORBIDDEN, 40):
        for answer in ([one], ["127.0.0.1", one], [one, "127.0.0.1"], ["127.0.0.1"] * 9 + [one]):
            with pytest.raises(FetchRefused, match="is not public"):
                await Fetcher(LOOPBACK, resolve=stub(answer)).fetch("http://example.org/")


async def test_a_url_with_a_forbidden_address_is_refused() -> None:
    for url in chosen(URLS, 60):
        with pytest.raises(FetchError):
            await Fetcher(LOOPBACK, resolve=stub(["10.0.0.1"]), deadline=10).fetch(url)
    assert watched == []


async def test_an_odd_url_is_refused() -> None:
    bad = [f"http://{host}/" for host in BAD_LABELS]  # which the resolver refuses, not as an OSError
    for url in {*bad, *chosen(ODD_URLS, 30)}:
        with pytest.raises(FetchRefused):
            await Fetcher(resolve=stub(["10.0.0.1"]), deadline=10).fetch(url)
    assert watched == []


async def test_no_redirect_leads_to_one() -> None:
    """At the first hop or a later one; only the server that redirects is ever connected to."""
    targets = chosen([*URLS, *ODD_URLS], 12)
    for target, hops in zip(targets, cycle([1, 2, 4])):

        def route(request: Received, target: str = target, hops: int = hops) -> Answer:
            at = int(request.path.removeprefix("/") or 0)
            where = target if at + 1 == hops else f"/{at + 1}"
            usable = "".join(one if one.isprintable() and one.isascii() else "?" for one in where)
            return Answer(302, headers={"Location": usable})

        with http_sink(route=route) as web:
            fetcher = Fetcher(LOOPBACK, redirects=5, resolve=stub(["10.0.0.1"]), deadline=20)
            try:
                fetched = await fetcher.fetch(f"{web.url}/0", max_bytes=10)
            except (FetchError, ValueError):
                continue
            assert fetched.url.startswith(web.url), target  # it was relative to the server


async def test_a_name_that_changes_is_judged_at_each_hop() -> None:
    with http_sink(route=lambda request: Answer(302, headers={"Location": "/next"})) as web:
        url = web.url.replace("127.0.0.1", "example.org")
        for number, one in product(range(1, 4), chosen(FORBIDDEN, 10)):
            resolve = stub(*[["127.0.0.1"]] * number, [one])
            with pytest.raises(FetchRefused, match="is not public"):
                await Fetcher(LOOPBACK, redirects=5, resolve=resolve, deadline=20).fetch(url)


async def test_alerts_reach_none_of_them() -> None:
    for url in chosen([*URLS, *ODD_URLS], 40):
        fetcher = Fetcher(LOOPBACK, resolve=stub(["10.0.0.1"]), deadline=10)
        response = await deliver(url, Message("a", b"{}"), None, fetcher)
        assert (response.status, response.taken) == (None, False), url
    assert watched == []


def test_an_alert_refuses_odd_urls() -> None:
    for url in ODD_URLS:
        try:
            webhook_url(url)
        except InvalidOption:
            continue
        assert url.isascii()  # a name that does not resolve, or not to what is public


async def test_what_is_allowed_is_reached() -> None:
    """The control."""
    with http_sink(Answer(204)) as web:
        url = web.url.replace("127.0.0.1", "example.org")
        fetched = await Fetcher(LOOPBACK, resolve=stub(["127.0.0.1"])).fetch(url)
        assert fetched.status == 204
        with pytest.raises(FetchRefused):
            await Fetcher(resolve=stub(["127.0.0.1"])).fetch(url)
    assert watched == ["127.0.0.1"]
    with pytest.raises(AssertionError), socket.socket() as connected:
        connected.connect(("127.0.0.2", 9))
    watched.remove("127.0.0.2")


async def test_webhooks_follow_no_redirects() -> None:
    """Of a task and of an alert, whatever the status and wherever it leads: also to where they came from."""
    for status in (301, 302, 303, 307, 308):
        with http_sink(Answer(status, headers={"Location": "/next"}), Answer(204)) as web:
            app = new_app()
            task = await run(app.include(handlers.Webhooks()), app, endpoint=f"{web.url}/hook", body={})
            assert task.state is not State.COMPLETED
            assert [one.path for one in web.received] == ["/hook"]
        with http_sink(Answer(status, headers={"Location": "/next"}), Answer(204)) as web:
            response = await deliver(f"{web.url}/hook", Message("a", b"{}"), None, Fetcher(LOOPBACK))
            assert (response.status, response.taken) == (status, False)
            assert [one.path for one in web.received] == ["/hook"]
