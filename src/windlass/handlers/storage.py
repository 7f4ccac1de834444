"""Where handlers keep files: a directory, or a bucket of an S3-compatible service."""

import asyncio
import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from msgspec import Struct

from .._model.brief import Brief
from ..errors import InvalidOption
from .settings import required

DEFAULT_STORAGE = "windlass-files"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
_NOT_FOUND = ("NoSuchKey", "404")
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO)


class Storage(Brief, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where files go.

    `url`: a directory, or s3://bucket/prefix. `base_url`: what the names of files are added to for their
    public URLs. `endpoint`, `region`: of an S3-compatible service. Credentials are those that boto3 finds:
    AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, a role.
    """

    url: str
    base_url: str | None = None
    endpoint: str | None = None
    region: str | None = None


class FileMissing(Exception):
    """There is no file of this name."""


class Files(Protocol):
    """Keeps files by name. A name is taken for good: what is put under it again is the same."""

    async def put(self, name: str, content: bytes, media_type: str) -> None:
        """Store a file, whole or not at all."""

    async def get(self, name: str, max_bytes: int) -> bytes:
        """Return a file. Raises FileMissing, or InvalidOption if it is larger."""


def open_storage(given: str | Storage, task: str) -> tuple[Files, str | None]:
    """Return the files of a storage, and the base of their URLs. Raises InvalidOption."""
    storage = Storage(url=given) if isinstance(given, str) else given
    if storage.url.startswith("s3://"):
        parts = urlsplit(storage.url)
        if not parts.netloc:
            raise InvalidOption("storage must be a directory or s3://bucket/prefix")
        return S3Files(storage, parts.netloc, parts.path.strip("/"), task), storage.base_url
    if "://" in storage.url:
        raise InvalidOption("storage must be a directory or s3://bucket/prefix")
    return LocalFiles(Path(storage.url)), storage.base_url


def content_name(folder: str, content: bytes, extension: str) -> str:
    """Return the name of a file by its content: the same content has the same name, and no other has it."""
    digest = sha256(content).hexdigest()
    return f"{folder}/{digest[:2]}/{digest[2:34]}.{extension}"


def public_url(base: str | None, name: str) -> str | None:
    """Return the URL of a file; None if files have none."""
    return None if base is None else f"{base.rstrip('/')}/{quote(name)}"


def checked_file_name(name: str) -> str:
    """Check that a name stays within a storage. Raises InvalidOption."""
    if len(name) > 500 or not _NAME.fullmatch(name) or ".." in name:
        raise InvalidOption(f"{name[:100]!r} is not the name of a file")
    return name


class LocalFiles:
    """Files in a directory, which may be a link. Links inside it are not followed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def put(self, name: str, content: bytes, media_type: str) -> None:  # noqa: ARG002
        await asyncio.to_thread(self._write, checked_file_name(name), content)

    async def get(self, name: str, max_bytes: int) -> bytes:
        return await asyncio.to_thread(self._read, checked_file_name(name), max_bytes)

    def _write(self, name: str, content: bytes) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        new = f".new-{token_hex(8)}"  # in the same folder, so that it can be renamed
        with self._folder(name, create=True) as (folder, last):

            def opened(name: str, flags: int) -> int:
                return os.open(name, flags, 0o666, dir_fd=folder)  # the umask decides who may read it

            try:
                with open(new, "xb", opener=opened) as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(new, last, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(new, dir_fd=folder)
                raise

    def _read(self, name: str, max_bytes: int) -> bytes:
        try:
            with self._folder(name) as (folder, last):
                # Without waiting for who might write to a FIFO.
                descriptor = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise FileMissing
                content = file.read(max_bytes + 1)
        except OSError as error:
            if error.errno in _NO_FILE:
                raise FileMissing from None
            raise
        return _bounded(content, max_bytes)

    @contextmanager
    def _folder(self, name: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """Open the folder of a file, one part after the other: a link in its place leads nowhere."""
        *folders, last = name.split("/")
        at = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for one in folders:
                if create:
                    with suppress(FileExistsError):
                        os.mkdir(one, dir_fd=at)
                inner = os.open(one, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                os.close(at)
                at = inner
            yield at, last
        finally:
            os.close(at)


class S3Files:
    """Files in a bucket, under a prefix."""

    def __init__(self, storage: Storage, bucket: str, prefix: str, task: str) -> None:
        boto3 = required("boto3", "s3", f"{task} with storage in S3")
        self._failure: type[Exception] = required("botocore.exceptions", "s3", task).ClientError
        configured = required("botocore.config", "s3", task).Config(
            retries={"mode": "standard", "total_max_attempts": 2}, connect_timeout=10, read_timeout=30
        )
        self._client: Any = boto3.client(
            "s3", endpoint_url=storage.endpoint, region_name=storage.region, config=configured
        )
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""

    async def put(self, name: str, content: bytes, media_type: str) -> None:
        place = {"Bucket": self._bucket, "Key": self._prefix + checked_file_name(name)}
        await asyncio.to_thread(self._client.put_object, **place, Body=content, ContentType=media_type)

    async def get(self, name: str, max_bytes: int) -> bytes:
        return await asyncio.to_thread(self._read, self._prefix + checked_file_name(name), max_bytes)

    def _read(self, key: str, max_bytes: int) -> bytes:
        try:
            found = self._client.get_object(Bucket=self._bucket, Key=key)
        except self._failure as error:
            if getattr(error, "response", {}).get("Error", {}).get("Code") in _NOT_FOUND:
                raise FileMissing from None
            raise
        with found["Body"] as body:
            return _bounded(body.read(max_bytes + 1), max_bytes)


def _bounded(content: bytes, max_bytes: int) -> bytes:
    if len(content) > max_bytes:
        raise InvalidOption(f"the file is larger than {max_bytes:,} bytes")
    return content
