"""Outcomes: the name of each in attempt records."""

from datetime import timedelta

import pytest

from windlass._model.outcome import (
    Crashed,
    Failed,
    Interrupted,
    Outcome,
    Returned,
    Snoozed,
    Stopped,
    TimedOut,
    Unhandled,
    name_of,
)
from windlass._model.task import Error

ERROR = Error(type="ValueError", message="no")


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        (Returned(), "returned"),
        (Failed(error=ERROR), "failed"),
        (Snoozed(timedelta(1)), "snoozed"),
        (TimedOut(timedelta(1)), "timedout"),
        (Interrupted(), "interrupted"),
        (Stopped(), "stopped"),
        (Crashed(error=ERROR), "crashed"),
        (Unhandled(timedelta(1)), "unhandled"),
    ],
)
def test_an_outcome_is_called_by_its_name(outcome: Outcome, name: str) -> None:
    assert name_of(outcome) == name
