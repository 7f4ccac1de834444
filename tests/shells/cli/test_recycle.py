"""`windlass worker --max-tasks` and `--max-memory`."""

import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest

from windlass._cli.worker.recycle import Recycling, memory_in_use

from .conftest import SHOP, Run
from .processes import until

Start = Callable[..., subprocess.Popen[str]]


def test_the_reason_names_the_limit_and_what_was_reached() -> None:
    both = Recycling(max_tasks=1000, max_memory=500_000_000)
    assert both.reason(999, lambda: 499_000_000) is None
    assert both.reason(1000, lambda: 0) == "it has run 1,000 tasks (max_tasks is 1,000)"
    words = "it uses 512.0 MB of memory (max_memory is 500.0 MB)"
    assert both.reason(1, lambda: 512_000_000) == words
    assert both.reason(0, lambda: 512_000_000) is None  # it would never run a task
    assert Recycling().reason(10**9, lambda: 10**12) is None


def test_memory_in_use_grows_with_what_is_used() -> None:
    before = memory_in_use()
    ballast = bytearray(b"x" * 64_000_000)
    assert memory_in_use() > before + 32_000_000
    assert len(ballast) == 64_000_000


@pytest.mark.parametrize("option", [("--max-tasks", "0"), ("--max-memory", "much"), ("--max-memory", "0")])
def test_an_invalid_limit_is_refused(run: Run, option: tuple[str, str]) -> None:
    assert run("worker", "shop:app", *option).code == 2


@pytest.mark.system
@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--max-tasks", "2"), "stopping: it has run 2 tasks (max_tasks is 2)"),
        (("--max-memory", "1MB"), "of memory (max_memory is 1.0 MB)"),
    ],
)
def test_a_worker_that_is_not_supervised_drains_and_exits(
    run: Run, start: Start, enqueue: Callable[..., str], folder: Path, option: tuple[str, str], words: str
) -> None:
    ids = [enqueue("shop.welcome", '{"user_id": 1}') for _ in range(2)]

    worker = start("worker", "shop:app", *option)
    _, err = worker.communicate(timeout=50)

    assert worker.returncode == 0, err
    assert words in err
    states = {row["id"]: row["state"] for row in run("tasks", "list", "--json").rows}
    assert states == dict.fromkeys(ids, "completed")


GATE = """

@app.task(name="shop.gate")
async def gate(name: str, seconds: float) -> None:
    import asyncio
    from pathlib import Path

    Path(f"{name}-began").touch()
    while not Path(f"{name}-opened").exists():
        await asyncio.sleep(0.02)
    await asyncio.sleep(seconds)
"""


@pytest.mark.system
@pytest.mark.parametrize("signal_first", [True, False])
def test_recycling_and_the_first_signal_together_cut_no_task_short(
    run: Run, start: Start, enqueue: Callable[..., str], folder: Path, signal_first: bool
) -> None:
    (folder / "shop.py").write_text(SHOP + GATE)
    enqueue("shop.gate", '{"name": "quick", "seconds": 0}')
    slow = enqueue("shop.gate", '{"name": "slow", "seconds": 1}')  # recycling is checked every 0.25 s
    worker = start("worker", "shop:app", "--max-tasks", "1", "--slots", "2", "--grace", "60s")
    until(worker, "is ready")
    _wait_for(folder / "quick-began", folder / "slow-began")

    if signal_first:
        worker.send_signal(signal.SIGTERM)
        until(worker, "stopping: waiting up to 60 s for 2 running tasks")
        (folder / "quick-opened").touch()
    else:
        (folder / "quick-opened").touch()
        until(worker, "stopping: it has run 1 task")
        until(worker, "stopping: waiting up to 60 s for 1 running task")
        worker.send_signal(signal.SIGTERM)
    (folder / "slow-opened").touch()
    _, err = worker.communicate(timeout=50)

    assert worker.returncode == 0, err
    assert run("tasks", "show", slow, "--json").row["state"] == "completed"


STUCK = """

@app.task(name="shop.stuck", timeout=0.2, on_stuck="replace", max_attempts=1)
def stuck() -> None:
    import threading

    threading.Event().wait(60)
"""
WORN_OUT = "1 replaced handler still runs, as many as there are slots, and another handler is stuck"


@pytest.mark.system
def test_a_worker_whose_slots_are_worn_out_by_stuck_handlers_exits(
    run: Run, start: Start, enqueue: Callable[..., str], folder: Path
) -> None:
    (folder / "shop.py").write_text(SHOP + STUCK)
    stuck = enqueue("shop.stuck", "{}")
    welcome = enqueue("shop.welcome", '{"user_id": 1}')

    worker = start("worker", "shop:app", "--slots", "1", "--grace", "1s")
    until(worker, "completed")
    enqueue("shop.stuck", "{}")
    _, err = worker.communicate(timeout=50)

    assert worker.returncode == 0, err
    assert f"{WORN_OUT}: it and others that overrun" in err
    assert f"stopping: {WORN_OUT}" in err
    assert "Stack (innermost call last):" in err
    assert run("tasks", "show", stuck, "--json").row["error"]["type"] == "TimedOut"
    assert run("tasks", "show", welcome, "--json").row["state"] == "completed"


@pytest.mark.system
def test_a_supervised_worker_whose_slots_are_worn_out_is_replaced(
    run: Run, start: Start, enqueue: Callable[..., str], folder: Path
) -> None:
    (folder / "shop.py").write_text(SHOP + STUCK)
    for _ in range(2):
        enqueue("shop.stuck", "{}")

    worker = start("worker", "shop:app", "--slots", "1", "--workers", "1", "--heartbeat", "200ms")
    until(worker, WORN_OUT)
    lines = until(worker, "has taken over from")
    welcome = enqueue("shop.welcome", '{"user_id": 1}')
    until(worker, "completed")
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=50)

    assert any(f"asking to be replaced: {WORN_OUT}" in line for line in lines)
    assert run("tasks", "show", welcome, "--json").row["state"] == "completed"


def _wait_for(*files: Path) -> None:
    deadline = monotonic() + 30
    while not all(file.exists() for file in files):
        assert monotonic() < deadline
        threading.Event().wait(0.02)
