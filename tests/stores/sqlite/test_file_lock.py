"""What lies beside the database: nothing that somebody planted there leads the store astray."""
# ruff: noqa: ASYNC240 - the loop has nothing better to do than wait for the test's small files

import asyncio
import os
from contextlib import aclosing
from pathlib import Path

import pytest

from windlass._store.protocol import Wake
from windlass._stores.sqlite import SQLiteStore, notify
from windlass._stores.sqlite.notify import WakeHub
from windlass._stores.sqlite.transaction import Wakes
from windlass.testing.conformance.steps import enqueue_one, exists

from .conftest import DEADLINE


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file of the user's that nobody else shall touch."""
    file = tmp_path / "elsewhere" / "id_rsa"
    file.parent.mkdir()
    file.write_text("secret")
    file.chmod(0o400)
    return file


def untouched(precious: Path) -> bool:
    return (precious.read_text(), precious.stat().st_mode & 0o777) == ("secret", 0o400)


async def written_and_woken(path: Path) -> bool:
    """Whether a store on this file takes a task and wakes a listener."""
    store = SQLiteStore(path)
    await store.open()
    async with aclosing(store.wakes(["default"])) as hints, asyncio.timeout(DEADLINE):
        first = asyncio.ensure_future(anext(hints))
        await asyncio.sleep(0)
        task = await enqueue_one(store)
        woken = await first is Wake.READY
    stands = await exists(store, task)
    await store.close()
    return stands and woken


@pytest.mark.parametrize("suffix", ["-lock", "-turn"])
async def test_a_planted_link_to_a_file_is_not_followed(path: Path, precious: Path, suffix: str) -> None:
    path.with_name(path.name + suffix).symlink_to(precious)

    assert await written_and_woken(path)
    assert untouched(precious)


@pytest.mark.parametrize("suffix", ["-lock", "-turn"])
async def test_a_link_into_the_void_makes_no_file_there(path: Path, tmp_path: Path, suffix: str) -> None:
    path.with_name(path.name + suffix).symlink_to(tmp_path / "made")

    assert await written_and_woken(path)
    assert not (tmp_path / "made").exists()


async def test_something_else_than_a_file_is_not_locked(path: Path) -> None:
    os.mkfifo(path.with_name(path.name + "-lock"))

    assert await written_and_woken(path)


async def test_a_planted_link_to_a_folder_is_not_followed(path: Path, precious: Path) -> None:
    precious.parent.chmod(0o711)
    precious.chmod(0o600)
    path.with_name(path.name + "-wakes").symlink_to(precious.parent)

    assert await written_and_woken(path)

    assert precious.read_text() == "secret"
    assert precious.parent.stat().st_mode & 0o777 == 0o711
    assert list(precious.parent.iterdir()) == [precious]


async def test_a_file_in_the_place_of_the_folder_is_left_alone(path: Path) -> None:
    file = path.with_name(path.name + "-wakes")
    file.write_text("mine")

    assert await written_and_woken(path)
    assert file.read_text() == "mine"


async def test_a_file_among_the_fifos_is_not_written_to(path: Path) -> None:
    folder = path.with_name(path.name + "-wakes")
    folder.mkdir()
    (folder / "123-abc").write_text("mine")

    assert await written_and_woken(path)
    assert (folder / "123-abc").read_text() == "mine"


def test_a_dead_ones_fifo_that_cannot_be_swept_up_harms_nobody(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = path.with_name(path.name + "-wakes")
    folder.mkdir()
    os.mkfifo(folder / "123-abc")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("no")

    monkeypatch.setattr(notify.os, "unlink", refuse)
    woken = Wakes()
    woken.ready.add("default")

    WakeHub(path).notify(woken)

    assert (folder / "123-abc").exists()
