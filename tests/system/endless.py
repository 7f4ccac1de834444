"""A test that never ends, for test_orphans.py: it starts whatever tests start, and says when all runs."""

import os
import subprocess
import threading
from pathlib import Path
from typing import NoReturn

import pytest

from tests.servers.redis import Redis
from tests.system.fleet import Fleet

STUBBORN = "trap '' TERM INT HUP; setsid sleep 300 & sleep 300"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [1, 2])
def test_endless(fleet: Fleet, valkey: Redis, number: int) -> NoReturn:
    assert valkey.new_url()
    with subprocess.Popen(["sh", "-c", STUBBORN], start_new_session=True):
        fleet.start_ready(2)
        fleet.produce("p", seed=number, wishes=10_000, per_second=10)
        Path(os.environ["SAY_READY_IN"], str(number)).touch()
        while True:
            threading.Event().wait()
