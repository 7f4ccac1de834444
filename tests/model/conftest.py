"""What the tests of the models share: the page with their figures."""

from pathlib import Path

import pytest


@pytest.fixture
def guarantees() -> str:
    return (Path(__file__).parents[2] / "docs" / "guarantees.md").read_text()
