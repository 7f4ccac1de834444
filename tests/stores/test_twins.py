"""No store ever differs from the memory store, whatever is done to both."""

from itertools import count
from pathlib import Path

import pytest

from tests.examples import FULL
from windlass._store.clock import Clock
from windlass._store.protocol import Store
from windlass.testing.twins import run_twins

# Another server or a pooler changes none of a store's rules, and HTTP has none of its own: there a few
# examples show that nothing is lost on the way. Memory beside itself shows that twins can be equal at all.
EXAMPLES = {  # by default, in a full run
    "memory": (3, 20),
    "without faults": (5, 20),
    "sqlite": (10, 100),
    "postgres": (4, 100),
    "postgres 15": (5, 25),
    "pgbouncer": (4, 15),
    "valkey": (4, 100),
    "redis 7": (5, 25),
    "valkey cluster": (4, 15),
    "jetstream": (3, 60),
    "jetstream cluster": (3, 20),
    "http to memory": (3, 20),
    "http to sqlite": (2, 5),
    "http to postgres": (2, 5),
    "http to valkey": (2, 5),
    "http to jetstream": (2, 5),
    "encrypted memory": (2, 10),
    "shards": (3, 50),
    "shards of postgres": (2, 10),
    "shards of valkey": (2, 10),
    "http to shards": (2, 5),
    "encrypted sqlite": (2, 10),
    "encrypted postgres": (2, 10),
}


@pytest.mark.more
@pytest.mark.timeout(600)  # where they differ, hypothesis takes its time to find the shortest way there
def test_a_store_is_a_twin_of_memory(factory, request: pytest.FixtureRequest, folder: Path) -> None:
    numbers = count()

    def fresh(clock: Clock) -> Store:
        own = folder / str(next(numbers))
        own.mkdir()
        return factory(own, clock)

    run_twins(fresh, examples=EXAMPLES[request.node.callspec.params["factory"]][FULL])
