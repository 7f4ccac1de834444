"""Check HTTP headers that a payload or a settings file gives."""

import re
from collections.abc import Collection, Mapping
from typing import Annotated

from msgspec import Meta

from ..errors import InvalidOption

MAX_HEADERS = 50
MAX_HEADER_BYTES = 4_096
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[ -~]*")
_END = r"$(?!\n)"  # "$" alone also matches before a line feed at the end

HeaderName = Annotated[str, Meta(pattern=f"^{_NAME.pattern}{_END}")]
HeaderValue = Annotated[str, Meta(pattern=f"^{_VALUE.pattern}{_END}", max_length=MAX_HEADER_BYTES)]
"""Headers in payloads: what would end one and begin another is refused when the task is enqueued."""
_RESERVED = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade", "expect"}
)  # how a request is framed and routed is not for its sender to say


def checked_headers(headers: Mapping[str, str], ours: Collection[str] = ()) -> dict[str, str]:
    """Return headers that may be sent; raises InvalidOption. `ours`: names that the handler sets itself."""
    if len(headers) > MAX_HEADERS:
        raise InvalidOption(f"at most {MAX_HEADERS} headers can be sent, got {len(headers)}")
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise InvalidOption(f"{name[:100]!r} is not the name of a header")
        if name.lower() in _RESERVED or name.lower() in ours:
            raise InvalidOption(f"the header {name} is set by windlass and cannot be given")
        if not _VALUE.fullmatch(value) or len(value) > MAX_HEADER_BYTES:
            raise InvalidOption(f"the value of the header {name} must be ASCII without control characters")
    return dict(headers)
