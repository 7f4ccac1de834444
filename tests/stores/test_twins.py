"""No store ever differs from the memory store, whatever is done to both."""

from itertools import count
from pathlib import Path

import pytest

from windlass._clock import Clock
from windlass._store import Store
from windlass.testing.twins import run_twins


@pytest.mark.timeout(600)  # where they differ, hypothesis takes its time to find the shortest way there
def test_a_store_is_a_twin_of_memory(factory, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    numbers = count()
    # Through a pooler every statement takes four round trips, and over HTTP all is asked twice; the rules are
    # those of the store behind it.
    slow = request.node.callspec.params["factory"] in ("pgbouncer", "http to memory", "http to sqlite")

    def fresh(clock: Clock) -> Store:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        return factory(folder, clock)

    run_twins(fresh, examples=20 if slow else 100)
