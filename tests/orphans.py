"""End what the tests have started when they are gone, however they ended: a script beside each pytest.

One rule: every process that a run starts has the run's mark in its environment, and so has what that starts
in turn. When pytest has ended, even by kill -9, or a `make` or script of ours that has started it, the watch
kills all that has the mark. Each worker of xdist is a run within a run. Servers have a guard instead, which
ends them gently: servers/guard.py.

What is forked without another program has the mark of the outer run only. Without pidfd (only Linux has it)
nobody watches.
"""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from time import monotonic

MARK = "STARTED_BY_TESTS"  # not one of windlass's own variables, which tests leave out of environments
PATIENCE_SECONDS = 30.0
PAUSE_SECONDS = 0.05
PROC = Path("/proc")
SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"


def end_orphans() -> object:
    """Mark what this process starts from now on, and let a watch end it afterwards; keep what it returns."""
    if not hasattr(os, "pidfd_open"):
        return None
    around = os.environ.get(MARK, "")
    mark = f"{os.getpid()}-{token_hex(8)}"
    os.environ[MARK] = f"{around}/{mark}"
    pids = [os.getpid(), *starters(until=run_of(around))]
    command = [sys.executable, "-I", "-S", __file__, mark, *map(str, pids)]
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(
        command, env=unmarked(), stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True
    )


def unmarked() -> dict[str, str]:
    """Our environment without the mark, for what must outlive us by a moment."""
    return {name: value for name, value in os.environ.items() if name != MARK}


def run_of(marks: str) -> int:
    """The process of the innermost run with these marks; 0 if there is none."""
    return int(marks.rpartition("/")[2].partition("-")[0] or 0)


def starters(until: int = 0) -> list[int]:
    """The processes from our parent to the topmost `make` or script of ours above us; none from `until` on.

    A run within a run may not go on to what has started that one: it would end the gate that tests it.
    """
    chain: list[int] = []
    ours = 0  # how many of the chain are up to the topmost of those
    pid = os.getppid()
    while pid > 1 and pid != until:
        name, _, rest = (PROC / str(pid) / "stat").read_text().partition(" (")[2].rpartition(") ")
        chain.append(pid)
        ours = len(chain) if name == "make" or runs_script(pid) else ours
        pid = int(rest.split()[1])
    return chain[:ours]


def runs_script(pid: int) -> bool:
    """Whether a process is Python with a script of ours; one of another user is not."""
    with suppress(OSError):
        program = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[1:2]
        return any((PROC / str(pid) / "cwd").resolve().joinpath(one).parent == SCRIPTS for one in program)
    return False


def main(mark: str, tests: int, *others: int) -> None:
    """Wait until one of these processes is gone, then kill the tests and all that has the mark."""
    wait_for_one(tests, *others)
    if (
        os.getppid() == tests
    ):  # a starter was killed: what is between it and the tests would start the next ones
        for pid in (*others, tests):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    deadline = monotonic() + PATIENCE_SECONDS
    while (pids := [*marked(mark)]) and monotonic() < deadline:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        select.select([], [], [], PAUSE_SECONDS)


def wait_for_one(tests: int, *others: int) -> None:
    """Return when one of them has ended; `tests` is our parent."""
    watched = select.poll()
    for pid in (tests, *others):
        try:
            watched.register(os.pidfd_open(pid), select.POLLIN)
        except ProcessLookupError:
            return
    if os.getppid() == tests:  # not another process that got its number
        watched.poll()


def marked(mark: str) -> Iterator[int]:
    """All processes with this mark that have not ended."""
    for folder in PROC.iterdir():
        with suppress(OSError):  # gone, or of another user
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes():
                yield int(folder.name)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
