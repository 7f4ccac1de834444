"""run_command: programs that the settings allow, and bounds on what they use."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.handlers.runs import new_app, run
from tests.loops.workers import eventually
from windlass import InvalidOption, State, Task, handlers

PYTHON = (sys.executable, "-I", "-c")


def command(code: str, **more: Any) -> handlers.Program:
    return handlers.Program(argv=(*PYTHON, code), **more)


def is_there(path: str) -> bool:
    return Path(path).exists()


def message(task: Task) -> str:
    return task.error.message if task.error else ""


async def finished(allowed: handlers.Program, settings: dict[str, Any] | None = None, **payload: Any) -> Task:
    app = new_app()
    declared = app.include(handlers.Commands(programs={"it": allowed}, **settings or {}))
    return await run(declared, app, **{"program": "it"} | payload)


@pytest.mark.parametrize(
    "wrong", [{"x": {"argv": PYTHON}}, {"x": PYTHON}, {"x": "/bin/ls"}, ["/bin/ls"], "/bin/ls"]
)
def test_programs_are_declared_as_such(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match=r"programs.* must be .*programs={name: handlers.Program"):
        handlers.Commands(programs=wrong)


async def test_arguments_and_input_are_passed_as_they_are() -> None:
    code = "import sys; print(sys.argv[1:], sys.stdin.read()); print('oops', file=sys.stderr)"
    given = ["a b", "$HOME", "; rm -rf /", "*", "'", "\u2693"]
    task = await finished(command(code), args=given, stdin="rope")

    assert json.loads(task.result or b"") == {"stdout": f"{given} rope\n", "stderr": "oops\n"}


async def test_the_environment_and_the_folder_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINDLASS_KEY", "secret")
    code = "import os; open('file', 'w'); print(sorted(os.environ), os.getcwd())"
    task = await finished(command(code), {"environment": {"COLOUR": "blue"}})

    printed = json.loads(task.result or b"")["stdout"]
    assert "'COLOUR'" in printed
    assert "WINDLASS_KEY" not in printed
    assert not is_there(printed.split()[-1])


@pytest.mark.parametrize(
    ("code", "state", "expected"),
    [
        ("import sys; sys.exit('no rope')", State.SCHEDULED, "it ended with status 1: no rope"),
        ("raise SystemExit(65)", State.DEAD, "it ended with status 65"),
        ("import os; os.abort()", State.SCHEDULED, "SIGABRT"),
        ("print('x' * 10_000)", State.DEAD, "wrote more than 5,000 bytes"),
        ("x = bytearray(2 << 30)", State.SCHEDULED, "MemoryError"),
        ("while True: pass", State.SCHEDULED, "ran longer than 1 s"),
    ],
)
async def test_what_a_program_may_not(code: str, state: State, expected: str) -> None:
    task = await finished(command(code), {"output": 5_000, "timeout": 1, "memory": 500 << 20})

    assert task.state is state
    assert expected in message(task)


async def test_what_it_starts_ends_with_it(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys\n"
        "command, nothing = [sys.executable, '-c', 'import time; time.sleep(60)'], subprocess.DEVNULL\n"
        "print(subprocess.Popen(command, stdout=nothing, stderr=nothing).pid)"
    )
    task = await finished(command(code))
    pid = int(json.loads(task.result or b"")["stdout"])

    await eventually(lambda: not _is_running(pid))


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"program": "sh"}, "there is no program 'sh'; allowed are: it"),
        ({"args": ["--force"]}, "must not begin with '-'"),
        ({"args": ["a", "-"]}, "must not begin with '-'"),
    ],
)
async def test_a_wrong_payload_is_dead_at_once(payload: dict[str, Any], expected: str) -> None:
    task = await finished(command("print(1)"), **payload)

    assert task.state is State.DEAD
    assert expected in message(task)


async def test_options_can_be_allowed() -> None:
    task = await finished(command("import sys; print(sys.argv)", options=True), args=["--force"])

    assert "--force" in json.loads(task.result or b"")["stdout"]


@pytest.mark.parametrize(
    ("programs", "expected"),
    [
        ({}, "needs `programs`"),
        ({"a": handlers.Program(argv=("sh",))}, "must begin with an absolute path"),
        ({"a": handlers.Program(argv=())}, "must begin with an absolute path"),
        ({"a": handlers.Program(argv=("/etc/passwd",))}, "cannot be run"),
    ],
)
def test_wrong_settings_are_refused(programs: Any, expected: str) -> None:
    with pytest.raises(InvalidOption, match=expected):
        handlers.Commands(programs=programs)
