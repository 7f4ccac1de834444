"""What all tests share: hypothesis profiles, and real servers for those that ask."""

import gc
import os
import signal

from hypothesis import settings

from tests.examples import FULL

pytest_plugins = ["tests.servers.fixtures"]

# The same examples every time, so that a red run is red again; HYPOTHESIS_PROFILE=fresh looks for new ones.
settings.register_profile("steady", derandomize=True, deadline=None, max_examples=100 if FULL else 25)
settings.register_profile("fresh", derandomize=False, deadline=None, max_examples=2_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# Jobs that a shell starts in the background ignore SIGINT, and so would each process that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Spare the garbage collector the thousands of collected tests: they stay until the end."""
    gc.collect()
    gc.freeze()
