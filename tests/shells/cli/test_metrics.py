"""`windlass worker --metrics`: what a worker counts, where Prometheus can ask for it."""

import os
import socket
import subprocess
import urllib.request
from collections.abc import Callable

import pytest

from .conftest import Run

Start = Callable[..., subprocess.Popen[str]]


def where(worker: "subprocess.Popen[str]") -> str:
    """The address that it tells."""
    assert worker.stderr is not None
    for line in worker.stderr:
        if "metrics are at" in line:
            return line.split()[-1]
    raise AssertionError("it did not say where its metrics are")


def test_an_address_that_makes_no_sense_is_refused(run: Run) -> None:
    for value in ("x", "99999", "127.0.0.1:", "-1", "127.0.0.1:metrics"):
        ran = run("worker", "shop:app", f"--metrics={value}")
        assert ran.code == 2
        assert "metrics is a PORT or HOST:PORT" in ran.err


def test_a_port_that_is_taken_is_refused(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = run("worker", "shop:app", "--metrics", str(taken.getsockname()[1]))

    assert ran.code == 3
    assert "metrics cannot be served on port" in ran.err


@pytest.mark.system
@pytest.mark.parametrize(
    ("arguments", "environment"), [(["--metrics", "0"], {}), ([], {"WINDLASS_METRICS": "127.0.0.1:0"})]
)
def test_a_worker_tells_what_it_counts(
    start: Start, enqueue: Callable[..., str], arguments: list[str], environment: dict[str, str]
) -> None:
    enqueue("shop.welcome", '{"user_id": 1}')
    worker = start("worker", "shop:app", "--slots", "3", *arguments, env={**os.environ, **environment})
    address = where(worker)
    assert address.startswith("http://127.0.0.1:")

    told = ""
    ended = 'windlass_tasks_ended_total{queue="mail",state="completed",type="shop.welcome"} 1.0'
    while ended not in told:  # pytest's own time limit ends it
        told = urllib.request.urlopen(address, timeout=5).read().decode()
    while 'windlass_slots{state="free"} 3.0' not in told:
        told = urllib.request.urlopen(address, timeout=5).read().decode()

    assert 'windlass_task_run_seconds_count{queue="mail",type="shop.welcome"} 1.0' in told
    assert "windlass_workers" not in told  # what is in the store the server tells, once for all
    worker.terminate()
    worker.communicate(timeout=30)
    assert worker.returncode == 0
