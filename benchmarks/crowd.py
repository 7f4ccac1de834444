"""A crowd of idle workers on a store: the processes that hold them, and what they cost everyone."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.processes import Answer, RunFailed, Running, starting
from tests.servers.process import free_port
from windlass import App
from windlass._model.record import Session
from windlass._store.protocol import all_records

PROGRAM = "on_windlass_workers"
PER_PROCESS = 2_500  # workers that one process holds
START_SECONDS = 30.0
_TICKS = os.sysconf("SC_CLK_TCK")


def processor(pid: int) -> float:
    """Return the processor seconds of a process and all below it, those that have ended included."""
    used = 0.0
    for one in tree(pid):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        used += sum(map(int, fields[11:15])) / _TICKS
    return used


def resident(pid: int) -> float:
    """Return the memory of a process and all below it in megabytes, what they share counted once."""
    total = 0.0
    for one in tree(pid):
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6
    return total


def sockets(pid: int) -> int:
    """Return how many sockets a process and all below it have open."""
    number = 0
    for one in tree(pid):
        folder = f"/proc/{one}/fd"
        try:
            names = os.listdir(folder)  # noqa: PTH208
        except OSError:
            continue
        for name in names:
            try:
                number += os.readlink(f"{folder}/{name}").startswith("socket:")  # noqa: PTH115
            except OSError:
                continue
    return number


def tree(pid: int) -> list[int]:
    """Return a process and all below it."""
    found = [pid]
    for one in found:
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += map(int, task.read_text().split())
            except OSError:
                continue
    return found


class Server:
    """`windlass serve` on a store, on several addresses of this machine; it can be restarted.

    Several addresses, as one has ports for fewer than 30,000 connections.
    """

    def __init__(self, store: str, folder: Path, *, processes: int, connections: int) -> None:
        self.port = free_port()
        self.urls = [f"http://127.0.0.{n}:{self.port}" for n in range(1, 9)]
        self._log = (folder / f"serve-{self.port}.log").open("ab")
        self._command = [
            *(sys.executable, "-c", "from windlass._cli.main import main; main()"),
            *("--store", store, "serve", "--host", "0.0.0.0"),
            *("--port", str(self.port), "--processes", str(processes), "--no-dashboard"),
            *("--max-connections", str(connections), "--max-streams-per-key", str(connections)),
        ]
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RunFailed(f"windlass serve did not start:\n{Path(self._log.name).read_text()}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        with closing(socket.socket()) as connection:
            return connection.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)


class Database:
    """What a Postgres server counts."""

    def __init__(self, url: str, pid: int) -> None:
        self._url = url
        self.pid = pid

    def sample(self) -> Answer:
        """Commits, written rows and WAL so far; connections and memory now."""
        with closing(psycopg.connect(self._url, autocommit=True)) as connection:
            row = connection.execute(
                "SELECT xact_commit, tup_inserted + tup_updated, pg_current_wal_lsn() - '0/0',"
                " (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()) - 1"
                " FROM pg_stat_database WHERE datname = current_database()"
            ).fetchone()
        assert row is not None
        names = ("commits", "rows", "wal", "connections")
        return dict(zip(names, map(float, row), strict=True)) | {"processor": processor(self.pid)}


def renewed_sessions(url: str, seconds: float) -> int:
    """Return how many workers have renewed their session in the last seconds."""

    async def count() -> int:
        app = App(url)
        await app.open()
        since = await app.store.now() - timedelta(seconds=seconds)
        sessions = await all_records(app.store, Session)
        await app.close()
        return sum(one.beat_at > since and not one.worker.keeper for one in sessions)

    return asyncio.run(count())


@dataclass
class Crowd:
    """The processes that hold the workers."""

    holders: list[Running]
    seconds: float  # until all of them claimed

    def sample(self) -> Answer:
        """Sum up what the processes report."""
        for holder in self.holders:
            holder.say("sample")
        answers = [holder.line() for holder in self.holders]
        return {
            "pickups": [seconds for one in answers for seconds in one.pop("pickups")],
            **{name: sum(one[name] for one in answers) for name in answers[0]},
        }


@contextmanager
def crowd(urls: list[str], number: int, **options: Any) -> Iterator[Crowd]:
    """Start this many workers at once, in as few processes as can hold them."""
    processes = max(1, min(8, -(-number // PER_PROCESS)))
    began = time.perf_counter()
    with ExitStack() as stack:
        holders = []
        for n in range(processes):
            share = number // processes + (n < number % processes)
            holders.append(stack.enter_context(starting(PROGRAM, "hold", urls=urls, number=share, **options)))
        for holder in holders:
            holder.until_ready()
        yield Crowd(holders, time.perf_counter() - began)
        for holder in holders:
            holder.say("stop")
        for holder in holders:
            holder.answer()
