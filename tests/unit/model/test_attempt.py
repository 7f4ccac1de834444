"""Which settlements are recorded as attempts."""

from datetime import timedelta

import pytest

from windlass._model.attempt import is_recorded
from windlass._model.lease import Lease
from windlass._model.task import Error
from windlass._model.verdict import Bury, Postpone, Reason, Settlement, Verdict

LATER = Postpone(delay=timedelta(seconds=15), reason=Reason.SNOOZE)


@pytest.mark.parametrize(
    ("verdict", "outcome", "worth"),
    [
        (LATER, "snoozed", True),
        (LATER, "unhandled", False),
        (Bury(error=Error(type="Unhandled", message="nobody")), "unhandled", True),
    ],
)
def test_putting_off_what_nobody_here_handles_is_worth_none(
    verdict: Verdict, outcome: str, *, worth: bool
) -> None:
    assert is_recorded(Settlement(lease=Lease("t", 1), verdict=verdict, outcome=outcome)) is worth
