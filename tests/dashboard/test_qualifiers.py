"""The filter bar of tasks: what is written is what is found, and what is wrong is pointed at."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._dashboard.tasks.qualifiers import (
    QUALIFIERS,
    InvalidFilter,
    api_filter,
    checked_criteria,
    format_filter,
    merged,
    parse_filter,
)

ID = "0199c3a2-7d10-7abc-8def-0123456789ab"
NOW = datetime(2026, 11, 16, 12, 0, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "criteria"),
    [
        ("", {}),
        ("   ", {}),
        ("queue:mail", {"queue": ("mail",)}),
        ("queue:a/b.c queue:d state:dead", {"queue": ("a/b.c", "d"), "state": ("dead",)}),
        ('error:"timed out" type:report', {"error": ("timed out",), "type": ("report",)}),
        (r'error:"say \"no\" \\"', {"error": ('say "no" \\',)}),
        ('tenant:""', {"tenant": ("",)}),
        ("report.monthly", {"type": ("report.monthly",)}),
        ('"mail:welcome"', {"type": ("mail:welcome",)}),
        ("type:mail:welcome", {"type": ("mail:welcome",)}),
        (ID.upper(), {"id": (ID,)}),
        (f"root:{ID} since:1h30m", {"root": (ID,), "since": ("1h30m",)}),
        ("failure:0123456789abcdef", {"failure": ("0123456789abcdef",)}),
        ("queue:mail queue:mail", {"queue": ("mail",)}),
    ],
)
def test_what_is_written(text: str, criteria: dict[str, tuple[str, ...]]) -> None:
    assert parse_filter(text) == criteria
    assert parse_filter(format_filter(parse_filter(text))) == criteria


@pytest.mark.parametrize(
    ("text", "place", "part"),
    [
        ("queue:mail state:dod", "state:dod", "there is no state “dod”"),
        ("nope:1", "nope", "there is no qualifier “nope”"),
        ("mail:welcome", "mail", "write type:mail:welcome"),
        ("queue: mail", "queue:", "without a space"),
        ('type:a error:"timed out', '"timed out', "quotation mark is missing"),
        ('error:a"b"', 'error:a"b"', "quote a value"),
        ("id:123", "id:123", "is not a task id"),
        ("failure:zz", "failure:zz", "is not the id of a failure"),
        ("since:yesterday", "since:yesterday", "is not an age"),
        ("since:1h since:2h", "since:2h", "only once"),
        ('queue:""', 'queue:""', "followed by the name of a queue"),
        ("type:\x00", "type:\x00", "NUL"),
        ("type:" + "x" * 501, "type:" + "x" * 501, "at most 500 characters"),
        ("a " * 101, "a ", "at most 100 words"),
    ],
)
def test_what_is_wrong_is_pointed_at(text: str, place: str, part: str) -> None:
    with pytest.raises(InvalidFilter) as caught:
        parse_filter(text)
    assert part in str(caught.value)
    assert text[caught.value.start : caught.value.end] == place


def test_parameters_of_a_url_are_the_same_criteria() -> None:
    criteria = checked_criteria({"queue": ["a b"], "since": ["1h"]})
    assert merged(parse_filter("queue:mail since:2h"), criteria) == {
        "queue": ("mail", "a b"),
        "since": ("2h",),
    }
    with pytest.raises(InvalidFilter, match="state: there is no state"):
        checked_criteria({"state": ["<b>"]})


def test_criteria_become_the_filter_of_the_api() -> None:
    found = api_filter(parse_filter(f"queue:a type:b key:k id:{ID} since:1h until:2026-01-31T08:00"), NOW)
    assert found == {
        "queue": ["a"],
        "type": ["b"],
        "idempotency_key": "k",
        "id": [ID],
        "created_after": datetime(2026, 11, 16, 11, 0, tzinfo=UTC),
        "created_before": datetime(2026, 1, 31, 8, tzinfo=UTC),
    }
    later = api_filter(parse_filter("since:1h"), NOW + timedelta(seconds=2))
    assert later["created_after"] == found["created_after"], "viewers share what is read within ten seconds"


VALUES = st.text(min_size=1, max_size=30).filter(lambda text: "\x00" not in text)


@given(
    st.dictionaries(st.sampled_from(["queue", "type", "tenant"]), st.lists(VALUES, min_size=1, max_size=3))
)
def test_any_value_survives_the_bar(given_values: dict[str, list[str]]) -> None:
    criteria = checked_criteria(given_values)
    assert parse_filter(format_filter(criteria)) == criteria


@given(st.text(max_size=200) | st.text(alphabet='queystat:" \\\n', max_size=200))
def test_any_text_is_read_or_refused_with_its_place(text: str) -> None:
    try:
        criteria = parse_filter(text)
    except InvalidFilter as caught:
        problem: InvalidFilter | None = caught
    else:
        problem = None
        assert set(criteria) <= set(QUALIFIERS)
        api_filter(criteria, NOW)
    assert problem is None or 0 <= problem.start < problem.end <= len(text)
