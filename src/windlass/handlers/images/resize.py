"""Resize an image. Runs in the sandbox: files that are made to harm decoders must harm nothing else."""

import io
import warnings
from collections.abc import Sequence
from typing import Any

from PIL import Image, ImageCms, ImageOps

_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "AVIF")
_OPAQUE = "jpeg"


def resize(options: Any, inputs: Sequence[bytes]) -> tuple[list[dict[str, Any]], list[bytes]]:
    """Make the images that `options` asks for; return their sizes and formats, and their files.

    Raises ValueError for what is not an image, or has more pixels than `max_pixels`.
    """
    most = options["max_pixels"]
    Image.MAX_IMAGE_PIXELS = most
    warnings.simplefilter("error", Image.DecompressionBombWarning)
    made: list[dict[str, Any]] = []
    files: list[bytes] = []
    with Image.open(io.BytesIO(inputs[0]), formats=_FORMATS) as source:
        if source.width * source.height > most:
            raise ValueError(f"the image has {source.width} x {source.height} pixels, at most {most:,}")
        found = (source.format or "png").lower()
        largest = max(max(one["width"] or 0, one["height"] or 0) for one in options["sizes"])
        if found == "jpeg" and largest and all(one["width"] or one["height"] for one in options["sizes"]):
            source.draft(None, (largest * 2, largest * 2))  # decodes at a fraction of the size
        whole = _plain(source)
    for one in options["sizes"]:
        kind = options["format"] or ("png" if found == "gif" else found)
        image = _sized(whole, one, options["background"])
        files.append(_encoded(image, kind, options))
        made.append({"width": image.width, "height": image.height, "format": kind})
    return made, files


def _plain(source: Image.Image) -> Image.Image:
    """Return the first frame, upright, in sRGB with or without transparency, and without metadata."""
    source.load()
    image = ImageOps.exif_transpose(source)
    profile = source.info.get("icc_profile")
    transparent = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
    if profile and image.mode in ("RGB", "CMYK", "L") and not transparent:
        try:
            own = ImageCms.ImageCmsProfile(io.BytesIO(profile))
            image = (
                ImageCms.profileToProfile(image, own, ImageCms.createProfile("sRGB"), outputMode="RGB")
                or image
            )
        except (ImageCms.PyCMSError, OSError, ValueError):  # a damaged profile: colours may be off
            pass
    plain = image.convert("RGBA" if transparent else "RGB")
    plain.info.clear()
    return plain


def _sized(image: Image.Image, size: dict[str, Any], background: str) -> Image.Image:
    width, height = size["width"], size["height"]
    if width is None and height is None:
        return image
    box = (
        width or max(1, round(image.width * height / image.height)),
        height or max(1, round(image.height * width / image.width)),
    )
    if width is not None and height is not None and size["fit"] == "crop":
        return ImageOps.fit(image, box, Image.Resampling.LANCZOS)
    if width is not None and height is not None and size["fit"] == "fill":
        colour = background if image.mode == "RGB" else f"{background}ff"
        return ImageOps.pad(image, box, Image.Resampling.LANCZOS, color=colour)
    smaller = image.copy()
    smaller.thumbnail(box, Image.Resampling.LANCZOS)  # never larger than it was
    return smaller


def _encoded(image: Image.Image, kind: str, options: Any) -> bytes:
    if kind == _OPAQUE and image.mode == "RGBA":
        ground = Image.new("RGB", image.size, options["background"])
        ground.paste(image, mask=image.getchannel("A"))
        image = ground
    file = io.BytesIO()
    lossy: dict[str, Any] = {} if kind == "png" else {"quality": options["quality"]}
    more = {"jpeg": {"optimize": True, "progressive": True}, "png": {"optimize": True}}.get(kind, {})
    image.save(file, kind, **lossy, **more)
    return file.getvalue()
