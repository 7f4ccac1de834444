"""A server of the API as a process: started, killed, started again."""

import signal
import subprocess
import sys

from tests.servers.process import free_port
from tests.system.fleet import ROOT, Fleet, wait_until
from tests.system.history import now


class Server:
    """`windlass serve` on a fleet's store: killed, and started again at the same port."""

    def __init__(self, fleet: Fleet, *, keeper: bool = False) -> None:
        self.fleet = fleet
        self._options = [] if keeper else ["--no-keeper"]
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._lives = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Until it says that it serves."""
        self._lives += 1
        said = self.fleet.folder / f"server-{self._lives}.log"
        command = [
            sys.executable,
            "-m",
            "windlass._cli.main",
            "serve",
            "--port",
            str(self.port),
            *self._options,
        ]
        store = self.fleet.server or f"sqlite:///{self.fleet.folder.absolute()}/windlass.db"
        with said.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--store", store], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(lambda: b"serving" in said.read_bytes(), 20, what="the server serves", every=0.02)

    def kill(self) -> None:
        """The end without a warning."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(10)

    def kill_and_start(self) -> None:
        """Away for as long as it takes to start."""
        began = now()
        self.kill()
        self.start()
        self.fleet.note("restart", began=began)

    def close(self) -> None:
        """Ask it to stop; it does so in order."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            assert self._process.wait(15) in (0, -signal.SIGKILL)
        finally:
            self._process.kill()
