"""Request heads that have one meaning only: version, Host, target and transfer coding."""

import re
from collections.abc import Sequence

_VERSIONS = ("1.1", "1.0")
_HOST = re.compile(rb"([a-z0-9._~%!$&'()*+;=-]+|\[[0-9a-f:.]+\])(:[0-9]{0,5})?", re.IGNORECASE)
_ABSOLUTE = re.compile(rb"https?://([^/?#]*)", re.IGNORECASE)


def flaw_in_head(version: str, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """Return what is wrong with a request head, or None.

    With two hosts, or another one in the target than in Host, a proxy and this server could take different
    ones for the host that is meant; with several transfer codings, different ends for the end of the body.
    """
    hosts = [value for name, value in headers if name == b"host"]
    if version not in _VERSIONS:
        return "the version of HTTP must be 1.1 or 1.0"
    if len(hosts) != 1 or _HOST.fullmatch(hosts[0]) is None:
        return "a request needs exactly one Host header, with a host name"
    codings = [value for name, value in headers if name == b"transfer-encoding"]
    if codings and (version == "1.0" or len(codings) > 1 or codings[0].strip().lower() != b"chunked"):
        return "the only transfer coding is chunked, given once, in HTTP/1.1"
    if not target.startswith(b"/") and target != b"*":
        absolute = _ABSOLUTE.match(target)
        if absolute is None or absolute[1].lower() != hosts[0].lower():
            return "the target must be a path, or a URL whose host is the one in Host"
    return None
