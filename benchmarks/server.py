"""`windlass serve` on a store, for as long as it is measured."""

import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from benchmarks.processes import ROOT, environment

START_SECONDS = 30


@contextmanager
def served(store: str) -> Iterator[str]:
    """Run `windlass serve` without a keeper on a store; yield its host and port."""
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    command = [sys.executable, "-m", "windlass._cli.main", "serve", "--port", address.partition(":")[2]]
    process = subprocess.Popen(
        [*command, "--no-keeper", "--store", store],
        cwd=ROOT,
        env=environment(ROOT),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(address)
        yield address
    finally:
        process.terminate()
        process.wait(20)


def _wait_for(address: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            with closing(http.client.HTTPConnection(address, timeout=5)) as client:
                client.request("GET", "/healthz")
                client.getresponse().read()
                return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"the server at {address} did not start")
