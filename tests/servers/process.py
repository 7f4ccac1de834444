"""The process of a private server: started under a guard, so that it cannot outlive the tests."""

import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom
from time import monotonic
from typing import TypedDict

from tests.orphans import unmarked

GUARD = Path(__file__).with_name("guard.py")
START_SECONDS = 30.0
STOP_SECONDS = 30.0
LOOK_SECONDS = 0.005
LOG_TAIL_CHARACTERS = 3_000
# Below the ports that Linux gives to outgoing connections: among those, a client that keeps trying a server
# which is down is in the end connected to itself.
PORTS = range(20_000, 32_000)


class ServerFailed(Exception):
    """A server did not start or stop; says why, with the end of its log."""


class Process:
    """One run of a server, from its start to its end."""

    def __init__(self, command: list[str], home: Path, log: Path, *, end_signal: signal.Signals) -> None:
        """`end_signal` is how it is ended when the tests are suddenly gone."""
        self._name = Path(command[0]).name
        self._log = log
        orders = {
            "command": command,
            "home": str(home),
            "environment": environment(),
            "account": account(),
            "signal": int(end_signal),
        }
        with log.open("ab") as file:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(GUARD), json.dumps(orders)],
                env=unmarked(),  # it ends the server by itself, and more gently
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,  # a Ctrl-C is for the tests; their fixtures then stop the server
            )
        assert self._guard.stdout is not None
        said = self._guard.stdout.readline()
        if not said:
            raise self.failed("did not start")
        self.pid = int(said)

    @property
    def is_alive(self) -> bool:
        return self._guard.poll() is None

    def wait_until(self, is_ready: Callable[[], bool]) -> None:
        """Look until it is ready; ServerFailed when it ends before, or takes too long."""
        deadline = monotonic() + START_SECONDS
        while not is_ready():
            if not self.is_alive:
                raise self.failed("ended while starting")
            if monotonic() > deadline:
                self.stop(signal.SIGKILL)
                raise self.failed(f"was not ready within {START_SECONDS:g} s")
            threading.Event().wait(LOOK_SECONDS)

    def stop(self, by: signal.Signals) -> None:
        """Send the signal and wait for the end. Harmless when it has ended already."""
        if self.is_alive:
            os.kill(self.pid, by)
        try:
            self._guard.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.kill(self.pid, signal.SIGKILL)
            raise self.failed(f"did not stop within {STOP_SECONDS:g} s of {by.name}") from None
        finally:
            self._let_go()

    def failed(self, what: str) -> ServerFailed:
        """What to raise: the failure, and the end of the log."""
        self._let_go()
        tail = self._log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]
        return ServerFailed(f"{self._name} {what}; {self._log} ends with:\n{tail}")

    def _let_go(self) -> None:
        for pipe in (self._guard.stdin, self._guard.stdout):
            assert pipe is not None
            pipe.close()
        self._guard.wait(STOP_SECONDS)


class Account(TypedDict, total=False):
    """As whom to run a program, in Popen's words; empty means as ourselves."""

    user: int
    group: int
    extra_groups: list[int]


def account() -> Account:
    """As whom a server runs: as ourselves, but never as root, which Postgres refuses."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = names.get("postgres") or names["nobody"]
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def environment() -> dict[str, str]:
    """What a server sees of ours: no PGPORT, no locale, nothing that differs between two machines."""
    return {"PATH": os.environ["PATH"], "LC_ALL": "C"}


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens. Somebody may take it before you do: try again then."""
    dice = SystemRandom()  # two workers of one test run share their seeds, and must not share their ports
    while True:
        port = dice.choice(PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
