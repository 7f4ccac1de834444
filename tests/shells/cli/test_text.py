"""Values as text: escaped, on one line, in one unit of time."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._cli.text import ago, escaped_lines, json_text, one_line, span, stamp

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


@given(st.text())
def test_escaped_text_is_printable_and_json_keeps_the_value(text: str) -> None:
    assert one_line(text).isprintable()
    assert all(line.isprintable() for line in escaped_lines(text))
    assert json_text({text: text}).isprintable()
    assert json.loads(json_text({text: text})) == {text: text}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "250 ms"),
        (1, "1 s"),
        (59.9, "59 s"),
        (60, "1 m"),
        (3600, "1 h"),
        (47 * 3600, "47 h"),
        (48 * 3600, "2 d"),
    ],
)
def test_a_duration_has_one_unit(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("offset", "text"),
    [(timedelta(0), "now"), (timedelta(minutes=5), "in 5 m"), (timedelta(seconds=-3), "3 s ago")],
)
def test_an_instant_is_shown_by_its_distance_from_now(offset: timedelta, text: str) -> None:
    assert ago(NOW + offset, NOW) == text
    assert stamp(NOW + offset, NOW).endswith(f"({text})")


def test_no_instant_is_no_text() -> None:
    assert ago(None, NOW) == stamp(None, NOW) == ""
