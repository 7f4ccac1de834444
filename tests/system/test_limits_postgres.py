"""The same limits on Postgres: 64 claimers in 8 processes, some of which are killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system import test_limits
from tests.system.outages import ServerFleet

pytestmark = [pytest.mark.system, pytest.mark.timeout(150)]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ServerFleet]:
    with ServerFleet.on_server(tmp_path) as fleet:
        yield fleet


def test_caps_hold_whoever_is_killed(fleet: ServerFleet) -> None:
    test_limits.test_caps_hold_whoever_is_killed(fleet)


@pytest.mark.full
def test_a_rate_holds_whoever_is_killed(fleet: ServerFleet) -> None:
    test_limits.test_a_rate_holds_whoever_is_killed(fleet)
