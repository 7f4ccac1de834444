"""Signals: durations in any notation."""

from datetime import timedelta

import pytest

from windlass.errors import WindlassError
from windlass.signals import Fatal, Retry, Signal, Snooze, Stop


@pytest.mark.parametrize("after", [90, 90.0, timedelta(seconds=90)])
def test_a_delay_is_a_number_of_seconds_or_a_timedelta(after: timedelta | float) -> None:
    assert Retry(after=after).after == timedelta(seconds=90)
    assert Snooze(after).delay == timedelta(seconds=90)


def test_a_retry_without_a_delay_leaves_it_to_the_backoff() -> None:
    assert Retry("the other side is down").after is None


def test_a_retry_says_why() -> None:
    assert str(Retry("the other side is down")) == "the other side is down"
    assert str(Retry())


@pytest.mark.parametrize("signal", [Retry, Snooze, Fatal, Stop])
def test_a_signal_is_no_error_of_ours(signal: type[Signal]) -> None:
    assert issubclass(signal, Signal)
    assert not issubclass(signal, WindlassError)
