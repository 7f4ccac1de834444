"""Speed figures are measured once: what pages quote is what the tables of docs/benchmarks.md say."""

import re
from pathlib import Path

import pytest

from tests.docs.blocks import DOCS, ROOT

MARK = "<!-- figures -->\n\n"
RATE = re.compile(r"\b\d+,\d{3}\b")
RATIO = re.compile(r"\b\d\.\d\d(?= [x\u00d7])")
CAPS = ("a cap of 10,000", "a cap each, 1,000 keys")
ON_REDIS = "| drain, tasks a second, and beside a plain queue |"
SOURCE = DOCS / "benchmarks.md"
README, CHOOSING = ROOT / "README.md", DOCS / "choosing.md"
LIMITS = DOCS / "limits.md"
QUOTING = [README, CHOOSING, DOCS / "jetstream.md", DOCS / "redis.md", DOCS / "scaling.md"]

Cells = dict[tuple[str, str], str]  # the text of each cell by the names of its row and its column


def figures(page: Path) -> list[Cells]:
    """The tables that follow a mark."""
    return [cells(part.partition("\n\n")[0]) for part in page.read_text().split(MARK)[1:]]


def cells(table: str) -> Cells:
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    (_, *columns), _, *rows = lines
    return {(row, column): text for row, *texts in rows for column, text in zip(columns, texts, strict=True)}


def measured() -> Cells:
    return {name: text for table in figures(SOURCE) for name, text in table.items()}


@pytest.mark.parametrize("page", QUOTING, ids=lambda page: page.name)
def test_a_page_quotes_figures_as_they_were_measured(page: Path) -> None:
    source = measured()
    quoted = [item for table in figures(page) for item in table.items()]

    assert quoted
    assert not [(name, text) for name, text in quoted if source.get(name) != text]


@pytest.mark.parametrize("page", [README, CHOOSING], ids=lambda page: page.name)
def test_the_text_around_has_no_other_rate(page: Path) -> None:
    known = {rate for text in measured().values() for rate in RATE.findall(text)}

    assert {*RATE.findall(page.read_text())} <= known


@pytest.mark.parametrize(("page", "caps"), [(README, CAPS[:1]), (LIMITS, CAPS)], ids=["README", "limits"])
def test_a_page_says_what_caps_leave_of_the_rate_on_each_store(page: Path, caps: tuple[str, ...]) -> None:
    """On Redis that of `appendfsync always`, as of all other figures there."""
    text = SOURCE.read_text()
    redis = cells(ON_REDIS + text.partition(ON_REDIS)[2].partition("\n\n")[0])
    lines = [
        line for cap in caps for line in text.splitlines() if re.search(rf"drain, .* {cap} : plain", line)
    ]
    on_each = [part for cap, line in zip(caps, lines, strict=True) for part in (line, redis[cap, "always"])]

    assert RATIO.findall(page.read_text()) == [RATIO.findall(part)[0] for part in on_each]


def test_every_page_that_quotes_figures_is_compared() -> None:
    pages = [README, *DOCS.rglob("*.md")]

    assert {page for page in pages if MARK.strip() in page.read_text()} == {SOURCE, *QUOTING}


def test_a_figure_has_one_value() -> None:
    names = [name for table in figures(SOURCE) for name in table]

    assert len(names) == len({*names})


def test_a_wrong_figure_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{MARK}| | SQLite |\n| --- | ---: |\n| slots of a worker | 501 |\n\nText\n")

    assert figures(page) == [{("slots of a worker", "SQLite"): "501"}]
    assert measured()["slots of a worker", "SQLite"] == "500"
