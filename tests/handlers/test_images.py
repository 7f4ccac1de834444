"""resize_image: what it makes of images, reopened; and files that are made to harm."""

import json
import zlib
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.examples import sample
from tests.handlers.http_sink import Answer, http_sink
from tests.handlers.pictures import opened, picture, png
from tests.handlers.runs import new_app, run
from windlass import App, State, Task, handlers

PNG = {"Content-Type": "image/png"}


def message(task: Task) -> str:
    return task.error.message if task.error else ""


def near(colour: Any, expected: tuple[int, int, int]) -> bool:
    return all(abs(a - b) < 12 for a, b in zip(colour[:3], expected, strict=True))


class Studio:
    """An app with resize_image, a server with one image, and the files that are made of it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.app = new_app()
        self.resize = self.app.include(handlers.Images(storage=str(folder), **settings))

    def files(self) -> list[Path]:
        return [one for one in self.folder.rglob("*") if one.is_file()]

    async def task(self, source: bytes, kind: str = "image/png", **payload: Any) -> Task:
        with http_sink(Answer(200, source, {"Content-Type": kind})) as web:
            return await run(self.resize, self.app, url=f"{web.url}/a", **payload)

    async def images(self, source: bytes, **payload: Any) -> list[Image.Image]:
        task = await self.task(source, **payload)
        assert task.state is State.COMPLETED, message(task)
        made = json.loads(task.result or b"")
        images = [opened((self.folder / one["file"]).read_bytes()) for one in made]
        for one, image in zip(made, images, strict=True):
            assert (one["width"], one["height"]) == image.size
            assert one["type"] == f"image/{(image.format or '').lower()}"
            assert one["bytes"] == (self.folder / one["file"]).stat().st_size
        return images


@pytest.fixture
def studio(tmp_path: Path) -> Studio:
    return Studio(tmp_path)


async def test_several_sizes_in_one_task(studio: Studio) -> None:
    sizes = [
        {"width": 100},
        {"height": 30},
        {"width": 100, "height": 100},
        {"width": 100, "height": 100, "fit": "crop"},
        {"width": 100, "height": 100, "fit": "fill"},
        {"width": 4000},
        {},
    ]
    images = await studio.images(picture(), sizes=sizes, background="#00ff00")

    assert [one.size for one in images] == [
        (100, 75), (40, 30), (100, 75), (100, 100), (100, 100), (400, 300), (400, 300),
    ]  # fmt: skip
    cropped, filled = images[3], images[4]
    assert near(cropped.getpixel((2, 2)), (255, 0, 0))
    assert near(cropped.getpixel((97, 97)), (0, 0, 255))
    assert near(filled.getpixel((50, 2)), (0, 255, 0))


SOURCES, KINDS = ["JPEG", "PNG", "WEBP", "GIF", "AVIF"], ["jpeg", "png", "webp", "avif"]
# Each of them at least once, or each with each.
EACH_ONCE = [*zip(SOURCES, cycle(KINDS), strict=False)]
FORMATS = sample(EACH_ONCE, [pair for pair in product(SOURCES, KINDS) if pair not in EACH_ONCE])


@pytest.mark.parametrize(("source", "kind"), FORMATS)
async def test_formats(studio: Studio, source: str, kind: str) -> None:
    (image,) = await studio.images(picture(source, size=(80, 60)), sizes=[{"width": 40}], format=kind)

    assert (image.format, image.size) == (kind.upper(), (40, 30))
    assert near(image.convert("RGB").getpixel((5, 15)), (255, 0, 0)) or kind == "avif"


@pytest.mark.parametrize(("source", "made"), [("JPEG", "JPEG"), ("GIF", "PNG"), ("WEBP", "WEBP")])
async def test_the_format_stays_unless_it_is_given(studio: Studio, source: str, made: str) -> None:
    (image,) = await studio.images(picture(source), sizes=[{"width": 40}])

    assert image.format == made


async def test_it_is_turned_upright_and_loses_its_metadata(studio: Studio) -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "SecretCamera"  # turned by 90 degrees; the maker
    source = picture("JPEG", exif=exif, comment=b"SecretComment", quality=95)
    assert b"SecretCamera" in source

    for kind in ("jpeg", "png", "webp", "avif"):
        (image,) = await studio.images(source, format=kind)
        assert image.size == (300, 400)
        assert near(image.convert("RGB").getpixel((150, 20)), (255, 0, 0))  # red is above now
        assert not dict(image.getexif())
    files = b"".join(one.read_bytes() for one in studio.files())
    assert b"Secret" not in files


async def test_transparency_is_kept_or_filled(studio: Studio) -> None:
    clear = picture("PNG", mode="RGBA")
    image = opened(clear)
    image.putalpha(0)
    file = studio.folder / "clear.png"
    image.save(file)

    (kept,) = await studio.images(file.read_bytes(), format="webp")
    (filled,) = await studio.images(file.read_bytes(), format="jpeg", background="#336699")
    assert kept.convert("RGBA").getpixel((5, 5))[3] == 0  # type: ignore[index]
    assert near(filled.getpixel((5, 5)), (0x33, 0x66, 0x99))


@pytest.mark.parametrize("mode", ["L", "CMYK", "1"])
async def test_other_colours_become_usual_ones(studio: Studio, mode: str) -> None:
    source = picture("PNG" if mode != "CMYK" else "JPEG", mode=mode) if mode == "CMYK" else _grey(mode)
    (image,) = await studio.images(source, format="png")

    assert image.mode == "RGB"


def _grey(mode: str) -> bytes:
    import io

    file = io.BytesIO()
    opened(picture()).convert(mode).save(file, "PNG")
    return file.getvalue()


async def test_the_same_image_has_the_same_file(studio: Studio) -> None:
    first = await studio.task(picture(), sizes=[{"width": 40}])
    second = await studio.task(picture(), sizes=[{"width": 40}])

    assert first.result == second.result
    assert len(studio.files()) == 1


async def test_a_file_in_the_storage_is_a_source_too(studio: Studio) -> None:
    first = await studio.task(picture())
    name = json.loads(first.result or b"")[0]["file"]
    second = await run(studio.resize, studio.app, file=name, sizes=[{"width": 40}])

    assert json.loads(second.result or b"")[0]["width"] == 40


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (b"", "UnidentifiedImageError"),
        (b"not an image", "UnidentifiedImageError"),
        (picture()[:300], "cannot be read"),
        (picture("JPEG")[:500], "cannot be read"),
        (png(100_000, 100_000), "pixels|Bomb"),
        (png(2_000_000_000, 2_000_000_000), "cannot be read"),
        (png(8_000, 8_000, zlib.compress(b"\0" * 1_000)), "pixels|Bomb"),
        (png(6_000, 6_000, zlib.compress(b"\0" * 108_006_000)), "memory"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "UnidentifiedImageError"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "UnidentifiedImageError"),
    ],
)
async def test_files_that_are_made_to_harm_are_dead_letters(
    tmp_path: Path, source: bytes, expected: str
) -> None:
    studio = Studio(tmp_path, memory=200 << 20)
    task = await studio.task(source, sizes=[{"width": 40}])

    assert task.state is State.DEAD
    assert any(one in message(task) for one in expected.split("|")), message(task)
    assert studio.files() == []


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"url": None}, "give either `url` or `file`"),
        ({"file": "a"}, "give either `url` or `file`"),
        ({"url": None, "file": "images/none"}, "there is no file"),
        ({"url": None, "file": "../../etc/passwd"}, "is not the name of a file"),
    ],
)
async def test_a_wrong_source_is_dead_at_once(studio: Studio, payload: dict[str, Any], expected: str) -> None:
    task = await run(studio.resize, studio.app, **{"url": "http://127.0.0.1/"} | payload)

    assert task.state is State.DEAD
    assert expected in message(task)


@pytest.mark.parametrize(
    ("answer", "state", "expected"),
    [
        (Answer(404), State.DEAD, "404"),
        (Answer(503), State.SCHEDULED, "503"),
        (Answer(200, b"<p>", {"Content-Type": "text/html"}), State.DEAD, "leads to text/html"),
        (Answer(200, b"x" * 5000, PNG), State.DEAD, "larger than 4,000 bytes"),
        (Answer(200, b"x" * 10, {**PNG, "Content-Length": "1000"}, cut=False), State.SCHEDULED, ""),
        (Answer(302, headers={"Location": "http://169.254.169.254/"}), State.DEAD, "is not public"),
    ],
)
async def test_responses_decide(tmp_path: Path, answer: Answer, state: State, expected: str) -> None:
    studio = Studio(tmp_path, max_bytes=4000, timeout=0.6)
    with http_sink(answer) as web:
        task = await run(studio.resize, studio.app, url=f"{web.url}/a")

    assert task.state is state
    assert expected in message(task)


@pytest.mark.parametrize(
    "payload",
    [
        {"sizes": []},
        {"sizes": [{"width": 0}]},
        {"sizes": [{"width": 20_000}]},
        {"sizes": [{"width": 1}] * 21},
        {"quality": 101},
        {"background": "red"},
        {"format": "tiff"},
    ],
)
def test_a_wrong_payload_is_refused_when_it_is_enqueued(payload: dict[str, Any]) -> None:
    from windlass import InvalidPayload

    resize = App("memory://").include(handlers.Images())
    with pytest.raises(InvalidPayload):
        resize.enqueue(url="https://example.org/", **payload)
