"""Type checkers find each mistake in tests/typing and nothing else.

A mistake is marked by `type: ignore`. mypy, in `make types`, fails for an unmarked error and for a mark
without one. pyright, which many editors use, runs here: from its own wheel, on the node of Playwright's,
so nothing is downloaded.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "tests/typing").glob("*.py"))
MARK = "# type: ignore"


@pytest.mark.timeout(180)
def test_pyright_finds_each_planted_mistake_and_nothing_else() -> None:
    marked = {place for path in EXAMPLES for place in marked_places(path)}
    found = {(Path(one["file"]).name, one["range"]["start"]["line"] + 1): one["message"] for one in errors()}
    assert {place: message for place, message in found.items() if place not in marked} == {}, "false alarms"
    assert marked - found.keys() == set(), "mistakes that were not found"
    assert len(marked) >= 12


def marked_places(path: Path) -> list[tuple[str, int]]:
    lines = path.read_text().splitlines()
    return [(path.name, number) for number, line in enumerate(lines, 1) if MARK in line]


def errors() -> list[dict[str, Any]]:
    """Run pyright with the settings of pyproject.toml."""
    program = [package("playwright") / "driver/node", package("pyright") / "dist/index.js"]
    options = ["--project", ROOT, "--pythonpath", sys.executable, "--outputjson"]
    result = subprocess.run([*program, *options], capture_output=True, text=True, check=False)
    assert result.returncode == 1, result.stderr or result.stdout  # it found errors; 2 and more: it failed
    found: list[dict[str, Any]] = json.loads(result.stdout)["generalDiagnostics"]
    return [one for one in found if one["severity"] == "error"]


def package(name: str) -> Path:
    spec = find_spec(name)
    assert spec is not None, f"{name} is not installed; run `make setup`"
    return Path(str(spec.origin)).parent
