"""`windlass keeper`: leads, does its chores, and makes room for another when it stops."""

import signal
from collections.abc import Callable

import pytest

from .conftest import Run
from .running import Start, until

SIGNALS = [signal.SIGTERM, signal.SIGINT]


@pytest.mark.system
@pytest.mark.parametrize("number", SIGNALS)
def test_it_promotes_what_is_due_until_it_is_told_to_stop(
    run: Run, start: Start, enqueue: Callable[..., str], number: signal.Signals
) -> None:
    made = enqueue("shop.welcome", '{"user_id": 1}', "--delay", "50ms")
    assert run("tasks", "show", made, "--json").row["state"] == "scheduled"
    keeper = start("keeper")
    until(keeper, "keeping house for sqlite:///windlass.db")
    until(keeper, "leads")

    while run("tasks", "show", made, "--json").row["state"] != "ready":  # pytest's own time limit ends it
        pass
    keeper.send_signal(number)
    out, rest = keeper.communicate(timeout=20)

    assert keeper.returncode == 0, rest
    assert out == ""
    assert "the keeper has stopped" in rest
    assert "Traceback" not in rest
    assert run("workers", "list", "--json").rows == []


@pytest.mark.system
def test_the_next_one_leads_as_soon_as_it_has_resigned(start: Start) -> None:
    """Not ten seconds later, when its lead would have run out."""
    first = start("keeper")
    until(first, "leads")
    first.send_signal(signal.SIGTERM)
    assert first.communicate(timeout=20) is not None

    second = start("keeper")
    lines = until(second, "leads")
    second.send_signal(signal.SIGTERM)
    _, rest = second.communicate(timeout=20)

    assert first.returncode == second.returncode == 0, rest
    told = [line for line in lines if "keeping house" in line or "leads" in line]
    assert len(told) == 2


@pytest.mark.system
def test_several_signals_stop_it_as_one_does(start: Start) -> None:
    keeper = start("keeper")
    until(keeper, "leads")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
        keeper.send_signal(number)
    _, rest = keeper.communicate(timeout=20)
    assert keeper.returncode == 0, rest
    assert "Traceback" not in rest


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--store", "memory://"), 2, "cannot be seen from here"),
        (("--store", "sqlite:///nowhere/windlass.db"), 4, "nowhere"),
        (("--store", "what://"), 2, "what://"),
        (("--app", "nothing:app"), 2, "nothing"),
        (("--log-level", "loud"), 2, "--log-level"),
    ],
)
def test_where_it_cannot_keep_house_it_says_so(
    run: Run, arguments: tuple[str, ...], code: int, message: str
) -> None:
    ran = run("keeper", *arguments)
    assert ran.code == code, ran.err
    assert message in ran.err
    assert "Traceback" not in ran.err
