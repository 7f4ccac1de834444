"""Traces: which text is a valid traceparent, how a header is read, and when an attempt is a child span."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.samples import NOW, running
from windlass._model.task import synthetic_trace
from windlass._policy.input.trace import (
    Trace,
    checked_trace,
    is_child,
    parse_trace,
    trace_from_header,
)
from windlass.errors import InvalidOption

T, S = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{T}-{S}-01"
NO_TRACEPARENT: list[Any] = [
    "",
    "00",
    GOOD[:-1],
    GOOD + "\n",
    GOOD + "-",
    GOOD + "-what-comes-later",  # in version 00 nothing follows
    GOOD.upper(),
    GOOD.replace("-", "_"),
    f"ff-{T}-{S}-01",
    f"00-{'0' * 32}-{S}-01",
    f"00-{T}-{'0' * 16}-01",
    f"00-{T}-{S}-0g",
    f"00-{T[:-1]}٣-{S}-01",
    f"{GOOD},{GOOD}",
]


@pytest.mark.parametrize("text", NO_TRACEPARENT)
def test_what_is_no_traceparent_is_refused_as_an_option_and_ignored_as_a_header(text: str) -> None:
    assert parse_trace(text) is None
    assert trace_from_header(text) is None
    with pytest.raises(InvalidOption, match="is not a W3C traceparent"):
        checked_trace(text)


@pytest.mark.parametrize("value", [None, 7, GOOD.encode()])
def test_what_is_no_text_is_none_either(value: object) -> None:
    assert parse_trace(value) is None
    with pytest.raises(InvalidOption, match="is not a W3C traceparent"):
        checked_trace(value)


def test_a_traceparent_is_taken_apart_and_put_together_again() -> None:
    assert parse_trace(GOOD) == Trace(T, S, 1)
    assert str(parse_trace(GOOD)) == checked_trace(GOOD) == trace_from_header(GOOD) == GOOD


@pytest.mark.parametrize(
    ("header", "trace"),
    [
        (None, None),
        (f" \t{GOOD} ", GOOD),
        (f"00-{T}-{S}-03", f"00-{T}-{S}-03"),
        (f"00-{T}-{S}-ff", f"00-{T}-{S}-03"),  # flags nobody knows are not carried on
        (f"cc-{T}-{S}-01", GOOD),
        (f"cc-{T}-{S}-03", GOOD),  # of a later version only "sampled" is sure
        (f"cc-{T}-{S}-00-what-comes-later", f"00-{T}-{S}-00"),
        (f"cc-{T}-{S}-01.what-comes-later", None),
        (f"ff-{T}-{S}-01-what-comes-later", None),
        (f"c-{T}-{S}-01", None),
    ],
)
def test_a_header_becomes_the_option_or_nothing(header: str | None, trace: str | None) -> None:
    assert trace_from_header(header) == trace


@given(st.text() | st.from_regex(r"\A[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?\Z"))
def test_whatever_a_header_says_the_option_takes_what_is_made_of_it(header: str) -> None:
    trace = trace_from_header(header)

    assert trace is None or checked_trace(trace) == trace == trace_from_header(trace)


@given(st.integers(min_value=1 << 64, max_value=(1 << 128) - 1))
def test_a_trace_that_was_made_up_is_valid_and_can_be_told_from_a_spans(number: int) -> None:
    trace = parse_trace(checked_trace(synthetic_trace(number)))

    assert trace is not None
    assert (trace.is_synthetic, trace.flags, int(trace.trace_id, 16)) == (True, 0, number)
    assert not Trace(trace.trace_id, S, 0).is_synthetic or trace.span_id == S


@pytest.mark.parametrize(
    ("changes", "auto"),
    [
        ({}, True),
        ({"run_at": NOW - timedelta(hours=1)}, True),  # overdue when it was enqueued: at once, all the same
        ({"run_at": NOW + timedelta(seconds=1)}, False),
        ({"attempt": 2}, False),
        ({"after": ("a", "b")}, False),
    ],
)
def test_an_attempt_is_a_child_if_the_task_was_due_at_once_and_it_is_the_first(
    changes: dict[str, Any], auto: bool
) -> None:
    task = running(**changes)

    assert is_child(task, "auto") is auto
    assert is_child(task, "parent")
    assert not is_child(task, "link")
