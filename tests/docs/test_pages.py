"""What the pages show works as typed: every Python block and every command, in a folder of its own."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.docs.blocks import DOCS, ROOT, Reader, blocks_of, matches
from tests.servers.home import cache, locked

pytestmark = pytest.mark.system

PORT = 8765
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
WITH_PYTHON = [page for page in PAGES if any(block.language == "python" for block in blocks_of(page))]


@pytest.fixture
def reader(page: Path, tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    # Pages name the usual port, and only one server can have it.
    with locked(cache() / f"{PORT}.lock") if f":{PORT}" in page.read_text() else nullcontext():
        yield reader
        assert set(reader.close()) <= {0}, "a worker did not stop in order"


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
def test_a_page_can_be_followed(page: Path, reader: Reader) -> None:
    reader.follow(page)


def test_there_are_pages_to_follow() -> None:
    assert {"README.md", "quickstart.md", "tasks.md"} <= {page.name for page in WITH_PYTHON}


@pytest.mark.parametrize(
    ("expected", "printed"),
    [("one\n", "two\n"), ("one … three\n", "one two\n"), ("one\n", "one\ntwo\n"), ("one\ntwo\n", "one\n")],
)
def test_a_wrong_answer_is_noticed(expected: str, printed: str) -> None:
    assert not matches(expected, printed)
