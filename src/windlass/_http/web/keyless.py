"""Which requests a server without keys answers: those of programs on this machine.

Whoever can connect has full access then. A browser on this machine can connect on behalf of any web page, and
a proxy on behalf of any client; both can be told by the headers that they send.
"""

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import TypeAlias

from .problems import Problem
from .refusal import Reason, Refusal

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
"""The headers of an ASGI connection: names in lower case."""

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[0-9a-z.-]+)(?::[0-9]{1,5})?", re.ASCII | re.IGNORECASE)
_OF_PROXIES = re.compile(
    # by what they tell: of whom the request is, where it was sent, how it came
    rb"forwarded|client-?(?:ip|cert|connection-ip)|(?:connecting|real|user|originating|peer|source)-?ip"
    rb"|remote-(?:ip|addr|user)|external-address"
    rb"|x-(?:original|rewrite-|real-|server-|anonymous-|authenticated-|edge|url-scheme|scheme|ssl|tls|https)"
    rb"|http-host|gateway|proxy|varnish|surrogate-|traefik|auth-request|front-end|coming-from|max-forwards"
    rb"|(?:^| )(?:x-host|x-port|x-protocol|x-request-start|x-accel-[a-z-]+|x-sendfile-type)(?: |$)"
    # by a word: through whom they came, and who adds them
    rb"|(?:^|[ -])(?:via|hops?|upstream|backend|balancer|lb|consumer|credential|geoip"
    rb"|(?:handled|received|relayed|routed|sent|served)-by"
    rb"|apigee|apisix|bluecoat|caddy|citrix|cloudfront|f5|imperva|istio|kong|krakend|l5d|linkerd|nginx|squid"
    rb"|sucuri|tyk|zscaler)(?:[ -]|$)"
    rb"|(?:^| )(?:cf|cdn|ali-cdn|fly|fastly|akamai|ngrok|tailscale|wl|x-(?:nf|akamai|amzn|amz-cf|appengine"
    rb"|arr|azure|cloud|cdn|envoy|fastly|goog|iap|ms-client-principal|ms-token|vercel|now|render|railway|heroku|authentik|authelia"
    rb"|pomerium|teleport))-"
    rb"|(?:^| )(?:remote-(?:groups|name|email)|x-webauth-user|ssl-client-[a-z-]+)(?: |$)"
)
"""Headers that proxies, load balancers and content delivery networks add; also in names joined by spaces."""
_SAFE = ("GET", "HEAD")
_OWN = (b"", b"same-origin", b"none")
_LINK = {b"sec-fetch-mode": b"navigate", b"sec-fetch-dest": b"document"}
_FORMS = (b"application/x-www-form-urlencoded", b"multipart/form-data", b"text/plain")
_JSON = b"application/json"
_REMEDY = "create a key with `windlass keys create LABEL --scope …` and send it"


def require_local(headers: Headers, http_version: str) -> None:
    """Raise 421 unless Host names this machine, and 403 if a proxy has forwarded the request.

    A page whose name resolves to a loopback address (DNS rebinding) sends its own name as Host. nginx sends
    the loopback address as Host and no other header, but HTTP/1.0, unless it is configured otherwise.
    """
    if http_version == "1.0":
        raise _forwarded("HTTP/1.0")
    names = dict(headers)
    if _has_proxy_header(b" ".join(names)):
        found = next(filter(_OF_PROXIES.search, names))
        raise _forwarded(f"the header {found.decode('latin-1')}")
    hosts: tuple[bytes, ...] = (names.get(b"host", b""),)
    if len(names) < len(headers):  # some are given twice
        hosts = tuple(value for name, value in headers if name == b"host")
    if not hosts or not all(map(is_local, hosts)):
        raise _misdirected()


def require_same_origin(
    headers: Headers, method: str, allowed: AbstractSet[bytes], *, forms: bool = False
) -> None:
    """Raise 403 if a web page of another origin sends the request, unless its origin is allowed.

    Raises 415 for a form, which old browsers send without an origin, unless `forms`. Following a link is not
    refused: the page that has the link cannot read the response.
    """
    page = dict(headers)
    origin = page.get(b"origin")
    if origin is not None:
        if origin in allowed:
            return
        authority = origin.partition(b"://")[2].lower()
        if not authority or authority != page.get(b"host", b"").lower():
            raise _foreign_page()
    if page.get(b"sec-fetch-site", b"") not in _OWN:
        is_link = all(page.get(name) == value for name, value in _LINK.items())
        if not (is_link and method in _SAFE):
            raise _foreign_page()
    if forms:
        return
    kind = page.get(b"content-type", _JSON)
    if kind != _JSON and method not in _SAFE and kind.partition(b";")[0].strip().lower() in _FORMS:
        raise Problem(
            "unsupported-media-type",
            "forms are not supported: send JSON, with Content-Type: application/json, or no Content-Type if "
            "there is no body",
        )


@lru_cache(maxsize=64)  # a program sends the same names each time
def _has_proxy_header(names: bytes) -> bool:
    return _OF_PROXIES.search(names) is not None


@lru_cache(maxsize=64)
def is_local(host: bytes) -> bool:
    """Tell whether a Host header names this machine: localhost or a loopback address, with any port."""
    found = _HOST.fullmatch(host.decode("latin-1"))
    if found is None:
        return False
    name = found[1].lower()
    try:
        return IPv6Address(name[1:-1]).is_loopback if name[0] == "[" else IPv4Address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _forwarded(sign: str) -> Refusal:
    return Refusal(
        "forbidden",
        f"this server has no API keys and answers only programs on its own machine; {sign} shows that a "
        f"proxy forwards requests to it: {_REMEDY}",
        Reason.PROXY,
    )


def _misdirected() -> Refusal:
    return Refusal(
        "misdirected",
        f"this server has no API keys and answers only to localhost and loopback addresses; {_REMEDY}",
        Reason.HOST,
    )


def _foreign_page() -> Refusal:
    return Refusal(
        "forbidden",
        f"this server requires no API key and so refuses web pages of other origins; {_REMEDY}, or allow "
        f"the origin with --allow-origin",
        Reason.ORIGIN,
    )
