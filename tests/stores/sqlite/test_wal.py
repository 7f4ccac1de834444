"""Which pages the owner's own file has changed: exactly those of commits, whatever was rolled back."""

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass._stores.jetstream.entry import MAX_PART_BYTES, pack, unpack
from windlass._stores.sqlite.connection.wal import PAGE_BYTES, Wal, checkpoint, connect, write_pages


class Copied:
    """A database, and a copy that gets its pages only."""

    def __init__(self, folder: Path) -> None:
        self.path, self.copy = folder / "one.db", folder / "two.db"
        self.connection = connect(self.path)
        self.connection.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)")
        self.wal = Wal(self.path)
        self.take()

    def take(self) -> int:
        pages, size = self.wal.take()
        if pages:
            with self.copy.open("ab"), self.copy.open("r+b") as file:
                write_pages(file.fileno(), unpack(pack(pages)), size)
        return len(pages)

    def add(self, number: int, text: str = "x" * 500) -> None:
        for _ in range(number):
            self.connection.execute("INSERT INTO t (text) VALUES (?)", (text,))

    def rows(self, path: Path) -> list[tuple[int, str]]:
        uri = f"file:{path}?mode=ro" + ("" if path == self.path else "&immutable=1")
        reader = sqlite3.connect(uri, uri=True)
        try:
            assert reader.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            return reader.execute("SELECT n, text FROM t ORDER BY n").fetchall()
        finally:
            reader.close()

    def assert_same(self) -> None:
        assert self.rows(self.copy) == self.rows(self.path)


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[Copied]:
    copied = Copied(tmp_path)
    yield copied
    copied.wal.close()
    copied.connection.close()


def test_a_commit_gives_the_pages_it_changed(copied: Copied) -> None:
    copied.add(100)
    assert copied.take() > 10
    assert copied.take() == 0
    copied.assert_same()


def test_what_was_rolled_back_is_not_taken(copied: Copied) -> None:
    """A large transaction spills into the WAL before it is rolled back; a small one overwrites its begin."""
    copied.add(100)
    copied.take()
    copied.connection.execute("PRAGMA cache_size=10")
    copied.connection.execute("BEGIN")
    copied.add(2000, "rolled back" * 50)
    assert Path(f"{copied.path}-wal").stat().st_size > 100 * PAGE_BYTES
    copied.connection.execute("ROLLBACK")
    assert copied.take() == 0

    copied.add(1)
    assert 0 < copied.take() < 10
    copied.assert_same()


def test_the_wal_is_begun_anew_after_a_checkpoint(copied: Copied) -> None:
    for _ in range(3):
        copied.add(50)
        copied.take()
        assert checkpoint(copied.connection)
        copied.add(50)
        copied.take()
        copied.assert_same()


def test_a_reader_delays_a_checkpoint_and_loses_nothing(copied: Copied) -> None:
    copied.add(50)
    copied.take()
    reader = connect(copied.path)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM t").fetchone() == (50,)
    copied.add(50)
    copied.take()
    assert not checkpoint(copied.connection)
    copied.add(50)
    copied.take()
    reader.execute("COMMIT")
    reader.close()
    assert checkpoint(copied.connection)
    copied.add(1)
    copied.take()
    copied.assert_same()


def test_a_file_that_shrinks_is_copied_as_short(copied: Copied) -> None:
    copied.add(500)
    copied.take()
    copied.connection.execute("DELETE FROM t WHERE n > 10")
    copied.connection.execute("VACUUM")
    copied.take()
    copied.assert_same()
    assert copied.copy.stat().st_size < 20 * PAGE_BYTES


def test_a_large_commit_is_cut_in_parts() -> None:
    import random

    noise = random.Random(1)
    pages = {number: noise.randbytes(PAGE_BYTES) for number in range(1, 400)}
    parts = pack(pages)
    assert len(parts) > 2
    assert all(len(part) <= MAX_PART_BYTES for part in parts)
    assert dict(unpack(parts)) == pages


def test_what_a_disk_takes_in_pieces_is_written_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that gets full takes the beginning of what is written."""
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: write(file, data[:1000], at))
    page = bytes(number % 251 for number in range(PAGE_BYTES))

    with (tmp_path / "copy").open("w+b") as file:
        write_pages(file.fileno(), [(2, page)], 2)
        assert file.read() == bytes(PAGE_BYTES) + page
