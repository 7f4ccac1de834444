from pathlib import Path

import pytest


@pytest.fixture
def guarantees() -> str:
    """The page with the figures."""
    return (Path(__file__).parents[2] / "docs" / "guarantees.md").read_text()
