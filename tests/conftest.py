"""What all tests share: hypothesis profiles, and real servers for those that ask."""

import gc
import os
import signal

import pytest
from hypothesis import settings

from tests.examples import FULL, REST, is_in_sample
from tests.orphans import end_orphans

pytest_plugins = ["tests.servers.fixtures"]

WATCH = pytest.StashKey[object]()

# The same examples every time, so that a red run is red again; HYPOTHESIS_PROFILE=fresh looks for new ones.
settings.register_profile("steady", derandomize=True, deadline=None, max_examples=100 if FULL else 25)
settings.register_profile("fresh", derandomize=False, deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# Jobs that a shell starts in the background ignore SIGINT, and so would each process that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[WATCH] = end_orphans()


@pytest.hookimpl(trylast=True)  # when the others have set their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a run of the rest, leave out what a sample has run."""
    if REST:
        config.hook.pytest_deselected(items=[item for item in items if is_in_sample(item)])
        items[:] = [item for item in items if not is_in_sample(item)]


def pytest_collection_finish() -> None:
    """Spare the garbage collector the thousands of collected tests: they stay until the end."""
    gc.collect()
    gc.freeze()
