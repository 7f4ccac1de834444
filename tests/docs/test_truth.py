"""What the pages say agrees with the code: states, errors, words, tests named, options, links."""

import inspect
import re
import runpy
from pathlib import Path
from typing import get_overloads

import pytest

from tests.docs.blocks import DOCS, ROOT
from tests.test_tidy import BANNED_STEM, BANNED_WORDS
from windlass import WorkerSettings, errors
from windlass._model.options import Options
from windlass._observe.events import EventName
from windlass.app import App
from windlass.testing import conformance

PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", *sorted(DOCS.rglob("*.md"))]
CLASSES = [
    kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind.__module__ == errors.__name__
]


def test_the_diagram_is_that_of_the_table() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "state_diagram"))
    page = (DOCS / "concepts.md").read_text()

    assert script["drawn"]() in page, "run .venv/bin/python scripts/state_diagram --write"


def test_the_map_is_that_of_the_code() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "code_map"))

    assert script["code_map"]() in (DOCS / "architecture.md").read_text(), (
        "run .venv/bin/python scripts/code_map --write"
    )


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_is_explained_under_its_code(kind: type[errors.WindlassError]) -> None:
    page = (DOCS / "errors.md").read_text()

    assert f"\n### {kind.code}\n\n`{kind.__name__}`" in page


def test_no_error_is_explained_that_does_not_exist() -> None:
    explained = re.findall(r"^### (.+)$", (DOCS / "errors.md").read_text(), re.MULTILINE)

    assert sorted(explained) == sorted(kind.code for kind in CLASSES)


def test_every_error_that_windlass_records_on_tasks_is_explained() -> None:
    files = [f for f in (ROOT / "src" / "windlass").rglob("*.py") if "testing" not in f.parts]
    sources = "".join(file.read_text() for file in files)
    recorded = set(re.findall(r"Error\(\s*type=\"(\w+)\"", sources))
    page = (DOCS / "errors.md").read_text()

    assert recorded
    assert not [name for name in sorted(recorded) if f"| `{name}` |" not in page]


def test_the_banned_words_are_those_that_are_looked_for() -> None:
    _, _, table = (DOCS / "vocabulary.md").read_text().partition("| instead of | say |\n| --- | --- |\n")
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()]
    listed = {word: said for words, said in rows for word in words.split(", ")}
    found = {word: BANNED_STEM.fullmatch(word) for word in listed}

    assert all(found.values())
    assert {match[1]: listed[word] for word, match in found.items() if match} == BANNED_WORDS


def test_every_test_that_is_named_exists() -> None:
    suites = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "src" / "windlass" / "testing").rglob("*.py")]
    written = {name for file in suites for name in re.findall(r"def (test_\w+)", file.read_text())}
    files = {file.stem for file in suites}

    for page in PAGES:
        named = set(re.findall(r"`(test_\w+)`", page.read_text()))
        assert named <= written | files, f"{page.name} names {sorted(named - written - files)}"


def test_every_conformance_class_that_is_named_exists() -> None:
    named = set(re.findall(r"`(Test\w+)`", (DOCS / "capabilities.md").read_text()))

    assert named
    assert named <= {*conformance.__all__}, sorted(named - {*conformance.__all__})


def test_every_option_is_listed() -> None:
    tasks, workers = (DOCS / "tasks.md").read_text(), (DOCS / "workers.md").read_text()
    declaring = inspect.signature(get_overloads(App.task)[-1]).parameters
    options = {*Options.__annotations__, *declaring, *inspect.signature(App).parameters} - {"self"}

    assert not [name for name in sorted(options) if f"`{name}`" not in tasks]
    assert not [name for name in WorkerSettings.__struct_fields__ if f"| `{name}` |" not in workers]
    assert not [name for name in EventName if f"`{name}`" not in (DOCS / "logging.md").read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors(linked), f"{page.name} links to {target}"


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links spell them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
