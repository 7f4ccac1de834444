"""The supervisor, with programs that do nothing but report and obey."""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.loops.workers import eventually
from tests.system.supervised import has_ended
from windlass._supervisor import supervisor
from windlass._supervisor.supervisor import Kind, Supervisor, restart_pause
from windlass.errors import Refused

pytestmark = pytest.mark.system

LONG = 30.0  # seconds

PROGRAM = """
import os, pathlib, socket, sys, threading, time
control = socket.socket(fileno=int(sys.argv[1]))
orders = control.makefile("rb")
number, seat = map(int, orders.readline().split())
here = pathlib.Path({folder!r})
def log(what):
    with (here / "log").open("a") as file:
        file.write(f"{{what}} {{number}} {{seat}} {{os.getpid()}}\\n")
def beat():
    while True:
        control.send(b".")
        threading.Event().wait(0.2)
def is_first(what):
    try:
        (here / f"{{what}}-{{number}}").touch(exist_ok=False)
        return True
    except FileExistsError:
        return False
def wait_for(name):
    while not (here / name).exists():
        control.send(b".")
        threading.Event().wait(0.05)
def serve():
    log("ready")
    control.send(b"R")
    threading.Thread(target=beat, daemon=True).start()
    while orders.read(1) not in (b"s", b"n", b""): pass
    log("stopped")
{does}
"""


class Running:
    """A supervisor that runs, and what its processes have written down."""

    def __init__(self, folder: Path, does: str, number: int, **kind: object) -> None:
        self.folder = folder
        self.command = [sys.executable, "-c", PROGRAM.format(folder=str(folder), does=does)]
        settings: Callable[[int, int], bytes] = lambda one, seat: b"%d %d\n" % (one, seat)  # noqa: E731
        known = {"stall_seconds": LONG, **kind}
        logger = logging.getLogger("windlass.test")
        self.supervisor = Supervisor(
            number,
            Kind(noun="worker", command=self.command, settings=settings, logger=logger, **known),  # type: ignore[arg-type]
        )
        self.started = asyncio.Event()
        self.ran = asyncio.ensure_future(self.supervisor.run(self.started.set))

    @property
    def log(self) -> list[tuple[str, int, int, int]]:
        """What happened to which number, seat and process id, in order."""
        file = self.folder / "log"
        lines = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return [(what, int(number), int(seat), int(pid)) for what, number, seat, pid in lines]

    def times(self, what: str) -> int:
        return sum(line[0] == what for line in self.log)

    async def until_started(self) -> None:
        await asyncio.wait_for(self.started.wait(), LONG)

    async def stop(self) -> None:
        self.supervisor.stop()
        await asyncio.wait_for(self.ran, LONG)


@pytest.fixture
async def supervise(tmp_path: Path) -> AsyncIterator[Callable[..., Running]]:
    made: list[Running] = []

    def begin(does: str = "serve()", number: int = 2, **kind: object) -> Running:
        made.append(Running(tmp_path, does, number, **kind))
        return made[-1]

    yield begin
    for one in made:
        one.ran.cancel()
        await asyncio.wait([one.ran])


Supervise = Callable[..., Running]


def test_pauses_grow_to_a_bound() -> None:
    pauses = [restart_pause(failures) for failures in range(1, 40)]
    assert pauses[0] == 0
    assert pauses == sorted(pauses)
    assert pauses[1] == 1
    assert pauses[-1] == 10


async def test_a_process_that_ends_before_it_is_ready_ends_all(supervise: Supervise) -> None:
    running = supervise("if number == 2: wait_for('go'); sys.exit(3)\nserve()")
    await eventually(lambda: running.times("ready") == 1, within=LONG)
    (running.folder / "go").touch()
    with pytest.raises(Refused, match=r"worker 2 \(pid \d+\) exited with status 3 before it was ready"):
        await asyncio.wait_for(running.ran, LONG)
    assert not running.started.is_set()
    assert running.times("stopped") == 1  # the other was stopped, not killed


async def test_an_error_that_all_would_have_is_reported_by_the_first_alone(supervise: Supervise) -> None:
    running = supervise("log('began'); sys.exit(2)", 4)
    with pytest.raises(Refused, match="worker 1 "):
        await asyncio.wait_for(running.ran, LONG)
    assert running.times("began") == 1


async def test_it_starts_when_all_are_ready_and_stops_all(supervise: Supervise) -> None:
    running = supervise(number=3)
    await running.until_started()
    assert running.supervisor.ready == 3
    await running.stop()
    assert running.times("stopped") == 3
    assert running.supervisor.ready == 0


@pytest.mark.parametrize(
    ("does", "words"),
    [
        ("os.kill(os.getpid(), 9)", "was killed by SIGKILL; restarting it in 0 s"),
        ("os.kill(os.getpid(), 40)", "exited with status -40; restarting it in 0 s"),  # a real-time signal
        ("control.close(); sys.exit(5)", "exited with status 5; restarting it in 0 s"),
        ("time.sleep(60)", "s and was killed; restarting it in 0 s"),
    ],
)
async def test_a_process_that_dies_or_stalls_is_replaced(
    supervise: Supervise, caplog: pytest.LogCaptureFixture, does: str, words: str
) -> None:
    first = f"if number == 1 and is_first('start'):\n    control.send(b'R'); wait_for('go'); {does}\nserve()"
    running = supervise(first, stall_seconds=3)
    await running.until_started()
    (running.folder / "go").touch()
    await eventually(lambda: words in caplog.text, within=LONG)
    await eventually(lambda: running.times("ready") == 2, within=LONG)
    await running.stop()
    assert caplog.text.count("restarting") == 1


async def test_a_process_that_cannot_be_started_is_tried_again_after_growing_pauses(
    supervise: Supervise, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_STEADY_SECONDS", 0.0)  # the process has run for long enough
    running = supervise(number=1)
    await running.until_started()
    python, running.command[0] = running.command[0], str(running.folder / "missing")
    os.kill(running.log[0][3], 9)
    await eventually(lambda: "restarting it in 1 s" in caplog.text, within=LONG)
    assert caplog.text.count("restarting it in 0 s") == 1
    running.command[0] = python
    await eventually(lambda: running.supervisor.ready == 1, within=LONG)
    await running.stop()


async def test_the_second_stop_ends_a_process_that_does_not_obey(supervise: Supervise) -> None:
    deaf = "control.send(b'R')\nlog('ready')\ntime.sleep(600)"
    running = supervise(deaf, cut_seconds=0.1)
    await running.until_started()
    running.supervisor.stop()
    await running.stop()
    assert all(has_ended(pid) for *_, pid in running.log)


async def test_each_is_stopped_when_the_one_that_takes_over_is_ready(supervise: Supervise) -> None:
    running = supervise(number=3)
    await running.until_started()
    before = {pid for *_, pid in running.log}
    running.supervisor.renew_all()
    await eventually(lambda: running.times("stopped") == 3, within=LONG)
    renewed = [line[:3] for line in running.log[3:]]
    each = [[("ready", number, number + 3), ("stopped", number, number)] for number in (1, 2, 3)]
    places = [line[1] for line in renewed[::2]]
    assert renewed == [line for number in places for line in each[number - 1]]
    assert sorted(places) == [1, 2, 3]
    await eventually(lambda: running.supervisor.ready == 3, within=LONG)

    running.supervisor.renew_all()  # and back to the first seats
    await eventually(lambda: running.times("stopped") == 6, within=LONG)
    assert {seat for what, _, seat, _ in running.log[-6:] if what == "ready"} == {1, 2, 3}
    await running.stop()
    assert all(has_ended(pid) for pid in before)


async def test_if_the_next_process_does_not_start_the_old_ones_keep_running(
    supervise: Supervise, caplog: pytest.LogCaptureFixture
) -> None:
    running = supervise("if (here / 'broken').exists(): log('failed'); sys.exit(2)\nserve()", 3)
    await running.until_started()
    (running.folder / "broken").touch()
    running.supervisor.renew_all()
    await eventually(lambda: "keeps running" in caplog.text, within=LONG)
    (running.folder / "broken").unlink()
    running.supervisor.renew_all()
    await eventually(lambda: running.times("stopped") == 3, within=LONG)
    assert running.times("failed") == 1  # the others were not tried
    assert running.times("ready") == 6
    await running.stop()


async def test_a_process_that_asks_for_it_is_replaced(
    supervise: Supervise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_LONGEST_PAUSE", 0.1)
    asks = "if is_first('ask'): control.send(b'r')\nelif is_first('fail'): sys.exit(1)\nserve()"
    running = supervise(asks, 2)
    await running.until_started()
    # The first that was to take over ended; the request is repeated.
    await eventually(lambda: running.times("stopped") == 2, within=LONG)
    assert running.times("ready") == 4
    await running.stop()


async def test_a_process_that_dies_while_it_is_replaced_leaves_one(supervise: Supervise) -> None:
    slow = "if not is_first('start'): log('began'); wait_for('go')\nserve()"
    running = supervise(slow, 1)
    await running.until_started()
    running.supervisor.renew_all()
    await eventually(lambda: running.times("began") == 1, within=LONG)
    os.kill(running.log[0][3], 9)
    await eventually(lambda: has_ended(running.log[0][3]), within=LONG)
    (running.folder / "go").touch()
    await eventually(lambda: running.supervisor.ready == 1, within=LONG)
    await running.stop()
    assert running.times("ready") == 2
    assert running.times("stopped") == 1


async def test_a_process_that_dies_while_its_predecessor_finishes_is_restarted(supervise: Supervise) -> None:
    does = """
first = is_first("start")
def die():
    wait_for("die")
    os._exit(1)
if not first and is_first("take-over"): threading.Thread(target=die, daemon=True).start()
serve()
if first: wait_for("go"); log("gone")
"""
    running = supervise(does, 1)
    await running.until_started()
    running.supervisor.renew_all()
    await eventually(lambda: running.times("stopped") == 1, within=LONG)
    (running.folder / "die").touch()
    await eventually(lambda: running.supervisor.ready == 1 and running.times("ready") == 3, within=LONG)
    assert not has_ended(running.log[0][3])

    running.supervisor.renew_all()  # waits for the first process, whose seat the next one takes
    (running.folder / "go").touch()
    await eventually(lambda: running.times("stopped") == 2, within=LONG)
    await running.stop()
    assert [line[:3] for line in running.log] == [
        ("ready", 1, 1), ("ready", 1, 2), ("stopped", 1, 1), ("ready", 1, 2), ("gone", 1, 1),
        ("ready", 1, 1), ("stopped", 1, 2), ("stopped", 1, 1),
    ]  # fmt: skip


async def test_a_process_that_is_not_ready_in_time_does_not_take_over(
    supervise: Supervise, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = supervise("if (here / 'hang').exists(): beat()\nserve()", 1)
    await running.until_started()
    (running.folder / "hang").touch()
    with monkeypatch.context() as patch:
        patch.setattr(supervisor, "_TAKE_OVER_SECONDS", 1.0)
        running.supervisor.renew_all()
        await eventually(lambda: "keeps running" in caplog.text, within=LONG)
    assert "was not ready within 1 s; killing it" in caplog.text
    assert running.supervisor.ready == 1
    (running.folder / "hang").unlink()
    running.supervisor.renew_all()
    await eventually(lambda: running.times("stopped") == 1, within=LONG)
    await running.stop()
    assert running.times("ready") == 2


async def test_stopping_amid_a_renewal_stops_both(supervise: Supervise) -> None:
    running = supervise("if not is_first('start'): log('began'); beat()\nserve()", 1, cut_seconds=0.1)
    await running.until_started()
    running.supervisor.renew_all()
    await eventually(lambda: running.times("began") == 1, within=LONG)
    running.supervisor.stop()
    await eventually(lambda: running.times("stopped") == 1, within=LONG)
    await running.stop()
    assert all(has_ended(pid) for *_, pid in running.log)


async def test_processes_that_have_done_their_work_are_not_restarted(
    supervise: Supervise, caplog: pytest.LogCaptureFixture
) -> None:
    once = "if number == 2 and is_first('die'): control.send(b'R'); sys.exit(1)\nlog('done')"
    running = supervise(once, 3, until_done=True)
    await asyncio.wait_for(running.ran, LONG)
    assert sorted(number for what, number, *_ in running.log if what == "done") == [1, 2, 3]
    assert caplog.text.count("restarting") == 1
