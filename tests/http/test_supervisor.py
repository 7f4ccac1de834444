"""The supervisor of server processes, with programs that are no servers."""

import asyncio
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loops.workers import eventually
from windlass._http.server import supervisor
from windlass._http.server.supervisor import Supervisor, restart_pause
from windlass.errors import Refused

pytestmark = pytest.mark.system

PROGRAM = """
import socket, sys
control = socket.socket(fileno=int(sys.argv[1]))
orders = control.makefile("rb")
number = int(orders.readline())
{does}
"""
SERVES = "control.send(b'R')\nwhile orders.read(1) not in (b's', b'n', b''): pass"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def supervise(listener: socket.socket, does: str, number: int = 2) -> Supervisor:
    command = [sys.executable, "-c", PROGRAM.format(does=does)]
    return Supervisor(number, command, lambda one: b"%d\n" % one, listener)


def test_pauses_grow_to_a_bound() -> None:
    pauses = [restart_pause(failures) for failures in range(1, 40)]
    assert pauses[0] == 0
    assert pauses == sorted(pauses)
    assert pauses[1] == 1
    assert pauses[-1] == 10


async def test_a_process_that_ends_before_it_is_ready_ends_all(listener: socket.socket) -> None:
    running = supervise(listener, f"if number == 2: sys.exit(3)\n{SERVES}")
    with pytest.raises(
        Refused, match=r"server process 2 \(pid \d+\) exited with status 3 before it was ready"
    ):
        await running.run(lambda: pytest.fail("it was never ready"))


async def test_it_starts_when_all_are_ready_and_stops_all(listener: socket.socket) -> None:
    running, started = supervise(listener, SERVES, 3), asyncio.Event()
    ran = asyncio.ensure_future(running.run(started.set))
    await asyncio.wait_for(started.wait(), 20)
    running.stop()
    await asyncio.wait_for(ran, 20)
    assert listener.fileno() == -1


@pytest.mark.parametrize(
    ("does", "words"),
    [
        ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL; restarting it in 0 s"),
        ("control.close(); sys.exit(5)", "exited with status 5; restarting it in 0 s"),
        ("import time; time.sleep(60)", "gave no sign of life for 1 s and was killed; restarting it in 0 s"),
    ],
)
async def test_a_process_that_dies_or_stalls_is_replaced(
    listener: socket.socket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    does: str,
    words: str,
) -> None:
    monkeypatch.setattr(supervisor, "STALL_SECONDS", 1)
    go, mark = tmp_path / "go", tmp_path / "failed"
    once = f"""
import pathlib, threading
def beat():
    while True:
        control.send(b'.')
        threading.Event().wait(0.2)
control.send(b'R')
mark = pathlib.Path({str(mark)!r})
if number == 1 and not mark.exists():
    mark.touch()
    while not pathlib.Path({str(go)!r}).exists():
        control.send(b'.')
        threading.Event().wait(0.1)
    {does}
threading.Thread(target=beat, daemon=True).start()
while orders.read(1) not in (b's', b'n', b''): pass
"""
    running, started = supervise(listener, once), asyncio.Event()
    ran = asyncio.ensure_future(running.run(started.set))
    await asyncio.wait_for(started.wait(), 20)
    go.touch()
    await eventually(lambda: words in caplog.text)
    running.stop()
    await asyncio.wait_for(ran, 20)
    assert caplog.text.count("restarting") == 1


async def test_the_second_stop_ends_a_process_that_does_not_obey(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_STOP_NOW_SECONDS", 0.1)
    deaf = "import time\ncontrol.send(b'R')\ntime.sleep(60)"
    running, started = supervise(listener, deaf), asyncio.Event()
    ran = asyncio.ensure_future(running.run(started.set))
    await asyncio.wait_for(started.wait(), 20)
    running.stop()
    running.stop()
    await asyncio.wait_for(ran, 4)
