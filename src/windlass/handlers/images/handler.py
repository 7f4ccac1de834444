"""The task type resize_image and its settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from ..._fetch import Fetcher, FetchRefused
from ..._handler.context import INJECTED, Context
from ..._model.brief import Brief
from ..._policy.backoff import Backoff
from ...errors import InvalidOption
from ...signals import Fatal
from ...tasktype import TaskType
from ..responses import require_success
from ..sandbox import Bounds, SandboxError, run_in_sandbox
from ..settings import HandlerSettings, required
from ..storage import DEFAULT_STORAGE, FileMissing, Storage, content_name, open_storage, public_url

if TYPE_CHECKING:
    from ...app import App

FUNCTION = f"{Path(__file__).with_name('resize.py')}:resize"  # not imported: only the child has Pillow
MAX_SIDE = 10_000
MAX_SIZES = 20
_BACKOFF = Backoff(base=5, factor=3, cap=1800, max_attempts=6)
_KINDS = ("image/", "application/octet-stream", "binary/octet-stream")
_EXAMPLE = {
    "url": "https://example.org/photos/7731.jpg",
    "sizes": [{"width": 1200}, {"width": 200, "height": 200, "fit": "crop"}],
    "format": "webp",
}

Side = Annotated[int, Meta(ge=1, le=MAX_SIDE)]
Format = Literal["jpeg", "png", "webp", "avif"]


class Size(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The size of an image to make: a width, a height or both; without either, that of the source.

    `fit`: with both, "fit" keeps the whole within them, "crop" fills them and cuts what is over, "fill" fills
    the rest with the background. "fit" never enlarges.
    """

    width: Side | None = None
    height: Side | None = None
    fit: Literal["fit", "fill", "crop"] = "fit"


class Image(Brief, Struct, frozen=True, kw_only=True):
    """An image that was made: the name of its file, its URL if the storage has a `base_url`, and its size."""

    file: str
    url: str | None
    width: int
    height: int
    type: str
    bytes: int


class Images(HandlerSettings, frozen=True):
    """Settings of resize_image.

    `storage`: a directory, s3://bucket/prefix, or a `Storage`. `max_bytes`, `max_pixels`: of the source.
    `memory`: bytes that decoding and encoding may take. `cpu`: seconds. `timeout`: seconds for the request.
    """

    table: ClassVar[str] = "images"
    task: ClassVar[str] = "resize_image"

    storage: str | Storage = DEFAULT_STORAGE
    max_bytes: int = 20 << 20
    max_pixels: int = 40_000_000
    memory: int = 1 << 30
    cpu: int = 30
    timeout: float = 20.0
    queue: str = "images"
    max_attempts: int = _BACKOFF.max_attempts

    def __call__(self, app: "App") -> TaskType[..., Any, list[Image]]:
        """Declare resize_image."""
        required("PIL.Image", "images", self.task)
        declared: TaskType[..., Any, list[Image]] = app.task(
            name=self.task,
            queue=self.queue,
            backoff=_BACKOFF,
            max_attempts=self.max_attempts,
            timeout=self.timeout + 4 * self.cpu + 60,
            fatal=FetchRefused,
            example=_EXAMPLE,
        )(_Resizer(self, app).resize_image)
        return declared


class _Resizer:
    def __init__(self, settings: Images, app: "App") -> None:
        self._settings = settings
        self._app = app
        self._fetcher = Fetcher(deadline=settings.timeout, redirects=3)
        self._files, self._base = open_storage(settings.storage, settings.task)

    async def resize_image(
        self,
        url: str | None = None,
        sizes: Annotated[list[Size], Meta(min_length=1, max_length=MAX_SIZES)] | None = None,
        file: str | None = None,
        format: Format | None = None,  # noqa: A002  the field of the payload
        quality: Annotated[int, Meta(ge=1, le=100)] = 82,
        background: Annotated[str, Meta(pattern="^#[0-9a-fA-F]{6}$")] = "#ffffff",
        *,
        ctx: Context = INJECTED,
    ) -> list[Image]:
        """Make images of other sizes or formats, and store them.

        `url` or `file`: the source, or a file in the storage. `format`: [default: that of the source].
        `background`: what is seen through transparency in JPEG, and around an image that is filled up.
        """
        content = await self._source(url, file)
        ctx.progress(0.1, "fetched")
        options = {
            "sizes": msgspec.to_builtins(sizes or [Size()]),
            "format": format,
            "quality": quality,
            "background": background,
            "max_pixels": self._settings.max_pixels,
        }
        bounds = Bounds(
            memory=self._settings.memory, cpu=self._settings.cpu, seconds=self._settings.cpu * 4 + 30
        )
        try:
            made, contents = await run_in_sandbox(FUNCTION, options, [content], bounds)
        except SandboxError as error:
            raise Fatal(f"the image cannot be read: {error}") from None
        images: list[Image] = []
        for one, data in zip(made, contents, strict=True):
            images.append(await self._stored(one, data))
            ctx.progress(0.5 + 0.5 * len(images) / len(made), f"{len(images)} of {len(made)} stored")
        return images

    async def _stored(self, one: dict[str, Any], content: bytes) -> Image:
        kind = one["format"]
        name = content_name("images", content, "jpg" if kind == "jpeg" else kind)
        await self._files.put(name, content, f"image/{kind}")
        return Image(
            file=name,
            url=public_url(self._base, name),
            width=one["width"],
            height=one["height"],
            type=f"image/{kind}",
            bytes=len(content),
        )

    async def _source(self, url: str | None, file: str | None) -> bytes:
        if (url is None) == (file is None):
            raise Fatal("give either `url` or `file`")
        if file is not None:
            try:
                return await self._files.get(file, self._settings.max_bytes)
            except FileMissing:
                raise Fatal(f"there is no file {file[:200]!r} in the storage") from None
            except InvalidOption as error:
                raise Fatal(str(error)) from None
        self._fetcher.allowed = self._app.allowed_networks
        fetched = await self._fetcher.fetch(url or "", max_bytes=self._settings.max_bytes)
        require_success(fetched, urlsplit(fetched.url).hostname or "the server")
        kind = fetched.headers.get("content-type", "application/octet-stream").lower()
        if not kind.startswith(_KINDS):
            raise Fatal(f"the URL leads to {kind.partition(';')[0][:100]}, not to an image")
        return fetched.body
