"""Testing tasks: the real engine on a memory store with a manual clock.

python -m pytest test_reminders.py
"""

from collections.abc import Callable

import pytest

from windlass import INJECTED, App, Backoff, Context, Snooze, State
from windlass.testing.harness import Harness

app = App("sqlite:///reminders.db")
letters: list[str] = []


@app.task(backoff=Backoff(base=60, jitter=0, max_attempts=3))
def remind(name: str, *, ctx: Context = INJECTED) -> str:
    if name == "nobody":
        raise LookupError("no such reader")
    if name == "asleep" and not letters:
        letters.append("a knock on the door")
        raise Snooze(3600)
    letters.append(f"dear {name}")
    return f"sent at attempt {ctx.attempt}"


@pytest.fixture
def harness(windlass_harness: Callable[[App], Harness]) -> Harness:
    letters.clear()
    return windlass_harness(app)


def test_a_reminder_is_not_sent_before_its_time(harness: Harness) -> None:
    remind.using(delay="7d").enqueue(name="Ada")

    harness.advance("6d")
    harness.run_until_idle()
    assert letters == []

    harness.advance("1d")
    harness.run_until_idle()
    assert letters == ["dear Ada"]


def test_a_snooze_costs_no_attempt(harness: Harness) -> None:
    handle = remind.enqueue(name="asleep")

    harness.run_until_idle()
    harness.advance("1h")
    harness.run_until_idle()

    assert handle.result() == "sent at attempt 1"


def test_an_error_is_raised_where_the_test_can_see_it(harness: Harness) -> None:
    remind.enqueue(name="nobody")

    with pytest.raises(LookupError, match="no such reader"):
        harness.run_until_idle()


def test_nobody_is_given_up_after_three_attempts(harness: Harness) -> None:
    remind.enqueue(name="nobody")

    for _ in range(3):
        harness.run_until_idle(raise_errors=False)
        harness.advance("5m")

    (dead,) = harness.tasks(remind, State.DEAD)
    assert dead.attempt == 3
