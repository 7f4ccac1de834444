"""The gate: what fails and passes alone is listed, once; a real failure is red. On tiny real suites."""

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
HEADER = "| test | date (UTC) | what was seen |\n| --- | --- | --- |\n"
FIRST_TIME = """
from pathlib import Path

def is_first_time(name):
    seen = Path(__file__).with_name(f"{name}.seen")
    try:
        return not seen.exists()
    finally:
        seen.touch()
"""
UNSTABLE = """
import pytest

def test_sound(): ...

@pytest.mark.parametrize("one", ["a|b"])
def test_unstable(one):
    assert not is_first_time("unstable"), "a busy | machine\\nand more"
"""
ALWAYS = "def test_always_fails():\n    assert 1 == 2\n"
CRASH = """
import os

def test_sound(): ...

def test_crash():
    if is_first_time("crash"):
        os._exit(3)
"""
MANY = """
import pytest

@pytest.mark.parametrize("number", range(6))
def test_one_of_many(number):
    assert not is_first_time(f"many{number}")
"""
ENDS = """
import os

def test_end():
    os._exit({status})

def test_after(): ...
"""
ENDS_LATER = """
import os

def test_end():
    assert not is_first_time("end")
    os._exit({status})
"""
IMPORTED_LATER = """
import os

assert not is_first_time(os.environ["PYTEST_XDIST_WORKER"] if "PYTEST_XDIST_WORKER" in os.environ else "gw0")

def test_never_runs(): ...
"""
pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

Gate = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def unstable(tmp_path: Path) -> Path:
    """The list, without a test."""
    file = tmp_path / "unstable.md"
    file.write_text(HEADER)
    return file


@pytest.fixture
def gate(tmp_path: Path, unstable: Path) -> Gate:
    """Run the gate on a suite of one file."""
    (tmp_path / "pytest.ini").touch()

    def run(suite: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        (tmp_path / "test_suite.py").write_text(FIRST_TIME + suite)
        command = [sys.executable, SCRIPTS / "gate", "--unstable", unstable, "-q", *arguments]
        env = {one: value for one, value in os.environ.items() if not one.startswith(("PYTEST", "GATE"))}
        env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        return subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
        )

    return run


def test_an_unstable_test_is_green_once_in_fourteen_days(gate: Gate, unstable: Path, tmp_path: Path) -> None:
    today = datetime.now(UTC).date()
    line = rf"| `test_suite.py::test_unstable[a\|b]` | {today} | AssertionError: a busy \| machine |"

    first = gate(UNSTABLE)
    assert first.returncode == 0, first.stdout
    assert unstable.read_text() == f"{HEADER}{line}\n"
    assert line in first.stdout.splitlines()

    (tmp_path / "unstable.seen").unlink()
    again = gate(UNSTABLE)
    assert again.returncode == 1, again.stdout
    assert unstable.read_text() == f"{HEADER}{line}\n{line}\n"

    for days, status in ((14, 1), (15, 0)):
        unstable.write_text(f"{HEADER}{line}\n".replace(str(today), str(today - timedelta(days))))
        (tmp_path / "unstable.seen").unlink()
        assert gate(UNSTABLE).returncode == status, days


def test_a_real_failure_is_red_and_an_unstable_test_beside_it_is_listed(gate: Gate, unstable: Path) -> None:
    done = gate(UNSTABLE + ALWAYS)

    assert done.returncode == 1
    (line,) = unstable.read_text().removeprefix(HEADER).splitlines()
    assert "test_unstable" in line


def test_what_fails_again_is_not_unstable(gate: Gate, unstable: Path) -> None:
    done = gate(ALWAYS)

    assert done.returncode == 1
    assert done.stdout.count("1 failed") == 2  # once more, alone
    assert unstable.read_text() == HEADER


def test_many_failures_are_red_without_a_second_chance(gate: Gate, unstable: Path) -> None:
    done = gate(MANY)

    assert done.returncode == 1
    assert done.stdout.count("6 failed") == 1
    assert "again" not in done.stdout
    assert unstable.read_text() == HEADER


def test_a_test_that_ends_its_process_gets_a_second_chance(gate: Gate, unstable: Path) -> None:
    done = gate(CRASH, "-p", "xdist", "-n", "2")

    assert done.returncode == 0, done.stdout
    (line,) = unstable.read_text().removeprefix(HEADER).splitlines()
    assert "`test_suite.py::test_crash`" in line
    assert "crashed while running" in line


@pytest.mark.parametrize(
    ("suite", "arguments"),
    [
        pytest.param(UNSTABLE + ALWAYS, ("-x",), id="stopped at the first failure"),
        pytest.param(ENDS.format(status=0), (), id="ended by a test as if all was well"),
        pytest.param(ENDS_LATER.format(status=0), (), id="ended while the test ran alone"),
        pytest.param(ENDS_LATER.format(status=1), (), id="ended as if tests failed"),
    ],
)
def test_a_run_without_all_its_tests_is_red(
    gate: Gate, unstable: Path, suite: str, arguments: tuple[str, ...]
) -> None:
    done = gate(suite, *arguments)

    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stdout
    assert done.stderr == ""
    assert "not all tests ran" in done.stdout
    assert unstable.read_text() == HEADER


def test_a_file_that_fails_to_import_once_is_red_beside_an_unstable_test(
    gate: Gate, unstable: Path, tmp_path: Path
) -> None:
    (tmp_path / "test_import.py").write_text(FIRST_TIME + IMPORTED_LATER)

    done = gate(UNSTABLE, "-p", "xdist", "-n", "2")

    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stdout
    assert unstable.read_text() == HEADER


def test_no_failure_and_no_pytest_have_their_own_exit_codes(gate: Gate, unstable: Path) -> None:
    assert gate("def test_sound(): ...").returncode == 0
    assert gate("def test_sound(): ...", "--no-such-option").returncode == pytest.ExitCode.USAGE_ERROR
    assert gate("import no_such_module").returncode == pytest.ExitCode.INTERRUPTED
    assert unstable.read_text() == HEADER


PARTS = """
checked:
	@true
good:
	@echo '{"passed": 7, "failed": 0}' >> $$GATE_TALLY
interrupted:
	@kill -INT $$(cut -d ' ' -f 4 /proc/$$PPID/stat)
bad:
	@echo '{"passed": 2, "failed": 1}' >> $$GATE_TALLY; exit 1
uncounted:
	@exit 1
"""


def run_parts(folder: Path, *parts: tuple[str, bool]) -> "subprocess.CompletedProcess[str]":
    """Run `scripts/parts` on parts of its own: targets of a makefile, and which one must be good."""
    (folder / "Makefile").write_text(PARTS)
    program = f"""
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
sys.dont_write_bytecode = True
loader = SourceFileLoader("parts", {str(SCRIPTS / "parts")!r})
parts = sys.modules["parts"] = module_from_spec(spec_from_loader("parts", loader))
loader.exec_module(parts)
parts.ROOT = {str(folder)!r}
parts.GATES = {{"some": [parts.Part(name, (name,), is_first=first) for name, first in {parts!r}]}}
sys.exit(parts.main("some"))
"""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_all_parts_run_and_the_last_line_says_what_became_of_them(tmp_path: Path) -> None:
    done = run_parts(tmp_path, ("checked", True), ("bad", False), ("uncounted", False), ("good", False))

    *_, checked, bad, uncounted, good, last = done.stdout.splitlines()
    assert done.returncode == 1
    assert "2 failed, 9 passed in " in last
    assert last.strip("=") != last
    assert bad.split() == ["0:00", "bad", "2", "passed,", "1", "failed", "FAILED"]
    assert uncounted.split() == ["0:00", "uncounted", "FAILED"]
    assert good.split() == ["0:00", "good", "7", "passed"]
    assert checked.split() == ["0:00", "checked"]


def test_nothing_follows_a_failed_check(tmp_path: Path) -> None:
    done = run_parts(tmp_path, ("uncounted", True), ("good", False))

    assert done.returncode == 1
    assert "1 failed, 0 passed" in done.stdout
    assert "good" not in done.stdout


def test_the_exit_code_is_that_of_the_parts(tmp_path: Path) -> None:
    done = run_parts(tmp_path, ("checked", True), ("good", False))

    assert done.returncode == 0
    assert " 7 passed in 0." in done.stdout.splitlines()[-1]


def test_an_interrupt_is_red_even_if_all_was_well_so_far(tmp_path: Path) -> None:
    done = run_parts(tmp_path, ("interrupted", False), ("bad", False))

    assert done.returncode == 1
    assert "bad" not in done.stdout
