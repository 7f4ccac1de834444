"""Files of handlers: in a directory, and in a bucket of an S3 service."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from windlass import InvalidOption
from windlass.handlers import Storage
from windlass.handlers.storage import FileMissing, content_name, open_storage, public_url

BUCKET = "ropes"


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A service that speaks S3's protocol, with one bucket; its URL."""
    before = dict(os.environ)
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "shop",
        "AWS_SECRET_ACCESS_KEY": "rope",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    try:
        boto3.client("s3", endpoint_url=url, region_name="us-east-1").create_bucket(Bucket=BUCKET)
        yield url
    finally:
        server.stop()
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(params=["directory", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str | Storage:
    if request.param == "directory":
        return str(tmp_path / "files")
    url = request.getfixturevalue("s3")
    return Storage(url=f"s3://{BUCKET}/shop", endpoint=url, region="us-east-1")


async def test_what_is_put_can_be_read(storage: Any) -> None:
    files, _ = open_storage(storage, "a test")
    name = content_name("images", b"rope", "png")
    await files.put(name, b"rope", "image/png")
    await files.put(name, b"rope", "image/png")

    assert await files.get(name, 4) == b"rope"
    with pytest.raises(InvalidOption, match="larger than 3 bytes"):
        await files.get(name, 3)
    with pytest.raises(FileMissing):
        await files.get("images/none.png", 10)


async def test_a_bucket_has_the_type(s3: str) -> None:
    files, _ = open_storage(Storage(url=f"s3://{BUCKET}/p", endpoint=s3, region="us-east-1"), "a test")
    await files.put("a/b.png", b"rope", "image/png")

    found = boto3.client("s3", endpoint_url=s3).head_object(Bucket=BUCKET, Key="p/a/b.png")
    assert (found["ContentType"], found["ContentLength"]) == ("image/png", 4)


@pytest.mark.parametrize(
    "name",
    ["", "/etc/passwd", "../a", "a/../b", "a//b", "a\\b", "a\0b", ".new-1", "a/.b", "a" * 501, "\u00e4"],
)
async def test_a_name_stays_inside(storage: Any, name: str) -> None:
    files, _ = open_storage(storage, "a test")

    with pytest.raises(InvalidOption, match="is not the name of a file"):
        await files.get(name, 10)
    with pytest.raises(InvalidOption, match="is not the name of a file"):
        await files.put(name, b"", "text/plain")


async def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    files, _ = open_storage(str(tmp_path), "a test")
    await files.put("a/b", b"rope", "text/plain")
    (tmp_path / "a" / "c").mkdir()
    with pytest.raises(OSError, match="c"):  # cannot be replaced by a file
        await files.put("a/c", b"rope", "text/plain")

    assert sorted(one.name for one in (tmp_path / "a").iterdir()) == ["b", "c"]


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o022, 0o644)])
async def test_the_umask_decides_who_may_read_a_file(umask: int, mode: int, tmp_path: Path) -> None:
    files, _ = open_storage(str(tmp_path), "a test")
    before = os.umask(umask)
    try:
        await files.put("a/b", b"rope", "text/plain")
    finally:
        os.umask(before)

    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("url", ["s3://", "ftp://example.org/x"])
def test_a_wrong_storage_is_refused(url: str) -> None:
    with pytest.raises(InvalidOption, match="must be a directory or s3://bucket/prefix"):
        open_storage(url, "a test")


def test_names_are_those_of_the_content() -> None:
    assert content_name("a", b"x", "png") == content_name("a", b"x", "png") != content_name("a", b"y", "png")
    assert public_url("https://cdn.example.org/", "a/b c.png") == "https://cdn.example.org/a/b%20c.png"
    assert public_url(None, "a") is None
