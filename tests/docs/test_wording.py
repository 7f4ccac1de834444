"""Phrases over which new users stumbled are gone for good: from messages, help texts and docs."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import DOCS, ROOT
from windlass._policy.input.quote import counted

PHRASES = (
    "lies about",
    "take more: pip",
    "refuses us",
    "no store goes by",
    "JSON cannot say",
    "nobody can know",
    "an end is final",
    "understood, and wrong",
    "not now: try again",
    "So many.",
    "Within so long",
    "And on which port",
    "Silent for so long",
    "Log from this level",
    "declared twice; give",
    "is text, not",
    "Whose turn it is",
    "Twice is once",
    "Two ways to be the same",
    "a space parts",
    "begin at nought",
)
_STUMBLED = re.compile("|".join(map(re.escape, PHRASES)))


def files() -> Iterator[Path]:
    """Everything that users read or that prints what they read."""
    yield from (ROOT / "src").rglob("*.py")
    yield from DOCS.glob("*.md")
    yield ROOT / "README.md"
    yield ROOT / "CHANGELOG.md"


def test_no_file_has_a_phrase_that_made_users_stumble() -> None:
    found = {str(file): _STUMBLED.findall(file.read_text()) for file in files()}

    assert len(found) > 100
    assert {file: phrases for file, phrases in found.items() if phrases} == {}


@pytest.mark.parametrize("number", [1, 2])
def test_plurals_are_right(number: int) -> None:
    assert counted(number, "task type") == ("1 task type" if number == 1 else "2 task types")
