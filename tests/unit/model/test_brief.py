"""What the repr of a record shows: names, numbers and instants, and no content."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import Raw, Struct

from tests.unit.samples import ERROR, running
from windlass._model.brief import Brief, Secret, without_frames
from windlass._model.state import State

CANARY = "7f3asings"


class Record(Brief, Struct):
    """A record with a field that is a name, and one that is not."""

    id: str = ""
    text: Any = None


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (CANARY, "text=…"),
        (CANARY.encode(), "text=<9 bytes>"),
        (bytearray(b"12"), "text=<2 bytes>"),
        (Raw(b'{"a":1}'), "text=<7 bytes>"),
        ({CANARY: CANARY}, "text=<1 items>"),
        ([CANARY, 3, [CANARY]], "text=[…, 3, […]]"),
        (ValueError(CANARY), "text=<ValueError>"),
        (State.DEAD, "text=DEAD"),
        (True, "text=True"),
        (datetime(2026, 1, 1, tzinfo=UTC), "text=2026-01-01 00:00:00+00:00"),
        (timedelta(seconds=3), "text=0:00:03"),
        (Record(id="inner", text=CANARY), "text=Record(id='inner', text=…)"),
    ],
)
def test_content_is_left_out(value: object, shown: str) -> None:
    assert repr(Record(id="a", text=value)) == f"Record(id='a', {shown})"


def test_names_are_shown_and_what_is_not_set_is_not() -> None:
    assert repr(Record(id="a")) == "Record(id='a')"
    assert repr(Record()) == "Record()"


def test_a_task_is_shown_by_what_one_looks_for() -> None:
    task = running(id="t1", payload=b'{"card":"1"}', result=b"null", error=ERROR)

    assert repr(task) == (
        "Task(id='t1', type='mail.send', queue='mail', tenant='acme', state=RUNNING, attempt=1, "
        "payload=<12 bytes>, result=<4 bytes>, error=Error(type='ValueError', message=…))"
    )


def test_a_secret_is_text_that_shows_nothing() -> None:
    secret = Secret(CANARY)

    assert (repr(secret), secret == CANARY) == ("Secret(…)", True)


def failed() -> None:
    try:
        raise KeyError("a")
    except KeyError as cause:
        raise ValueError("b") from cause


def test_the_frames_of_an_error_and_of_what_led_to_it_are_dropped() -> None:
    with pytest.raises(ValueError, match="b") as raised:
        failed()

    error = without_frames(raised.value)

    assert error is raised.value
    assert error.__traceback__ is None
    assert error.__cause__ is not None
    assert error.__cause__.__traceback__ is None
