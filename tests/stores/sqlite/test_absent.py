"""Asking about a store that is not there leaves nothing behind."""

from pathlib import Path

import pytest

from windlass._store.protocol import Severity
from windlass._stores.sqlite import SQLiteStore
from windlass.errors import StoreError


def is_empty(folder: Path) -> bool:
    return not list(folder.iterdir())


async def test_listing_migrations_makes_no_file(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "absent.db")

    steps = await store.migrations()

    assert steps
    assert not any(step.applied for step in steps)
    assert is_empty(tmp_path)


async def test_checking_makes_no_file_and_says_that_there_is_none(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "absent.db")

    (finding,) = await store.check()

    assert finding.severity is Severity.ERROR
    assert "there is no" in finding.message
    assert is_empty(tmp_path)


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "nowhere" / "absent.db")

    with pytest.raises(StoreError, match="nowhere does not exist"):
        await store.migrations()
