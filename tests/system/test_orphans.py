"""A run of tests that is killed leaves no process behind: no server, worker or producer."""

import os
import shlex
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.orphans import MARK
from tests.system.fleet import ROOT, wait_until

SECONDS = 40.0  # a guard gives its server ten before it kills it
pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

Start = Callable[..., "subprocess.Popen[bytes]"]


def descendants(ancestor: int) -> dict[int, str]:
    """All processes below this one, with what they run."""
    children = defaultdict(list)
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            children[int(stat.read_text().rpartition(") ")[2].split()[1])].append(int(stat.parent.name))
    found, todo = {}, [ancestor]
    while todo:
        for pid in children[todo.pop()]:
            found[pid] = command(pid)
            todo.append(pid)
    return found


def command(pid: int) -> str:
    """What a process runs; "" if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start pytest on tests that never end; returns when they have started all they start."""
    started: list[subprocess.Popen[bytes]] = []

    def run(
        *options: str, tests: int = 1, by: tuple[str, ...] = (), script: tuple[str, ...] = ("-m", "pytest")
    ) -> "subprocess.Popen[bytes]":
        base = ["-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/run", *options]
        told = [sys.executable, *script, *base, "tests/system/endless.py"]
        ours = ("PYTEST", "WINDLASS_TESTS")
        environment = {one: value for one, value in os.environ.items() if not one.startswith(ours)}
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(
                [*by, *told],
                cwd=ROOT,
                env=environment | {"SAY_READY_IN": str(tmp_path)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        started.append(process)
        wait_until(
            lambda: sum((tmp_path / one).exists() for one in "12") == tests or process.poll() is not None,
            90,
            what="the tests have started everything",
        )
        assert process.poll() is None, (tmp_path / "log").read_text()
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


def assert_gone(processes: dict[int, str]) -> None:
    def left() -> dict[int, str]:
        return {pid: said for pid, said in processes.items() if command(pid) == said}

    assert processes
    with suppress(AssertionError):
        wait_until(lambda: not left(), SECONDS, what="all of them have ended", every=0.1)
    assert left() == {}


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGTERM, marks=pytest.mark.full),
        pytest.param(signal.SIGINT, marks=pytest.mark.full),
    ],
)
def test_nothing_outlives_pytest(start: Start, number: signal.Signals) -> None:
    pytest_itself = start()
    below = descendants(pytest_itself.pid)
    said = " ".join(below.values())
    assert all(one in said for one in ("tests.system.work", "tests.system.produce", "valkey", "sleep 300"))

    pytest_itself.send_signal(number)
    pytest_itself.wait(30)

    assert_gone(below)


def test_nothing_outlives_a_worker_of_xdist(start: Start) -> None:
    controller = start("-n", "2", tests=2)
    workers = [pid for pid, said in descendants(controller.pid).items() if "sys.stdin.readline" in said]
    assert len(workers) == 2
    for worker in workers:
        below = descendants(worker)

        os.kill(worker, signal.SIGKILL)

        assert_gone(below)


@pytest.mark.full
def test_nothing_outlives_the_controller_of_xdist(start: Start) -> None:
    controller = start("-n", "2", tests=2)
    below = descendants(controller.pid)

    controller.kill()

    assert_gone(below)


@pytest.mark.full
def test_nothing_outlives_a_gate_without_a_make(start: Start, tmp_path: Path) -> None:
    gate = start(script=("scripts/gate", "--unstable", str(tmp_path / "unstable.md")))
    below = descendants(gate.pid)

    gate.kill()

    assert_gone(below)


def test_a_run_within_a_run_does_not_end_what_has_started_that_one() -> None:
    """Else the test below would end the gate, which runs it below a `make` of its own."""
    outer = int(os.environ[MARK].rpartition("/")[2].partition("-")[0])
    find = f"from tests.orphans import starters; print(*starters(until={outer}))"
    told = f"import sys; sys.path.append({str(ROOT)!r}); {find}"
    make = ["make", "--no-print-directory", "-s", "-f", "-"]
    rule = f"all:\n\t@true; {sys.executable} -c {shlex.quote(told)}\n"

    seen = subprocess.run(make, input=rule, capture_output=True, text=True, check=True).stdout.split()

    assert seen
    assert not {os.getpid(), os.getppid(), outer} & set(map(int, seen))


def test_nothing_outlives_a_make(start: Start, tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(
        ".PHONY: all inner\nall:\n\t@$(MAKE) -f $(MAKEFILE_LIST) inner; true\ninner:\n\t@$(RUN); $(RUN)\n"
    )
    script = f'exec make -f {tmp_path}/Makefile RUN="$*"'
    make = start(by=("sh", "-c", script, "sh"))
    below = descendants(make.pid)

    make.kill()

    assert_gone(below)
