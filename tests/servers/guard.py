"""Run one server for as long as the process that asked for it lives; a script, run by `process.py`.

The asker holds the other end of our standard input. When the asker ends, even by kill -9, so does the server.
A death signal from the kernel would be less code, but it is lost when the server changes its user, and is
bound to the thread that asked.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress

LOOK_SECONDS = 1.0
PATIENCE_SECONDS = 10.0


def main() -> int:
    """Start the server, say its process id, and stay until it is gone."""
    orders = json.loads(sys.argv[1])
    server = subprocess.Popen(
        orders["command"],
        cwd=orders["home"],
        env=orders["environment"],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,  # the log: our own output is only for the asker
        start_new_session=True,
        **orders["account"],
    )
    watch = threading.Thread(target=end_with_asker, args=(server, orders), daemon=True)
    watch.start()
    with suppress(BrokenPipeError):  # the asker is gone already; the watch sees to it
        os.write(sys.stdout.fileno(), f"{server.pid}\n".encode())
    code = server.wait()
    if is_alone():
        watch.join(PATIENCE_SECONDS)
        shutil.rmtree(orders["home"], ignore_errors=True)
    return code


def end_with_asker(server: subprocess.Popen[bytes], orders: dict[str, int]) -> None:
    """Wait until nobody needs the server, then end it: at first as it would like to be ended."""
    asker = os.getppid()
    # A fork of the asker may hold its end of the pipe open, hence the second look.
    while os.getppid() == asker and not is_alone():
        select.select([sys.stdin], [], [], LOOK_SECONDS)
    server.send_signal(orders["signal"])
    with suppress(subprocess.TimeoutExpired):
        server.wait(PATIENCE_SECONDS)
        return
    os.killpg(server.pid, signal.SIGKILL)


def is_alone() -> bool:
    """Whether the asker is gone: nothing is ever written to us, so that readable means the end."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


if __name__ == "__main__":
    sys.exit(main())
