"""A server without keys answers programs on this machine, and no web page and no proxy."""

import asyncio
import re
from itertools import product
from typing import Any

import httpx2
import pytest

from tests.http.problem import assert_safe, problem
from tests.servers.api import ApiServer
from windlass._client.keys import Keys
from windlass._http import auth
from windlass._http.app import OPERATIONS
from windlass._http.web.keyless import is_local
from windlass._model.filter import Page
from windlass._model.key import ApiKey
from windlass._model.queue import QueueSettings
from windlass._store.messages import REQUESTS
from windlass._stores.memory import MemoryStore

EVIL = "rebind.evil.example"
PAUSE = "/queues/default/pause?create=true"
NEW_KEY = {"label": "ghost", "scopes": ["admin"]}
LOCAL = (
    *("127.0.0.1", "127.0.0.1:8765", "127.9.8.7:1", "localhost", "localhost:8765", "LocalHost:8765"),
    *("[::1]", "[::1]:8765"),
)
FOREIGN = (
    *(EVIL, f"{EVIL}:8765", "192.0.2.1", "10.0.0.7:8765", "0.0.0.0:8765", "[::]:8765", "[::2]"),
    *("localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.1@evil.example", "evil.localhost."),
    *("127.1", "2130706433", "0177.0.0.1", "[::ffff:192.0.2.1]", "", ":8765", "localhost:", "localhost:x"),
    *("localhost, evil.example", "::1", "[::1", "[127.0.0.1]", "localhost:8765:8765", "127.0.0.1\t.evil"),
)
FORWARDED = {
    "Forwarded": "for=192.0.2.60;proto=http",
    "X-Forwarded-For": "192.0.2.60",
    "X-Forwarded-Host": "windlass.example.com",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Prefix": "/queue",
    "X-Forwarded-Anything": "",
    "X-Forwarded": "for=192.0.2.60",
    "Via": "1.1 proxy",
    "CF-Ray": "7d1f0a-FRA",
    "CDN-Loop": "cloudflare",
    "X-Amzn-Trace-Id": "Root=1-67891233-abcdef012345678912345678",
    "X-Original-Host": "windlass.example.com",
} | dict.fromkeys(
    (
        *(
            "X-Real-IP",
            "CF-Connecting-IP",
            "True-Client-IP",
            "X-Client-IP",
            "X-Original-For",
            "X-ProxyUser-Ip",
        ),
        *("X-Envoy-External-Address", "X-Cluster-Client-IP", "Fastly-Client-IP", "X-Original-Forwarded-For"),
        *("X-Azure-ClientIP", "X-Appengine-User-IP", "X-Remote-IP", "Client-IP", "Forwarded-For"),
    ),
    "192.0.2.60",
)
FORWARDED |= dict.fromkeys(
    [
        "CF-Connecting-IPv6",
        "CF-Visitor",
        "CF-IPCountry",
        "CF-Pseudo-IPv4",
        "Cf-Access-Jwt-Assertion",
        "X-Envoy-Peer-Metadata",
        "X-Envoy-Original-Path",
        "Fly-Client-IP",
        "Fly-Forwarded-Port",
        "X-Azure-SocketIP",
        "X-Azure-FDID",
        "X-Amz-Cf-Id",
        "X-Request-Start",
        "X-Forwarded-Client-Cert",
        "X-Forwarded-User",
        "X-Vercel-Forwarded-For",
        "X-Vercel-Id",
        "X-Nf-Client-Connection-Ip",
        "X-Nf-Request-Id",
        "X-Remote-Addr",
        "X-Remote-User",
        "Remote-User",
        "X-Originating-IP",
        "X-Host",
        "X-HTTP-Host-Override",
        "X-Original-URL",
        "X-Original-URI",
        "X-Original-Method",
        "X-Rewrite-URL",
        "WL-Proxy-Client-IP",
        "Proxy-Client-IP",
        "Remote-Addr",
        "X-Varnish",
        "Proxy-Connection",
        "X-Coming-From",
        "X-Scheme",
        "X-SSL",
        "DO-Connecting-IP",
        "Ali-CDN-Real-IP",
        "X-Arr-Log-Id",
        "X-Arr-Ssl",
        "X-Cloud-Trace-Context",
        "Max-Forwards",
        "Front-End-Https",
        "X-Url-Scheme",
        "Tailscale-User-Login",
        "Tailscale-User-Name",
        "X-Auth-Request-User",
        "X-Auth-Request-Email",
        "X-Goog-Authenticated-User-Email",
        "X-Goog-Iap-Jwt-Assertion",
        "X-Traefik-Router",
        "Surrogate-Capability",
        "X-Sendfile-Type",
        "X-Accel-Mapping",
        "X-Real-Port",
        "X-Nginx-Proxy",
        "Ngrok-Skip-Browser-Warning",
        "X-Gateway-Host",
        "X-Proxy-User",
        "X-Webauth-User",
        "X-Authentik-Username",
        "SSL-Client-Cert",
        "X-SSL-Client-Verify",
        "X-Client-Cert",
        "X-Akamai-Edgescape",
        "Akamai-Origin-Hop",
        "Fastly-SSL",
        "X-Source-IP",
        "X-Peer-IP",
        "X-Appengine-Country",
        "X-Via",
        "X-BlueCoat-Via",
        "X-IWSS-Via",
        "X-Kong-Request-Id",
        "Kong-Debug",
        "X-Consumer-Username",
        "X-Anonymous-Consumer",
        "X-Credential-Identifier",
        "X-Authenticated-Userid",
        "X-Server-Name",
        "X-Server-Port",
        "X-Sent-By",
        "X-Served-By",
        "X-Received-By",
        "X-Routed-By",
        "X-Upstream-Name",
        "X-Backend-Server",
        "X-Balancer-Id",
        "X-LB-Id",
        "X-Edge-Location",
        "X-Hops",
        "X-Protocol",
        "X-Port",
        "X-HTTPS",
        "X-TLS-Version",
        "CloudFront-Viewer-Country",
        "CloudFront-Is-Desktop-Viewer",
        "X-Zscaler-Tenant",
        "X-Istio-Attributes",
        "L5d-Dst-Canonical",
        "X-Tyk-Api-Id",
        "X-Apigee-Message-Id",
        "X-Caddy-Sponsors",
        "X-Haproxy-Id",
        "X-F5-Trace",
        "X-Squid-Error",
        "X-Imperva-Id",
        "X-GeoIP-Country",
    ],
    "192.0.2.60",
)
OF_PROGRAMS = dict.fromkeys(
    [
        "Accept",
        "Accept-Charset",
        "Accept-Encoding",
        "Accept-Language",
        "Access-Control-Request-Headers",
        "Access-Control-Request-Private-Network",
        "Alt-Used",
        "Authorization",
        "Baggage",
        "Cache-Control",
        "Client-Name",
        "Correlation-Id",
        "Cookie",
        "Device-Memory",
        "DNT",
        "Downlink",
        "DPR",
        "ECT",
        "From",
        "Idempotency-Key",
        "If-Match",
        "If-Modified-Since",
        "If-None-Match",
        "If-Range",
        "If-Unmodified-Since",
        "Last-Event-ID",
        "Pragma",
        "Priority",
        "Purpose",
        "Range",
        "Referer",
        "RTT",
        "Save-Data",
        "Sec-CH-Prefers-Color-Scheme",
        "Sec-CH-Prefers-Reduced-Motion",
        "Sec-CH-UA",
        "Sec-CH-UA-Arch",
        "Sec-CH-UA-Bitness",
        "Sec-CH-UA-Full-Version-List",
        "Sec-CH-UA-Mobile",
        "Sec-CH-UA-Model",
        "Sec-CH-UA-Platform",
        "Sec-CH-UA-Platform-Version",
        "Sec-CH-Viewport-Width",
        "Sec-Fetch-User",
        "Sec-GPC",
        "Sec-Purpose",
        "TE",
        "Traceparent",
        "Tracestate",
        "Trailer",
        "Upgrade-Insecure-Requests",
        "User-Agent",
        "Viewport-Width",
        "Want-Digest",
        "Width",
        "X-Amz-Content-Sha256",
        "X-Amz-Date",
        "X-Api-Key",
        "X-Api-Version",
        "X-B3-Sampled",
        "X-B3-SpanId",
        "X-B3-TraceId",
        "X-Client",
        "X-Client-Data",
        "X-Client-Version",
        "X-Correlation-ID",
        "X-CSRF-Token",
        "X-Datadog-Trace-Id",
        "X-Device-Id",
        "X-HTTP-Method-Override",
        "X-Message-Id",
        "X-Moz",
        "X-Ms-Version",
        "X-Powered-By",
        "X-Purpose",
        "X-Request-Id",
        "X-Requested-By",
        "X-Requested-With",
        "X-Session-Id",
        "X-Stainless-Lang",
        "X-Support-Level",
        "X-Timezone",
        "X-Trace-Id",
        "X-User-Agent",
        "X-User-Id",
        "X-Viability",
        "X-Widget-Id",
    ],
    "1",
)
FOREIGN_ORIGINS = (
    *(f"http://{EVIL}", "https://evil.example", "null", "", "http://127.0.0.1", "http://127.0.0.1:1"),
    *("http://localhost.evil.example:8765", "file://", "chrome-extension://abcdef", "127.0.0.1:{port}"),
)


class Caller:
    """Calls a server without keys, as browsers and proxies might."""

    def __init__(self, http: httpx2.AsyncClient, url: str, store: MemoryStore) -> None:
        self.http = http
        self.url = url
        self.port = httpx2.URL(url).port
        self.store = store

    async def __call__(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> httpx2.Response:
        response = await self.http.request(method, f"{self.url}{path}", json=body, headers=headers)
        assert_safe(response)
        assert not [name for name in response.headers if name.startswith("access-control")]
        return response

    async def changed(self) -> bool:
        """Whether there is a key or a paused queue now."""
        found = (await self.store.records(ApiKey, Page())).items
        queues = (await self.store.records(QueueSettings, Page())).items
        return bool(found) or any(queue.paused for queue in queues)


@pytest.fixture
def call(http: httpx2.AsyncClient, api: ApiServer, store: MemoryStore) -> Caller:
    """Call a server that requires no key until there is one, as `windlass serve` does."""
    return Caller(http, api.serve(store, open_until_keys=True), store)


@pytest.fixture
def insecure(http: httpx2.AsyncClient, api: ApiServer, store: MemoryStore) -> Caller:
    """Call a server that requires no key at all: `windlass serve --insecure`, or a mounted API."""
    return Caller(http, api.serve(store, open_to_all=True), store)


@pytest.fixture(params=[{"open_until_keys": True}, {"open_to_all": True}], ids=["local", "insecure"])
def either(
    http: httpx2.AsyncClient, api: ApiServer, store: MemoryStore, request: pytest.FixtureRequest
) -> Caller:
    return Caller(http, api.serve(store, **request.param), store)


async def test_a_rebound_name_gets_no_key(call: Caller) -> None:
    headers = {"host": EVIL, "origin": f"http://{EVIL}"}
    found = problem(await call("POST", "/keys", NEW_KEY, headers), 421, "misdirected")

    assert "windlass keys create" in found["detail"]
    assert not await call.changed()


async def test_a_form_of_another_origin_pauses_nothing(call: Caller) -> None:
    headers = {"origin": "https://evil.example", "content-type": "application/x-www-form-urlencoded"}
    problem(await call("POST", PAUSE, headers=headers), 403, "forbidden")

    assert not await call.changed()


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
async def test_a_form_is_refused_without_origin_too(kind: str, either: Caller) -> None:
    """Old browsers send no Origin with a form."""
    for sent in (kind, kind.upper(), "text/plain", "text/plain;charset=UTF-8"):
        problem(await either("POST", PAUSE, headers={"content-type": sent}), 415, "unsupported-media-type")

    assert not await either.changed()


async def test_a_proxy_publishes_nothing(call: Caller) -> None:
    for name, value in FORWARDED.items():
        for method, path, body in (("GET", "/tasks", None), ("POST", "/keys", NEW_KEY)):
            found = problem(await call(method, path, body, {name: value}), 403, "forbidden")
            assert name.lower() in found["detail"]
            assert "windlass keys create" in found["detail"]

    assert not await call.changed()


@pytest.mark.parametrize("name", OF_PROGRAMS)
async def test_headers_of_browsers_and_programs_are_answered(name: str, call: Caller) -> None:
    alone = await call("GET", "/tasks", headers={name: "1"} if name != "Accept-Encoding" else {name: "gzip"})

    assert alone.status_code == 200
    together = {**OF_PROGRAMS, "Accept-Encoding": "gzip"}
    assert (await call("GET", "/tasks", headers=together)).status_code == 200


async def test_a_proxy_as_nginx_is_by_default_publishes_nothing(call: Caller, insecure: Caller) -> None:
    """It rewrites Host, adds no header, and speaks HTTP/1.0 to the server."""
    head = f"GET {{path}}/tasks HTTP/1.0\r\nHost: 127.0.0.1:{call.port}\r\nConnection: close\r\n\r\n"
    assert (await raw(call.url, head)).split()[1] == b"403"
    assert (await raw(insecure.url, head)).split()[1] == b"200"


STRANGERS = (
    {"host": EVIL},
    {"via": "1.1 proxy"},
    {"origin": "https://evil.example"},
    {"sec-fetch-site": "cross-site"},
)


@pytest.mark.parametrize("headers", STRANGERS, ids=lambda headers: next(iter(headers)))
async def test_every_operation_and_verb_refuses_strangers(headers: dict[str, str], call: Caller) -> None:
    """Derived from what the server has: none can be forgotten."""
    asked = [(one.method, re.sub(r"{\w+}", "x", one.path)) for one in OPERATIONS if one.scope is not None]
    asked += [("POST", f"/store/{verb}") for verb in REQUESTS] + [("POST", "/store/wakes")]
    assert len(asked) > 70
    for method, path in asked:
        response = await call(method, path, headers=headers)
        problem(
            response, 421 if "host" in headers else 403, "misdirected" if "host" in headers else "forbidden"
        )
    assert not await call.changed()


@pytest.mark.parametrize("host", LOCAL)
async def test_names_of_this_machine_are_answered(host: str, call: Caller) -> None:
    assert (await call("GET", "/tasks", headers={"host": host})).status_code == 200
    assert (await call("POST", PAUSE, headers={"host": host})).status_code == 200


@pytest.mark.parametrize("host", FOREIGN)
async def test_other_names_are_not(host: str, call: Caller) -> None:
    for method, path, body in (
        ("GET", "/tasks", None),
        ("HEAD", "/tasks", None),
        ("GET", "/events", None),
        ("POST", "/store/wakes", {}),
        ("POST", "/store/find", {"where": {}, "page": {}}),
        ("POST", "/keys", NEW_KEY),
        ("POST", PAUSE, None),
    ):
        response = await call(method, path, body, {"host": host})
        # The server itself refuses a Host that is malformed; a mounted API may have another one.
        assert response.status_code in (400, 421), (method, path, response.text)
    assert not await call.changed()
    assert not is_local(host.encode())


async def raw(url: str, head: str) -> bytes:
    """Send a request head byte for byte, and return the status line."""
    parts = httpx2.URL(url)
    reader, writer = await asyncio.open_connection(parts.host, parts.port)
    writer.write(head.format(path=parts.path).encode())
    line = await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    await writer.wait_closed()
    return line


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_no_host_or_one_of_two_is_not_enough(version: str, call: Caller) -> None:
    for hosts in ("", f"Host: localhost\r\nHost: {EVIL}\r\n", f"Host: {EVIL}\r\nHost: localhost\r\n"):
        head = f"GET {{path}}/tasks HTTP/{version}\r\n{hosts}Connection: close\r\n\r\n"
        assert (await raw(call.url, head)).split()[1] in (b"400", b"421"), hosts


def origins(port: int) -> list[str]:
    return [one.format(port=port) for one in FOREIGN_ORIGINS]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_pages_of_other_origins_are_refused(method: str, either: Caller) -> None:
    asked = {
        "GET": [("/tasks", None), ("/events", None)],
        "POST": [
            ("/keys", NEW_KEY),
            (PAUSE, None),
            ("/store/wakes", {}),
            ("/store/put", {"kind": "queue", "record": {}}),
        ],
        "PUT": [("/limits/n", {"running": 1, "all": True})],
        "PATCH": [("/queues/default", {"stripes": 2})],
        "DELETE": [("/limits/n", None)],
    }[method]
    assert either.port is not None
    cases: list[dict[str, str]] = [{"origin": origin} for origin in origins(either.port)]
    cases += [{"sec-fetch-site": site} for site in ("cross-site", "same-site", "nonsense")]
    own = f"http://127.0.0.1:{either.port}"
    cases += [{"origin": own, "sec-fetch-site": "cross-site"}]
    for (path, body), headers in product(asked, cases):
        problem(await either(method, path, body, headers), 403, "forbidden")
    assert not await either.changed()


async def test_pages_of_its_own_and_links_are_answered(either: Caller) -> None:
    own = f"http://127.0.0.1:{either.port}"
    typed = {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}
    page = {"origin": own, "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}
    for headers in ({}, typed, page, {"origin": own}, {"sec-fetch-site": "same-origin"}):
        assert (await either("GET", "/tasks", headers=headers)).status_code == 200
        assert (await either("POST", PAUSE, headers=headers)).status_code == 200
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert (await either("GET", "/tasks", headers=link)).status_code == 200
    problem(await either("POST", PAUSE, headers=link), 403, "forbidden")


async def test_a_frame_of_another_page_is_not_a_link(call: Caller) -> None:
    for dest in ("iframe", "frame", "embed", "object", "empty"):
        frame = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": dest}
        problem(await call("GET", "/tasks", headers=frame), 403, "forbidden")


async def test_an_allowed_origin_is_answered(
    http: httpx2.AsyncClient, api: ApiServer, store: MemoryStore
) -> None:
    page = "https://app.example.com"
    url = api.serve(store, open_until_keys=True, origins=[page])
    for origin, status in ((page, 201), ("https://evil.example", 403)):
        headers = {"origin": origin, "sec-fetch-site": "cross-site"}
        response = await http.post(f"{url}/tasks", json={"type": "t"}, headers=headers)
        assert response.status_code == status
    headers = {"origin": page, "host": EVIL}
    assert (await http.post(f"{url}/tasks", json={"type": "t"}, headers=headers)).status_code == 421


async def test_health_and_reference_are_answered_to_all(call: Caller) -> None:
    """They tell nothing of tasks, and probes use any name."""
    for path in ("/healthz", "/readyz", "/openapi.json", "/docs"):
        response = await call.http.get(f"{call.url}{path}", headers={"host": EVIL, "via": "1.1 proxy"})
        assert response.status_code == 200, path


async def test_with_keys_a_proxy_may_forward_and_a_page_needs_a_key(
    call: Caller, insecure: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "FRESH_FOR", 0.0)
    key = (await Keys(call.store).create("k", scopes=["admin"])).text
    headers = {"host": EVIL, "origin": "https://evil.example", "sec-fetch-site": "cross-site", **FORWARDED}
    problem(await call("GET", "/tasks", headers=headers), 401, "unauthorized")
    allowed = await call("GET", "/tasks", headers={**headers, "authorization": f"Bearer {key}"})
    assert allowed.status_code == 200
    # --insecure is for other machines too: only pages of other origins are refused.
    assert (await insecure("GET", "/tasks", headers={"host": EVIL, **FORWARDED})).status_code == 200
