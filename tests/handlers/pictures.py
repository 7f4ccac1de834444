"""Images for tests: ordinary ones, and some that are made to harm."""

import io
import struct
import zlib
from typing import Any

from PIL import Image


def picture(
    kind: str = "PNG", size: tuple[int, int] = (400, 300), mode: str = "RGB", **options: Any
) -> bytes:
    """An image whose left half is red and whose right half is blue."""
    image = Image.new(mode, size, "red")
    image.paste("blue", (size[0] // 2, 0, *size))
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png(width: int, height: int, data: bytes = b"") -> bytes:
    """A PNG that says it is this large."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def opened(content: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(content))
    image.load()
    return image
