"""`windlass top`: frames as tables, as JSON, in a narrow terminal and over HTTP."""

import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.servers.process import free_port
from windlass import State
from windlass._cli.run.top import Frame, frame_lines
from windlass._documents.queues import QueueView
from windlass._observe.overview import Depth, Overview

from .conftest import Run
from .processes import until
from .test_output import in_terminal

Start = Callable[..., subprocess.Popen[str]]


def test_one_frame_has_queues_and_failures(
    run: Run, dead: Callable[..., list[str]], enqueue: Callable[..., str]
) -> None:
    dead("boom")
    enqueue("shop.welcome", '{"user_id": 1}')

    ran = run("top", "--once")

    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert "0 workers" in lines[0]
    assert "1 dead" in lines[0]
    assert "no keeper" in lines[0]
    titles = [line for line in lines if line in {"queues", "workers", "failures"}]
    assert titles == ["queues", "failures"]
    mail = next(line for line in lines if line.startswith("mail"))
    assert mail.split()[:3] == ["mail", "1", "0"]
    assert "no worker" in mail
    assert "Fatal: boom" in ran.out


def test_json_has_one_document_for_a_frame(run: Run, dead: Callable[..., list[str]]) -> None:
    dead("boom")
    row = run("top", "--once", "--json").row
    assert {"overview", "workers", "failures", "per_minute", "alerts", "missing_shards"} == {*row}
    queues = row["overview"]["queues"]
    assert [queue["counts"]["dead"] for queue in queues if queue["queue"] == "default"] == [1]
    assert row["failures"][0]["error"]["message"] == "boom"


def test_without_a_store_it_fails(run: Run) -> None:
    assert run("top", "--once").code == 3


@pytest.mark.parametrize("columns", [80, 50])
@pytest.mark.system
def test_a_frame_fits_the_terminal(start: Start, dead: Callable[..., list[str]], columns: int) -> None:
    dead("a long story about what went wrong " * 5)
    shown = in_terminal(start, "top", "--once", "--app", "shop:app", columns=columns)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert {"queues", "failures"} <= {*lines}
    assert max(map(cell_len, lines)) <= columns


def test_a_low_terminal_shows_the_busiest_first_and_how_many_are_left_out() -> None:
    names = tuple(f"q{number:02}" for number in range(30))
    depths = tuple(
        Depth(queue=name, type="t", state=State.READY, number=2 if name == "q17" else 1) for name in names
    )
    overview = Overview(at=datetime.now(UTC), depths=depths, queues=names)
    frame = Frame(overview=QueueView(overview=overview, settings={}).overview_document())

    lines = [line.plain for line in frame_lines(frame, 80, 12)]

    title = lines.index("queues")
    assert lines[title + 2].startswith("q17")
    assert lines[-1] == f"… {30 - (len(lines) - title - 3)} more"
    for height in range(8, 50):
        assert len(frame_lines(frame, 80, height)) <= height


@pytest.mark.system
def test_it_is_live_in_a_terminal_and_ctrl_c_ends_it(start: Start, dead: Callable[..., list[str]]) -> None:
    dead("boom")
    ours, theirs = pty.openpty()
    top = start(
        "top",
        "--interval",
        "0.2s",
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(theirs)
    shown = b""
    while shown.count(b"failures") < 3:  # it was drawn three times
        shown += os.read(ours, 65536)
    top.send_signal(signal.SIGINT)
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:  # it has closed its side
        pass
    os.close(ours)
    assert top.wait(30) == 0
    assert shown.count(b"\x1b[?1049h") == shown.count(b"\x1b[?1049l") == 1  # the screen is as it was before
    assert b"Traceback" not in shown


@pytest.mark.system
def test_it_shows_a_store_over_http(
    run: Run, start: Start, dead: Callable[..., list[str]], folder: Path
) -> None:
    dead("boom")
    port = free_port()
    server = start("serve", "--port", str(port), "--no-dashboard")
    until(server, "serving")
    row = json.loads(run("top", "--once", "--json", "--store", f"http://127.0.0.1:{port}").out)
    assert row["failures"][0]["error"]["message"] == "boom"
    assert any(queue["queue"] == "default" for queue in row["overview"]["queues"])
    server.terminate()
    server.communicate(timeout=50)
