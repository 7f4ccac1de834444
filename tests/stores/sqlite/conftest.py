"""What the tests of the SQLite store alone share: a file, a store on it, and other processes."""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from windlass._stores.sqlite import SQLiteStore
from windlass.testing.clock import ManualClock

DEADLINE = 20.0
"""Seconds that a test waits for another process or thread before it fails."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "windlass.db"


@pytest.fixture
async def store(path: Path, clock: ManualClock) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path, clock=clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def peek(path: Path) -> Callable[..., list[tuple[object, ...]]]:
    """A look at the file from outside."""

    def look(sql: str, *parameters: object) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute(sql, parameters).fetchall()

    return look


Python = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def python() -> Iterator[Python]:
    """Runs a script in another process, its arguments in sys.argv; reads and writes lines of text."""
    started: list[subprocess.Popen[str]] = []

    def run(script: str, *arguments: object) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


async def line_of(process: "subprocess.Popen[str]") -> str:
    """The next line that another process prints."""
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE):
        return (await asyncio.to_thread(process.stdout.readline)).strip()
