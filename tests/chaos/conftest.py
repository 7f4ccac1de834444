"""A fleet for each test: its processes are ended whatever becomes of the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.fleet import Fleet
from tests.system.outages import ServerFleet


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.close()


@pytest.fixture(params=["sqlite", "postgres"])
def fleet_on_each(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet on a SQLite file, and one on a Postgres server of its own."""
    if request.param == "postgres":
        with ServerFleet.on_server(tmp_path) as fleet:
            yield fleet
        return
    on_file = Fleet(tmp_path)
    yield on_file
    on_file.close()
