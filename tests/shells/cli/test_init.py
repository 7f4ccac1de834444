"""`windlass init`: the project that it writes runs, and its tests pass."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Run
from .processes import until

Start = Callable[..., subprocess.Popen[str]]

FILES = {"tasks.py", "test_tasks.py", "windlass.toml", "README.md", ".gitignore"}


@pytest.mark.full
@pytest.mark.system
def test_the_project_runs_and_its_tests_pass(run: Run, start: Start, folder: Path) -> None:
    made = run("init", "shop_project")
    project = folder / "shop_project"
    assert made.code == 0, made.err
    assert {path.name for path in project.iterdir()} == FILES
    assert "cd shop_project && windlass worker" in made.err

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "."]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    tested = subprocess.run(
        command, cwd=project, capture_output=True, text=True, timeout=50, env=clean, check=False
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "2 passed" in tested.stdout

    worker = start("worker", cwd=project)
    until(worker, "is ready")
    sent = start("enqueue", "tasks.greet", '{"name": "Ada"}', "--wait-at-most", "50s", cwd=project)
    out, err = sent.communicate(timeout=55)
    assert sent.returncode == 0, err
    assert "Hello, Ada!" in out
    worker.terminate()
    _, err = worker.communicate(timeout=50)
    assert worker.returncode == 0, err


def test_nothing_is_overwritten(run: Run, folder: Path) -> None:
    (folder / "tasks.py").write_text("mine")
    ran = run("init", ".")
    assert ran.code == 3
    assert "already has tasks.py" in ran.err
    assert (folder / "tasks.py").read_text() == "mine"
    assert not (folder / "README.md").exists()


def test_a_folder_that_cannot_be_written_is_an_error(run: Run, folder: Path) -> None:
    (folder / "file").touch()
    ran = run("init", "file/below")
    assert ran.code == 3
    assert "cannot write to file/below" in ran.err


def test_json_lists_the_files(run: Run) -> None:
    assert {Path(row["file"]).name for row in run("init", "new", "--json").rows} == FILES
