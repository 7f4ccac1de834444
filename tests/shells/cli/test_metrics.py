"""`windlass worker --metrics`: the metrics of a worker over HTTP."""

import os
import socket
import subprocess
import urllib.request
from collections.abc import Callable

import pytest

from .conftest import Run

Start = Callable[..., subprocess.Popen[str]]


def where(worker: "subprocess.Popen[str]") -> str:
    """Read the address of the metrics from the log."""
    assert worker.stderr is not None
    for line in worker.stderr:
        if "metrics are at" in line:
            return line.split()[-1]
    raise AssertionError("it did not say where its metrics are")


def test_an_invalid_address_is_refused(run: Run) -> None:
    for value in ("x", "99999", "127.0.0.1:", "-1", "127.0.0.1:metrics"):
        ran = run("worker", "shop:app", f"--metrics={value}")
        assert ran.code == 2
        assert "metrics must be PORT or HOST:PORT" in ran.err


def test_a_port_that_is_taken_is_refused(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = run("worker", "shop:app", "--metrics", str(taken.getsockname()[1]))

    assert ran.code == 3
    assert "cannot serve metrics on 127.0.0.1:" in ran.err


@pytest.mark.system
@pytest.mark.parametrize(
    ("arguments", "environment"), [(["--metrics", "0"], {}), ([], {"WINDLASS_METRICS": "127.0.0.1:0"})]
)
def test_a_worker_serves_its_metrics(
    start: Start, enqueue: Callable[..., str], arguments: list[str], environment: dict[str, str]
) -> None:
    enqueue("shop.welcome", '{"user_id": 1}')
    worker = start("worker", "shop:app", "--slots", "3", *arguments, env={**os.environ, **environment})
    address = where(worker)
    assert address.startswith("http://127.0.0.1:")

    metrics = ""
    ended = 'windlass_tasks_ended_total{queue="mail",state="completed",type="shop.welcome"} 1.0'
    while ended not in metrics:  # pytest's own time limit ends it
        metrics = urllib.request.urlopen(address, timeout=5).read().decode()
    while 'windlass_slots{state="free"} 3.0' not in metrics:
        metrics = urllib.request.urlopen(address, timeout=5).read().decode()

    assert 'windlass_task_run_seconds_count{queue="mail",type="shop.welcome"} 1.0' in metrics
    assert "windlass_workers" not in metrics  # only servers export the state of the store
    worker.terminate()
    worker.communicate(timeout=30)
    assert worker.returncode == 0
