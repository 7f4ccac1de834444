"""The programs in examples/ run, in an empty folder, and say what they are meant to say."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks_of

pytestmark = pytest.mark.system

EXAMPLES = ROOT / "examples"
SAID = {
    "shop.py": [
        "charged 1999 pence from the card that ends in 1111",
        "once: True",
        "packed 650 grams",
        "shipped, on its way to 12 Analytical Street",
        "dead: no address for customer Aad",
        "replayed, on its way to 12 Analytical Street",
    ],
    "transaction.py": ["not placed: no anchor in stock", "shipped order 1: rope", "tasks: 1"],
}


def run(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=40, check=False
    )


@pytest.mark.parametrize("name", SAID)
def test_a_program_says_what_it_should(name: str, tmp_path: Path) -> None:
    done = run(tmp_path, "-W", "error", str(EXAMPLES / name))

    assert (done.returncode, done.stdout.splitlines()) == (0, SAID[name]), done.stderr


def test_the_testing_example_passes(tmp_path: Path) -> None:
    (tmp_path / "test_reminders.py").write_text((EXAMPLES / "test_reminders.py").read_text())

    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_reminders.py")

    assert done.returncode == 0, done.stdout


def test_excerpts_in_pages_are_what_the_example_has() -> None:
    """A block that begins with the name of a file is from it; `# …` stands for what is left out."""
    compared = 0
    for block in blocks_of(ROOT / "docs" / "fastapi.md"):
        if "part of examples/fastapi_shop" in block.reason:
            name, _, text = block.text.partition("\n")
            file = (EXAMPLES / "fastapi_shop" / name.removeprefix("# ")).read_text()
            for part in text.split("# …\n"):
                assert part.strip("\n") in file, f"fastapi.md:{block.line}: {name} differs"
                compared += 1
    assert compared >= 10


def test_every_example_is_run_and_listed() -> None:
    programs = {file.name for file in EXAMPLES.glob("*.py")}
    listed = (EXAMPLES / "README.md").read_text()

    # by tests/system and tests/handlers
    elsewhere = {
        "worker.sh",
        "javascript/windlass.mjs",
        "javascript/worker.mjs",
        "javascript/webhook.mjs",
    }

    assert programs == {*SAID, "test_reminders.py"}
    assert elsewhere == {
        str(file.relative_to(EXAMPLES)) for kind in ("sh", "mjs") for file in EXAMPLES.rglob(f"*.{kind}")
    }
    assert all(f"({name})" in listed for name in programs | elsewhere)
