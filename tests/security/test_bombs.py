"""Bombs in what handlers open: compressed bodies, images, pages, JSON and reports.

Each ends with a result or a clear error, that no attempt can change, within its bounds of time and memory.
"""

import gzip
import io
import struct
import tracemalloc
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

import pytest
from PIL import Image, ImageFile

from tests.handlers.http_sink import Answer, Received, http_sink
from tests.handlers.pictures import picture, png
from tests.handlers.runs import new_app
from tests.loops.workers import drained
from tests.security.probes import ENOUGH, chosen
from windlass import State, Task, handlers
from windlass.handlers.images.handler import FUNCTION as RESIZE
from windlass.handlers.images.resize import resize
from windlass.handlers.pages.extract import FUNCTION as EXTRACT
from windlass.handlers.reports.handler import FUNCTION as RENDER
from windlass.handlers.sandbox import Bounds, SandboxError, run_in_sandbox

pytestmark = [pytest.mark.more, pytest.mark.timeout(900)]

MIB = 1 << 20
BOUNDS = Bounds(cpu=1, memory=300 * MIB, seconds=300, output=8 * MIB)


@contextmanager
def memory_below(most: int) -> Iterator[None]:
    """This process allocates no more than so much at once."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most, f"{peak / MIB:.0f} MiB"


async def verdict(function: str, options: Any, inputs: Sequence[bytes]) -> str:
    """Return what a sandbox says of its input; "" if it has a result. Only CPU time and memory end it."""
    try:
        await run_in_sandbox(function, options, inputs, BOUNDS)
    except SandboxError as error:
        found = str(error)
    else:
        found = ""
    assert "with status" not in found, "no clear error"
    assert "sent no result" not in found, "no clear error"
    return found


# -- compressed bodies ---------------------------------------------------------------------------------------

ZEROS = 64 * MIB
_packed = zlib.compressobj(9, zlib.DEFLATED, -15)
PACKED = {
    "gzip": gzip.compress(bytes(ZEROS), 9),
    "deflate": zlib.compress(bytes(ZEROS), 9),
    "raw": _packed.compress(bytes(ZEROS)) + _packed.flush(),
    "twice": gzip.compress(gzip.compress(bytes(ZEROS), 9)),
    "br": b"\x1b\xff\xff\xff\x00" * 1_000,
    "zstd": b"\x28\xb5\x2f\xfd\xa4" + b"\xff" * 1_000,
}
ENCODINGS = [
    "gzip", "GZIP", "x-gzip", "deflate", "br", "zstd", "compress", "gzip, gzip", "identity, gzip", "gzip;q=1",
    " gzip", "deflate, gzip", "*",
]  # fmt: skip
COMPRESSED = [*product(ENCODINGS, PACKED)]
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "requests": (handlers.Requests(queue="q"), {"url": ""}),
    "pages": (handlers.Pages(queue="q", pause=0, robots=False), {"url": "", "parts": ["text"]}),
    "images": (handlers.Images(queue="q"), {"url": ""}),
    "webhooks": (handlers.Webhooks(queue="q"), {"endpoint": "", "body": {}}),
    "email": (
        handlers.Email(queue="q", sender="a@example.org", smtp="smtp://127.0.0.1:9", starttls="never"),
        {"to": "b@example.org", "text": "x", "attachments": {"url": "", "name": "a"}},
    ),
}


def with_url(payload: dict[str, Any], url: str) -> dict[str, Any]:
    return {
        name: with_url(value, url) if isinstance(value, dict) and value else url if value == "" else value
        for name, value in payload.items()
    }


async def fetched(kind: str, answers: Sequence[Answer]) -> list[Task]:
    """Have each answer fetched by a handler; return the tasks."""
    settings, payload = KINDS[kind]
    app = new_app()
    declared = app.include(settings)

    def route(request: Received) -> Answer | None:
        return answers[int(request.path[1:])]

    with http_sink(route=route) as web:
        tasks = [await declared.aenqueue(**with_url(payload, f"{web.url}/{n}")) for n in range(len(answers))]
        await drained(app)
    found = [await app.operator.task(one.id) for one in tasks]
    await app.close()
    return found


def message(task: Task) -> str:
    return task.error.message if task.error else ""


@pytest.mark.parametrize("kind", KINDS)
async def test_a_compressed_body_is_not_unpacked(kind: str) -> None:
    some = chosen(COMPRESSED, 5)
    types = {"requests": "text/plain", "pages": "text/html", "images": "image/png"}
    answers = [
        Answer(200, PACKED[one], {"Content-Encoding": name, "Content-Type": types.get(kind, "text/plain")})
        for name, one in some
    ]
    with memory_below(ZEROS // 2):
        tasks = await fetched(kind, answers)

    if kind == "webhooks":  # of which nothing is read
        assert {one.state for one in tasks} == {State.COMPLETED}
    else:
        assert {(one.state, "compressed" in message(one)) for one in tasks} == {(State.DEAD, True)}


# -- images --------------------------------------------------------------------------------------------------


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def with_chunk(kind: bytes, body: bytes) -> bytes:
    whole = picture()
    return whole[:33] + chunk(kind, body) + whole[33:]


def bmp(width: int, height: int) -> bytes:
    return (
        b"BM"
        + struct.pack("<IHHI", 54, 0, 0, 54)
        + struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    )


def gif(width: int, height: int, frames: int = 1) -> bytes:
    head = b"GIF89a" + struct.pack("<HH", width, height) + b"\x80\x00\x00\x00\x00\x00\xff\xff\xff"
    frame = b"\x2c\x00\x00\x00\x00" + struct.pack("<HH", width, height) + b"\x00\x02\x02\x44\x01\x00"
    return head + frame * frames + b"\x3b"


def webp(width: int, height: int) -> bytes:
    bits = 0x2F | ((width - 1) & 0x3FFF) << 8 | ((height - 1) & 0x3FFF) << 22
    body = b"VP8L" + struct.pack("<I", 5) + bits.to_bytes(5, "little") + b"\x00"
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


def jpeg(width: int, height: int) -> bytes:
    whole = picture("JPEG")
    at = whole.index(b"\xff\xc0") + 5
    return whole[:at] + struct.pack(">HH", height, width) + whole[at + 4 :]


def apng(frames: int) -> bytes:
    file = io.BytesIO()
    some = [Image.new("RGB", (200, 200), (n % 256, 0, 0)) for n in range(frames)]
    some[0].save(file, "PNG", save_all=True, append_images=some[1:])
    return file.getvalue()


SIDES = [5_001, 16_000, 65_535]
FLAT = zlib.compress(bytes(ZEROS))
LARGE = [(width, height) for width, height in product(SIDES, SIDES) if width * height > 25_000_000]
PICTURES: list[bytes] = [
    *(png(*size, FLAT) for size in LARGE),
    *(png(*size) for size in [(0, 0), (0, 5), (2**31 - 1, 1), (1, 2**31 - 1), (2**32 - 1, 2**32 - 1)]),
    *(gif(*size) for size in LARGE),
    *(webp(*size) for size in LARGE if max(size) < 16_384),
    *(jpeg(*size) for size in LARGE),
    *(bmp(*size) for size in LARGE),
    *(with_chunk(kind, b"a\0\0" + FLAT) for kind in (b"zTXt", b"iCCP", b"iTXt")),
    *(with_chunk(b"tEXt", b"a\0" + bytes(n * MIB)) for n in (1, 8)),
    *(with_chunk(b"eXIf", body) for body in (b"II*\0" + b"\xff" * 4, b"MM\0*\0\0\0\x08" + b"\xff\xff" * 9,
    bytes(70_000))),
    gif(4_000, 4_000, 2_000), gif(65_535, 1, 1_000), apng(300), picture("JPEG",
    exif=b"Exif\0\0II*\0" + b"\x08\0\0\0" * 8_000),
    picture("JPEG", icc_profile=bytes(4 * MIB)), picture("PNG", icc_profile=b"\xff" * 4 * MIB),
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 99999 99999\n",
    b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    b"II*\0\x08\0\0\0" + b"\xff" * 64, b"8BPS\0\x01" + b"\xff" * 64, b"%PDF-1.7",
    b"\0\0\x01\0\x01\0" + b"\xff" * 64,
    b"RIFF\xff\xff\xff\xffWEBPVP8X\xff\xff\xff\xff", b"GIF89a" + b"\xff" * 99,
    b"\x89PNG\r\n\x1a\n" + b"\xff" * 99,
]  # fmt: skip


RESIZED = {
    "sizes": [{"width": 40, "height": None, "fit": "fit"}],
    "format": None,
    "quality": 82,
    "background": "#ffffff",
    "max_pixels": 25_000_000,
}


async def test_an_image_is_bounded() -> None:
    refused = 0
    for source in chosen(PICTURES, 3):
        with memory_below(len(source) * 4 + 8 * MIB):
            found = await verdict(RESIZE, RESIZED, [source])
        refused += found != ""
    assert refused
    assert await verdict(RESIZE, RESIZED, [picture()]) == ""


CLAIMED = [5_001, 6_000, 8_191, 10_000, 16_383, 32_767, 65_535]
CLAIMS = [
    make(width, height)
    for make, width, height in product((png, gif, webp, jpeg, bmp), CLAIMED, CLAIMED)
    if make is not webp or max(width, height) < 16_384
]


def test_an_image_that_claims_to_be_large_is_refused_by_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a child, as nothing is decoded."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)  # which it sets
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda image: pytest.fail(f"{image.size} is decoded"))
    errors = (ValueError, OSError, Image.DecompressionBombError, Image.DecompressionBombWarning)
    for source in chosen(CLAIMS, 10):
        with warnings.catch_warnings(), pytest.raises(errors):
            resize(RESIZED, [source])
    with pytest.raises(pytest.fail.Exception, match="is decoded"):
        resize(RESIZED, [picture()])  # the control
    assert len(CLAIMS) >= ENOUGH


# -- pages ---------------------------------------------------------------------------------------------------

DEEP = 20_000
BODIES = [
    b"<div>" * DEEP, b"<b>" * DEEP, b"<table><tr><td>" * DEEP, b"<a href=x>" * DEEP, b"<svg><g>" * DEEP,
    b"<math><mi>" * DEEP, b"<template>" * DEEP, b"<font size=1><p>" * DEEP, b"<frameset>" * DEEP,
    b"</p>" * DEEP,
    b"<!--" * DEEP, b"<!DOCTYPE x [" + b"<!ENTITY a '&a;'>" * DEEP, b"&lt;" * DEEP, b"&#x41;" * DEEP,
    b"<" * DEEP,
    b"<a " + b"b=1 " * DEEP + b">", b"<a href='" + b"x" * MIB + b"'>", b"<base href='http://[x/'><a href=y>",
    b"<base href='http://x/" + b"a" * MIB + b"'>" + b"<a href=y>" * 2_000, b"<script>" + b"x" * MIB,
    b"\0" * MIB,
    b'<script type="application/ld+json">' + b"[" * 970 + b"]" * 970 + b"</script>",
    b'<script type="application/ld+json">' + b"[" * 99_999 + b"</script>",
    b'<script type="application/ld+json">' + b'{"a":' * 200 + b"1" + b"}" * 200 + b"</script>",
    b"<meta name=a content=b>" * DEEP, b"<title>" * DEEP, b"<p>" + b"\xff" * MIB, b"<select><option>" * DEEP,
]  # fmt: skip
SELECTORS = [
    "a", "div div div div", "* * * * * * *", ":not(:not(a))", "p:has(p:has(p:has(b)))",
    ":nth-child(999999999n+1)",
    "~".join(["*"] * 50), "a,b,c,d,e", "a:lexbor-contains('x')", "[href^=h]",
]  # fmt: skip
ODD_SELECTORS = [
    ":is(" * 500 + "a" + ")" * 500, ":not(" * 9_000, ",".join(["a"] * 2_000), "a" * 50_000, "[a" * 999,
    ">" * 999,
    "\\" * 999, "a:lexbor-contains('" + "x" * 999, "a{}", "@import 'x'", "div:has(" * 200,
    " ".join(["div"] * 500),
]  # fmt: skip
CHARSETS = [
    None, "utf-7", "punycode", "idna", "unicode_escape", "utf-16", "rot13", "zlib", "undefined", "x\0",
    "x" * 9_999,
]  # fmt: skip
PAGES: list[tuple[bytes, list[str], str | None]] = [
    *((body, SELECTORS, None) for body in BODIES),
    *((body, [css], None) for body, css in product(BODIES[::9], ODD_SELECTORS)),
    *((BODIES[0], ["a"], charset) for charset in CHARSETS),
]


async def test_a_page_is_bounded() -> None:
    for body, selectors, charset in chosen(PAGES, 3):
        options = {
            "url": "http://example.org/",
            "charset": charset,
            "select": {str(n): {"css": css, "attr": "href", "all": True} for n, css in enumerate(selectors)},
            "parts": ["meta", "json_ld", "links", "text"],
        }
        with memory_below(len(body) * 4 + 3 * BOUNDS.output):
            await verdict(EXTRACT, options, [body])
    assert await verdict(EXTRACT, {"url": "", "select": {"a": {"css": "["}}}, [b"<p>"]) != ""


# -- JSON ----------------------------------------------------------------------------------------------------

JSONS = [
    *(b"[" * n + b"]" * n for n in (63, 65, 500, 950, 1_000, 5_000, 200_000)),
    *(b'{"a":' * n + b"1" + b"}" * n for n in (63, 65, 500, 950, 1_000, 100_000)),
    *(b"[" * n for n in (1, 1_000, 500_000)),
    *(b"1" * n for n in (20, 5_000, 900_000)),
    *(b"1e" + b"9" * n for n in (3, 5_000, 900_000)),
    *(b"-0." + b"0" * n + b"1" for n in (400, 900_000)),
    *(b'"' + one * 900 + b'"' for one in (b"\\u0000", b"\\ud800", b"\\uDC00", b"\xff", b"\\",
    b"\xed\xa0\x80")),
    b"{" + b",".join(b'"a":1' for _ in range(50_000)) + b"}",
    b"{" + b",".join(b'"%d":1' % n for n in range(20_000)) + b"}",
    b"[" + b"[]," * 50_000 + b"1]", b"NaN", b"Infinity", b"", b"\xef\xbb\xbf{}", "{}".encode("utf-16"),
    b"\0" * 1_000,
]  # fmt: skip


async def test_json_in_a_response_ends_the_task_at_once() -> None:
    some = chosen(JSONS, 12)
    tasks: list[Task] = []
    with memory_below(64 * MIB):
        for start in range(0, len(some), 2):  # in little time each
            answers = [
                Answer(200, one, {"Content-Type": "application/json"}) for one in some[start : start + 2]
            ]
            tasks += await fetched("requests", answers)

    assert [(one.attempt, one.state in (State.COMPLETED, State.DEAD)) for one in tasks] == [(1, True)] * len(
        some
    )
    failures = {one.error.type.rpartition(".")[2] for one in tasks if one.error}
    assert failures == {"Fatal"}


async def test_json_in_a_page_does_not_keep_the_rest() -> None:
    """What is nested too deeply for a result is left out, as what is no JSON; a broken URL stays as it is."""
    scripts = [b"[" * 970 + b"]" * 970, b'{"a":' * 60 + b"1" + b"}" * 60, b"{broken", b'{"name":"rope"}']
    body = b"".join(b'<script type="application/ld+json">%b</script>' % one for one in scripts)
    page = body + b"<base href='http://[x/'><a href='http://[y/'>A</a><a href='/b'>B</a>"
    select = {"links": {"css": "a", "attr": "href", "all": True}}
    options = {"url": "http://example.org/a", "select": select, "parts": ["json_ld", "links"]}
    found, _ = await run_in_sandbox(EXTRACT, options, [page], BOUNDS)

    assert found["json_ld"] == [{"name": "rope"}]
    assert found["selected"] == {"links": ["http://[y/", "http://example.org/b"]}
    assert found["links"] == ["http://example.org/b"]


# -- reports -------------------------------------------------------------------------------------------------

LAUGHS = "<!DOCTYPE lolz [" + "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(9)) + "]>&l9;"
TEXTS = [
    LAUGHS, "<!DOCTYPE a SYSTEM 'file:///etc/passwd'>", "&xxe;", "&#0;", "&#x110000;", "<para>" * 500,
    "</para>" * 500,
    "<img src='file:///etc/passwd'/>", "<seq/>" * 500, "<a href='http://127.0.0.1/'>x</a>", "<br/>" * 2_000,
    "x" * 20_000,
    "\u202e" * 500, " " * 20_000, "\n" * 5_000, "W" * 300, "((" * 2_000, "%PDF-1.7", "\\" * 2_000,
    "<font size='99999'>x",
]  # fmt: skip


def report(text: str) -> dict[str, Any]:
    """A report with a text in each of six places."""
    blocks = [
        {"heading": text},
        {"text": text},
        {"figures": [(text, text)]},
        {"table": {"columns": [text, "b"], "rows": [[text, {"a": text}]] * 50}},
        {"bars": {"labels": [text], "series": [{"name": text, "values": [1]}]}},
    ]
    return {"title": text[:200], "subtitle": text[:200], "footer": text[:150], "font": None, "blocks": blocks}


async def test_a_report_is_bounded() -> None:
    for text in chosen(TEXTS, 2):
        with memory_below(3 * BOUNDS.output):
            await verdict(RENDER, report(text), [])
    assert await verdict(RENDER, report("rope"), []) == ""


def test_the_corpora_are_large() -> None:
    pages = sum(len(selectors) for _, selectors, _ in PAGES)
    for number in (len(COMPRESSED) * len(KINDS), pages + len(PICTURES), len(JSONS) + 6 * len(TEXTS)):
        assert number >= 150
    assert len(COMPRESSED) * len(KINDS) + pages + len(PICTURES) + len(JSONS) >= ENOUGH


def test_memory_is_measured() -> None:
    """The control: what would unpack a body is found."""
    with pytest.raises(AssertionError, match="MiB"), memory_below(ZEROS // 2):
        gzip.decompress(PACKED["gzip"])
