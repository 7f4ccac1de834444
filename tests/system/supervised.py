"""A command that supervises processes: its log, its processes, and their end with the test."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.system.fleet import wait_until


class Supervised:
    """`windlass` with these arguments. It has started once its log has the word `started`."""

    started = "started"

    def __init__(self, log: Path, folder: Path, environment: Mapping[str, str], *arguments: str) -> None:
        self._file = log
        self._seen: set[int] = set()
        with log.open("wb") as file:
            self.parent = subprocess.Popen(
                [sys.executable, "-m", "windlass._cli.main", *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, **environment},
            )

    def __enter__(self) -> Self:
        wait_until(lambda: self.started in self.log or not self.is_running, 60, what="it starts")
        assert self.is_running, self.log
        return self

    def __exit__(self, *_: object) -> None:
        left = self.children
        self.parent.kill()
        self.parent.wait()
        for pid in [*left, *self._seen]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @property
    def log(self) -> str:
        return self._file.read_text()

    @property
    def is_running(self) -> bool:
        return self.parent.poll() is None

    @property
    def children(self) -> list[int]:
        """The process ids of what it supervises."""
        pid = self.parent.pid
        found: list[int] = []
        with suppress(OSError):
            found = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        self._seen.update(found)
        return found

    def everyone_has_ended(self) -> bool:
        return all(has_ended(pid) for pid in self._seen)


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or only waits to be collected by whoever inherited it."""
    try:
        return re.search(r"\) [ZX] ", Path(f"/proc/{pid}/stat").read_text()) is not None
    except OSError:
        return True
