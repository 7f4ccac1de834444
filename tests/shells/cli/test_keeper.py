"""`windlass keeper`: leads, runs its chores, and resigns when it stops."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Run
from .processes import Start, until

SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.mark.system
@pytest.mark.parametrize("number", SIGNALS)
def test_it_promotes_due_tasks_until_it_is_stopped(
    run: Run, start: Start, enqueue: Callable[..., str], number: signal.Signals
) -> None:
    made = enqueue("shop.welcome", '{"user_id": 1}', "--delay", "50ms")
    assert run("tasks", "show", made, "--json").row["state"] == "scheduled"
    keeper = start("keeper")
    until(keeper, f"keeper started for sqlite:///{Path.cwd()}/windlass.db")
    until(keeper, " leads")

    while run("tasks", "show", made, "--json").row["state"] != "ready":  # pytest's own time limit ends it
        pass
    keeper.send_signal(number)
    out, rest = keeper.communicate(timeout=20)

    assert keeper.returncode == 0, rest
    assert out == ""
    assert "keeper stopped" in rest
    assert "Traceback" not in rest
    assert run("workers", "list", "--json").rows == []


@pytest.mark.system
def test_another_keeper_leads_as_soon_as_it_has_resigned(start: Start) -> None:
    """It does not wait ten seconds for the lead to expire."""
    first = start("keeper")
    until(first, " leads")
    first.send_signal(signal.SIGTERM)
    assert first.communicate(timeout=20) is not None

    second = start("keeper")
    lines = until(second, " leads")
    second.send_signal(signal.SIGTERM)
    _, rest = second.communicate(timeout=20)

    assert first.returncode == second.returncode == 0, rest
    events = [line for line in lines if "keeper started" in line or "leads" in line]
    assert len(events) == 2


@pytest.mark.system
def test_repeated_signals_stop_it_cleanly(start: Start) -> None:
    keeper = start("keeper")
    until(keeper, " leads")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
        keeper.send_signal(number)
    _, rest = keeper.communicate(timeout=20)
    assert keeper.returncode == 0, rest
    assert "Traceback" not in rest


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--store", "memory://"), 2, "only inside the process that made it"),
        (("--store", "sqlite:///nowhere/windlass.db"), 4, "nowhere"),
        (("--store", "what://"), 2, "what://"),
        (("--app", "nothing:app"), 2, "nothing"),
        (("--log-level", "loud"), 2, "--log-level"),
    ],
)
def test_an_unusable_store_is_refused(run: Run, arguments: tuple[str, ...], code: int, message: str) -> None:
    ran = run("keeper", *arguments)
    assert ran.code == code, ran.err
    assert message in ran.err
    assert "Traceback" not in ran.err
