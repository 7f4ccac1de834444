"""A fleet for each test: its processes are ended whatever becomes of the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.fleet import Fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.close()
