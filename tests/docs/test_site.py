"""The docs site: every page is in its navigation, and its links lead somewhere."""

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import windlass
from tests.docs.blocks import DOCS, ROOT

script: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "docs"))


def pages_of(entry: object) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    children = entry.values() if isinstance(entry, dict) else entry
    return [page for child in children for page in pages_of(child)]  # type: ignore[attr-defined]


def test_the_list_of_pages_is_complete() -> None:
    listed = re.findall(r"^- \[.+?\]\((.+?\.md)\)", (DOCS / "README.md").read_text(), re.MULTILINE)

    assert sorted(listed) == sorted({file.name for file in DOCS.glob("*.md")} - {"README.md"})


def test_every_page_is_in_the_navigation_once() -> None:
    named = pages_of(script["navigation"]())
    written = [str(file.relative_to(DOCS)) for file in DOCS.rglob("*.md")]

    assert len(named) == len({*named})
    assert {*written} <= {*named}


def test_links_between_pages_are_moved_with_them(tmp_path: Path) -> None:
    script["write_pages"](tmp_path)
    links = [
        (page, target)
        for page in tmp_path.rglob("*.md")
        for target in re.findall(
            r"\]\((?![a-z]+:|#)([^)\s#]+)",
            re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL),
        )
    ]

    assert len(links) > 100
    assert not [(page.name, target) for page, target in links if not (page.parent / target).exists()]


@pytest.mark.parametrize(
    ("path", "target", "moved"),
    [
        ("docs/tasks.md", "stores.md", "stores.md"),
        ("docs/tasks.md", "../examples", "project/examples/README.md"),
        ("examples/README.md", "javascript", "README.md"),
        ("docs/decisions/0018-storage-quotas.md", "../quotas.md", "../quotas.md"),
        ("CHANGELOG.md", "docs/stores.md", "../stores.md"),
        ("examples/README.md", "../docs/tasks.md", "../../tasks.md"),
    ],
)
def test_a_link_leads_to_the_same_page_on_the_site(path: str, target: str, moved: str) -> None:
    assert script["moved"](target, path) == moved


def test_the_name_of_a_file_becomes_the_title_of_its_block() -> None:
    text = "```python shop.py\nx\n```\n```bash exits=2\ny\n```\n```mermaid\nz\n```\n[a](../ops/README.md)\n"

    assert script["site_markdown"](text, "docs/a.md") == (
        '```python title="shop.py"\nx\n```\n```bash\ny\n```\n[a](project/ops/README.md)\n'
    )


def test_broken_links_and_foreign_assets_are_found(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "index.html").write_text('<a href="b/#x">1</a><a href="b/#y">2</a><a href="c/">3</a>')
    (tmp_path / "b" / "index.html").write_text(
        '<h1 id="x">1</h1><script src="https://cdn.example/x.js"></script>'
    )

    assert script["broken_links"](tmp_path) == [
        "b/index.html loads https://cdn.example/x.js",
        "index.html links to b/#y, which does not exist",
        "index.html links to c/, which does not exist",
    ]


def test_a_list_that_the_site_would_lose_is_found(tmp_path: Path) -> None:
    pages, site = tmp_path / "pages", tmp_path / "site"
    pages.mkdir()
    (site / "a").mkdir(parents=True)
    (pages / "a.md").write_text("Text\n- one\n- two\n")
    (site / "a" / "index.html").write_text("<article><p>Text\n- one\n- two</p></article>")

    assert script["differences"](pages, site) == ["a.md has 0 li, not 2"]


@pytest.mark.full
@pytest.mark.system
@pytest.mark.timeout(600)
def test_the_site_is_built_without_a_warning() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "docs")],
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    reference = (ROOT / "build" / "site" / "reference" / "windlass" / "index.html").read_text()
    assert not [name for name in windlass.__all__ if f'id="windlass.{name}"' not in reference]
