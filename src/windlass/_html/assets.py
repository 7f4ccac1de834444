"""The bundle: one script and one stylesheet, each joined from files of this package, named by its content.

Names change with the content, so browsers may keep them for ever. The files in `vendor` are as their authors
publish them; vendor/README.md names versions, licences and hashes.
"""

import gzip
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

# One file, as deferred scripts may run too late for htmx: an extension must be there when htmx starts.
SCRIPTS = (
    "vendor/htmx.js",
    "vendor/hx-sse.js",
    "vendor/uplot.js",
    "script/page.js",
    "script/time.js",
    "script/live.js",
    "script/chart.js",
    "script/selection.js",
    "script/completion.js",
    "script/palette.js",
)
STYLES = (
    "vendor/uplot.css",
    "style/base.css",
    "style/layout.css",
    "style/parts.css",
    "style/overview.css",
    "style/tasks.css",
    "style/queues.css",
    "style/failures.css",
    "style/access.css",
    "style/reference.css",
)

_KEPT = "public, max-age=31536000, immutable"


class Asset(Struct, frozen=True):
    """A file of the bundle, plain and compressed."""

    name: str
    media_type: str
    content: bytes
    compressed: bytes


@cache
def script() -> Asset:
    """Return the script of every page."""
    return _joined("js", "text/javascript", SCRIPTS, b";\n")


@cache
def stylesheet() -> Asset:
    """Return the stylesheet of every page."""
    return _joined("css", "text/css", STYLES, b"\n")


def asset_response(name: str, request: Request) -> Response | None:
    """Return the file of this name; None if there is none."""
    for asset in (script(), stylesheet()):
        if name == asset.name:
            headers = {"Cache-Control": _KEPT, "Vary": "Accept-Encoding"}
            if "gzip" in request.headers.get("accept-encoding", ""):
                headers["Content-Encoding"] = "gzip"
                return Response(asset.compressed, headers=headers, media_type=asset.media_type)
            return Response(asset.content, headers=headers, media_type=asset.media_type)
    return None


def read_file(path: str) -> bytes:
    """Return a file of this package."""
    found: Traversable = files(__package__)
    for part in path.split("/"):
        found = found / part
    return found.read_bytes()


def _joined(suffix: str, media_type: str, paths: tuple[str, ...], separator: bytes) -> Asset:
    content = separator.join(map(read_file, paths))
    name = f"windlass-{sha256(content).hexdigest()[:12]}.{suffix}"
    return Asset(name, media_type, content, gzip.compress(content, 9, mtime=0))
