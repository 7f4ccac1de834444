"""Links, special files and names in place of the files that are read and written: none leads elsewhere.

What may hold payloads is readable by its user only, whatever the umask.
"""

import asyncio
import json
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.security.probes import ENOUGH, chosen
from windlass import App, By, Filter, InvalidOption
from windlass._archive import Archiver
from windlass._cli.root import root
from windlass._cli.run.health import Health
from windlass._model.record import Archive
from windlass._store.protocol import all_records
from windlass._stores.memory import MemoryStore
from windlass._stores.sqlite import SQLiteStore
from windlass.handlers.storage import FileMissing, LocalFiles
from windlass.testing.clock import ManualClock

PRECIOUS = b"precious\nand more"
SOON = 10.0  # seconds: what waits for the other end of a FIFO never ends

# Each makes something at a path, and may use a folder outside.
Trap = Callable[[Path, Path], Any]


def to_file(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "victim")


def to_folder(path: Path, outside: Path) -> None:
    path.symlink_to(outside, target_is_directory=True)


def to_nothing(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "new")


def to_link(path: Path, outside: Path) -> None:
    (outside / "link").symlink_to(outside / "victim")
    path.symlink_to(outside / "link")


def relative(path: Path, outside: Path) -> None:
    path.symlink_to(os.path.relpath(outside / "victim", path.parent))


def to_itself(path: Path, outside: Path) -> None:
    path.symlink_to(path)


def fifo(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def to_fifo(path: Path, outside: Path) -> None:
    os.mkfifo(outside / "fifo")
    path.symlink_to(outside / "fifo")


def to_zeros(path: Path, outside: Path) -> None:
    path.symlink_to("/dev/zero")


def to_full(path: Path, outside: Path) -> None:
    path.symlink_to("/dev/full")


def folder(path: Path, outside: Path) -> None:
    path.mkdir()


def full_folder(path: Path, outside: Path) -> None:
    path.mkdir()
    (path / "x").touch()


def socket_file(path: Path, outside: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket has at most some 100 bytes
    try:
        listener.bind(path.name)
    finally:
        os.chdir(here)
        listener.close()


TRAPS: list[Trap] = [
    to_file, to_folder, to_nothing, to_link, relative, to_itself, fifo, to_fifo, to_zeros, to_full, folder,
    full_folder, socket_file,
]  # fmt: skip


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that nothing may touch."""
    place = tmp_path / "outside"
    place.mkdir()
    (place / "victim").write_bytes(PRECIOUS)
    return place


def is_untouched(outside: Path) -> bool:
    names = {one.name for one in outside.iterdir()} - {"link", "fifo"}
    return names == {"victim"} and (outside / "victim").read_bytes() == PRECIOUS


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


# -- the storage of handlers -----------------------------------------------------------------------------

PLACES = ["file", "folder", "deeper"]
UMASKS = [0o000, 0o022, 0o077]
STORED = [*product(TRAPS, PLACES, ("get", "put"), UMASKS[:1])]
NAMES = ["", "/", ".", "..", "../a", "a/..", "a/../../b", "/etc/passwd", "//a", "a//b", "./a", "a/./b", "~",
"~root/a",
    "a\\..\\b", "C:\\a", "a\0b", "a\nb", "\u2025/a", "\uff0e\uff0e/a", "..%2fa", "%2e%2e/a", "a/", "a/.",
    ".a", "a/.b",
    "-/../a", "a/..b/..", "con:", "a b", "a\u202eb", "\u00e4", "a" * 501, "a/" * 300,
    ".new-0123456789abcdef", "a..b",
    "file:///etc/passwd", "s3://a/b", "\x7f", "a\r", "a\u0000", "*", "?", "$(id)", "`id`", "|id", "a;b",
]  # fmt: skip


@pytest.mark.more
async def test_the_storage_stays_inside(tmp_path: Path, outside: Path) -> None:
    for number, (trap, place, action, _) in enumerate(chosen(STORED, 25)):
        directory = tmp_path / str(number)
        (directory / "a").mkdir(parents=True)
        (outside / "file").unlink(missing_ok=True)
        for made in ("link", "fifo"):
            (outside / made).unlink(missing_ok=True)
        name = {"file": "a/file", "folder": "b/victim", "deeper": "a/b/c/victim"}[place]
        trap(directory / {"file": "a/file", "folder": "b", "deeper": "a/b"}[place], outside)
        files = LocalFiles(directory)
        async with asyncio.timeout(SOON):
            with suppress(FileMissing, InvalidOption, OSError):
                if action == "put":
                    await files.put(name, b"new", "text/plain")
                else:
                    assert await files.get(name, 100) != PRECIOUS, (trap, place)
        assert is_untouched(outside), (trap, place, action)


@pytest.mark.more
async def test_a_name_is_refused_or_inside(tmp_path: Path, outside: Path) -> None:
    files = LocalFiles(tmp_path / "storage")
    for name in NAMES:
        with pytest.raises(InvalidOption):
            await files.put(name, b"new", "text/plain")
        with pytest.raises(InvalidOption):
            await files.get(name, 100)
    assert is_untouched(outside)
    assert not (tmp_path / "storage").exists()


async def test_the_storage_may_itself_be_a_link(tmp_path: Path) -> None:
    """The control: what is inside can be stored and read."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    files = LocalFiles(tmp_path / "link")
    await files.put("a/c", b"rope", "text/plain")

    assert await files.get("a/c", 10) == b"rope"


@pytest.mark.more
async def test_a_folder_is_swapped_while_files_are_written(tmp_path: Path, outside: Path) -> None:
    directory = tmp_path / "storage"
    files = LocalFiles(directory)
    done = False

    def swap() -> None:
        for number in range(100_000):
            if done:
                break
            with suppress(OSError):
                (directory / "a").rename(directory / f"was{number}")
                (directory / "a").symlink_to(outside)
            with suppress(OSError):
                (directory / "a").unlink()

    swapping = asyncio.create_task(asyncio.to_thread(swap))
    written = 0
    for number in range(chosen([20, 2_000], 1)[-1]):
        with suppress(OSError, InvalidOption):
            await files.put(f"a/b{number}", b"new", "text/plain")
            written += 1
    done = True
    await swapping
    assert written
    assert is_untouched(outside)


# -- exports ---------------------------------------------------------------------------------------------

EXPORTS = [*product(TRAPS, (False, True), UMASKS)]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a store with a task that ended."""
    path = tmp_path_factory.mktemp("store") / "a.db"

    async def fill() -> None:
        app = App(SQLiteStore(str(path), clock=ManualClock()))
        await app.client.send("t", {"n": 1})
        await app.operator.cancel(Filter(), by=By(who="ann"))
        await app.close()

    asyncio.run(fill())
    return f"sqlite:///{path}"


def export(store: str, file: Path, *, resume: bool = False) -> int:
    arguments = ["--store", store, "export", "-o", str(file), *(["--resume"] if resume else [])]
    return CliRunner().invoke(root, arguments, catch_exceptions=False).exit_code


@pytest.mark.more
def test_an_export_writes_its_own_file_only(history: str, tmp_path: Path, outside: Path) -> None:
    for number, (trap, resume, mask) in enumerate(chosen(EXPORTS, 12)):
        place = tmp_path / str(number)
        place.mkdir()
        for made in ("link", "fifo"):
            (outside / made).unlink(missing_ok=True)
        trap(place / "out", outside)
        with umask(mask):
            code = export(history, place / "out", resume=resume)
        assert code != 0, (trap, resume)
        assert is_untouched(outside), (trap, resume)


@pytest.mark.parametrize("mask", UMASKS)
def test_an_export_is_for_its_user_only(history: str, tmp_path: Path, mask: int) -> None:
    with umask(mask):
        assert export(history, tmp_path / "a") == 0
        assert export(history, tmp_path / "b", resume=True) == 0
    assert [mode_of(tmp_path / name) for name in ("a", "b")] == [0o600, 0o600]
    assert json.loads((tmp_path / "a").read_text())["type"] == "t"


@pytest.mark.parametrize(
    "content",
    [
        b"x",
        b"a\nb",
        b"notes\n",
        b"\n",
        b"{}\n",
        b"[1]\n[2",
        b'{"id": 1}\n',
        b"\0" * 10,
        b'{"a',
        b"\xff\xfe",
        b'{"id":"',
        b"#!/bin/sh",
    ],
)
def test_what_is_no_export_is_not_continued(history: str, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)

    assert export(history, tmp_path / "a", resume=True) != 0
    assert (tmp_path / "a").read_bytes() == content


@pytest.mark.parametrize("cut", [0, 1, 5, 9, 40])
def test_an_export_that_was_cut_is_continued(history: str, tmp_path: Path, cut: int) -> None:
    """The control: what an interrupted export has left is an export."""
    assert export(history, tmp_path / "whole") == 0
    whole = (tmp_path / "whole").read_bytes()
    for content in (whole[:cut], whole + whole[:cut]):
        (tmp_path / "a").write_bytes(content)
        assert export(history, tmp_path / "a", resume=True) == 0
        assert (tmp_path / "a").read_bytes() == whole


# -- archives --------------------------------------------------------------------------------------------

DAY = "2026-01-01"
ARCHIVES = [*product(TRAPS, (f"{DAY}.ndjson", f".{DAY}.0.part", ".x.part", f"{DAY}.2.ndjson"), UMASKS)]


async def archived(directory: Path) -> int:
    """Archive one task that ended on that day; return how many files have it."""
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    app = App(store)
    await app.client.send("t", {"n": 1})
    await app.operator.cancel(Filter(), by=By(who="ann"))
    clock.advance(timedelta(days=2))
    archiver = Archiver(directory)
    await archiver.turn_on(store)
    assert await archiver.write_due(store)
    assert await all_records(store, Archive)
    found = await asyncio.to_thread(lambda: [*directory.glob("*.ndjson")])
    regular = [one for one in found if one.is_file() and not one.is_symlink()]
    assert {mode_of(one) for one in regular} == {0o600}
    return len(regular)


@pytest.mark.more
async def test_an_archive_writes_its_own_files_only(tmp_path: Path, outside: Path) -> None:
    for number, (trap, name, mask) in enumerate(chosen(ARCHIVES, 25)):
        directory = tmp_path / str(number)
        directory.mkdir(mode=0o700)
        for made in ("link", "fifo"):
            (outside / made).unlink(missing_ok=True)
        place = directory / name.replace(DAY, f"{ManualClock().now():%Y-%m-%d}")
        trap(place, outside)
        with suppress(OSError):
            os.utime(place, (0, 0), follow_symlinks=False)  # as old as what a keeper that died has left
        with umask(mask):
            async with asyncio.timeout(SOON):
                assert await archived(directory) == 1, (trap, name)
        assert is_untouched(outside), (trap, name)


async def test_a_new_archive_is_for_its_user_only(tmp_path: Path) -> None:
    with umask(0):
        assert await archived(tmp_path / "a" / "b") == 1
    assert mode_of(tmp_path / "a" / "b") == 0o700


# -- the health file, and the corpora ---------------------------------------------------------------------


@pytest.mark.parametrize("trap", TRAPS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("ready", [True, False])
def test_the_health_file_leads_nowhere(tmp_path: Path, outside: Path, trap: Trap, ready: bool) -> None:
    before = (outside / "victim").stat().st_mtime_ns
    trap(tmp_path / "health", outside)
    health = Health.__new__(Health)
    health._warned = False
    health._write(tmp_path / "health", ready=ready)

    assert is_untouched(outside)
    assert (outside / "victim").stat().st_mtime_ns == before


def test_the_corpora_are_large() -> None:
    assert len(STORED) + 2 * len(NAMES) + len(EXPORTS) + len(ARCHIVES) >= ENOUGH
