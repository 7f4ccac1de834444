"""Decision records have a date, a status and a proof, and one table lists them all."""

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from tests.docs.blocks import DOCS, ROOT

FOLDER = DOCS / "decisions"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
MAX_WORDS = 12  # of the reason why there is no proof

_OPENING = re.compile(r"# (\d{4}):? (.+)\n\nStatus: (accepted on (\S{10}).*?)\. Proof: (\S.*)\n\n")
_TEST = re.compile(r"`([^`\s]+\.py)::(?:\w+::)?(\w+)`")
_ROW = re.compile(r"^\| (\d{4}) \| .*$", re.MULTILINE)


def complaints(text: str) -> Iterator[str]:
    opening = _OPENING.match(text)
    if not opening:
        yield "needs one line below its title: 'Status: accepted on YYYY-MM-DD. Proof: …'"
        return
    try:
        date.fromisoformat(opening[4])
    except ValueError:
        yield f"{opening[4]} is not a date"
    for path, name in _TEST.findall(opening[5]):
        if not (ROOT / path).is_file() or f"def {name}(" not in (ROOT / path).read_text():
            yield f"{path} has no {name}"
    _, none, reason = opening[5].partition("none yet")
    if none and not 0 < len(reason.split()) <= MAX_WORDS:
        yield f"'none yet' needs a reason of at most {MAX_WORDS} words"


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_a_record_has_status_date_and_proof(record: Path) -> None:
    assert list(complaints(record.read_text())) == []


def test_the_table_has_every_number_and_the_status_of_every_record() -> None:
    rows = {row[1]: row[0] for row in _ROW.finditer((FOLDER / "README.md").read_text())}
    expected = {}
    for record in RECORDS:
        if opening := _OPENING.match(record.read_text()):
            number, title, status = opening[1], opening[2], opening[3]
            assert record.name.startswith(f"{number}-")
            expected[number] = f"| {number} | [{title}]({record.name}) | {status} |"

    assert [*rows] == [f"{number:04}" for number in range(1, int(RECORDS[-1].name[:4]) + 1)]
    assert {number: rows[number] for number in expected} == expected
    assert [row for number, row in rows.items() if number not in expected and row.endswith("| |")] == []


@pytest.mark.parametrize(
    "opening",
    [
        "",
        "Proof: `python -m benchmarks loop`.",
        "Status: accepted on 2026-11-15.",
        "Status: accepted on 2026-11-31. Proof: a figure.",
        "Status: accepted on yesterday. Proof: a figure.",
        "Status: accepted on 2026-11-15. Proof: `tests/docs/test_decisions.py::test_nothing`.",
        "Status: accepted on 2026-11-15. Proof: `tests/docs/test_gone.py::test_nothing`.",
        "Status: accepted on 2026-11-15. Proof: none yet",
        f"Status: accepted on 2026-11-15. Proof: none yet: {'word ' * MAX_WORDS}word",
    ],
)
def test_a_wrong_opening_is_noticed(opening: str) -> None:
    assert list(complaints(f"# 0001 A title\n\n{opening}\n\n## Context\n"))


def test_a_right_opening_is_accepted() -> None:
    proof = "`tests/docs/test_decisions.py::test_a_right_opening_is_accepted`"
    changed = "amended by [0002](0002-b.md): a part"

    assert not list(
        complaints(f"# 0001: A\n\nStatus: accepted on 2026-11-15, {changed}. Proof: {proof}.\n\nText\n")
    )
    assert not list(
        complaints("# 0001 A\n\nStatus: accepted on 2026-11-15. Proof: none yet: a word.\n\nText\n")
    )
