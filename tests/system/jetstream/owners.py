"""Owner processes of a store: started, ended and frozen by their process ids."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.system.jetstream.disks import SmallDisk

OWNS = re.compile(r" owns \S+, from (?:place )?(\d+)")
ROOT = Path(__file__).parents[3]
STOP_SECONDS = 30.0


@dataclass
class Owners:
    """Owner processes by number. Each has its own folder, its own way to the servers and its own settings."""

    urls: list[str]
    folder: Path
    settings: list[Mapping[str, Any]]
    disks: list[SmallDisk] = field(default_factory=list)  # for their files, if they have one each
    package: Path | None = None  # a folder with another windlass, for the processes to import
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    frozen: set[int] = field(default_factory=set)
    _leaving: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start_all(self) -> Self:
        for number in range(len(self.urls)):
            self.start(number)
        return self

    def start(self, number: int) -> None:
        """Start an owner, or the next one with its number, without waiting."""
        folder = self.data(number)
        folder.mkdir(exist_ok=True)
        options = {"url": self.urls[number], "folder": str(folder), **self.settings[number]}
        with self.log(number).open("ab") as file:
            self.processes[number] = subprocess.Popen(
                [sys.executable, "-m", "tests.system.jetstream.own", json.dumps(options)],
                cwd=ROOT,
                env=os.environ | ({"PYTHONPATH": str(self.package)} if self.package else {}),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def data(self, number: int) -> Path:
        """The folder of an owner's own files."""
        return (self.disks[number].path if self.disks else self.folder) / f"owner{number}"

    def log(self, number: int) -> Path:
        return self.folder / f"owner{number}.log"

    def is_able(self, number: int) -> bool:
        """Whether it runs, and is not frozen."""
        return number not in self.frozen and self.processes[number].poll() is None

    def revive(self) -> int:
        """Start those again that have ended by themselves; returns how many."""
        ended = [number for number, process in self.processes.items() if process.poll() is not None]
        for number in ended:
            self.start(number)
        return len(ended)

    def kill(self, number: int) -> None:
        self.processes[number].kill()
        self.processes[number].wait()

    def terminate(self, number: int) -> None:
        """Ask it to hand over and end, without waiting."""
        self.processes[number].terminate()
        self._leaving.append(self.processes[number])

    def freeze(self, number: int) -> None:
        self.frozen.add(number)
        self.processes[number].send_signal(signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        self.processes[number].send_signal(signal.SIGCONT)
        self.frozen.discard(number)

    # -- who owns the store ------------------------------------------------------------------------------

    def takeovers(self) -> int:
        """How often one of them has taken the store over."""
        return sum(len(self._places(number)) for number in self.processes)

    def snapshots(self) -> int:
        """How often one of them has replaced the beginning of the log by a snapshot."""
        return sum(self.log(number).read_text().count("wrote a snapshot") for number in self.processes)

    def last(self) -> int:
        """The one that has taken the store over last."""
        return max(self.processes, key=lambda number: max(self._places(number), default=0))

    def _places(self, number: int) -> list[int]:
        """The places in the log at which it has taken the store over."""
        return [int(found[1]) for found in OWNS.finditer(self.log(number).read_text())]

    def leave_one(self) -> None:
        """Kill all but the one that owns the store."""
        self.revive()
        for number in self.processes:
            if number != self.last():
                self.kill(number)

    def live_file(self) -> Path:
        """The database of the one that owns the store."""
        found = [path for path in self.data(self.last()).rglob("*.db") if Path(f"{path}-wal").exists()]
        return max(found, key=lambda path: path.stat().st_ctime)

    def replace_last(self) -> None:
        """Kill the one that owns the store, and start another that does no harm."""
        number = self.last()
        self.kill(number)
        self.settings[number] = {}
        self.start(number)

    def close(self) -> None:
        """End all of them, whatever they do."""
        for process in [*self.processes.values(), *self._leaving]:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait(STOP_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
