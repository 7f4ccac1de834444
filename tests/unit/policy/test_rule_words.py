"""The rule of a schedule in words: right, short, and safe whatever the text."""

import string
from datetime import timedelta
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._model.schedule import Schedule
from windlass._policy.calendar.rule_words import cron_words, rule_words
from windlass.errors import InvalidOption

WORDS = {
    "* * * * *": "Every minute",
    "*/15 * * * *": "Every 15 minutes",
    "0 * * * *": "Every hour",
    "5,35 * * * *": "At minutes 5 and 35 of every hour",
    "*/7 * * * *": "At minutes 0, 7, …, 56 of every hour",
    "0 */2 * * *": "Every 2 hours",
    "10-12,20 */2 * * *": "At minutes 10 to 12 and 20, every 2 hours",
    "30 3 * * *": "Every day at 03:30",
    "30 3 * * 1-5": "At 03:30, Monday to Friday",
    "0 0,12 * * *": "Every day at 00:00 and 12:00",
    "0 0 * * 0-7": "Every day at 00:00",
    "0 0 * * 6,7": "At 00:00, on Saturday and Sunday",
    "*/10 9-17 * * MON-FRI": "Every 10 minutes from 09:00 to 17:59, Monday to Friday",
    "0 22-23,0-5 * * *": "Every day at minute 0 of hours 0 to 5, 22 and 23",
    "0 6 1 1,4,7,10 *": "At 06:00, on day 1 of the month, in January, April, July and October",
    "0 0 * JAN-MAR *": "At 00:00, in January to March",
    "0 9 * * FRI#2": "At 09:00, on the second Friday of the month",
    "0 9 * * 5L": "At 09:00, on the last Friday of the month",
    "0 0 L * *": "At 00:00, on the last day of the month",
    "0 0 1-5,LW * *": "At 00:00, on days 1 to 5 and the last weekday of the month",
    "0 0 1 * MON": "At 00:00, on day 1 of the month or on Monday",
    "0 0 */2 * MON": "At 00:00, on days 1, 3, …, 31 of the month, only on Monday",
    "* * * * * *": "Every second",
    "*/10 * * * * *": "Every 10 seconds",
    "30 * * * * *": "At second 30 of every minute",
    "15 30 3 * * *": "Every day at 03:30:15",
    "10-20 5 3-8 * * *": "Every day at seconds 10 to 20 of minute 5 from 03:00 to 08:59",
}
CRON = st.text(string.digits + "*/,-#LW @ABCDEFJMNORSTUYabc", max_size=250)
"""Text that looks like cron expressions, valid or not."""


@pytest.mark.parametrize(("text", "words"), WORDS.items())
def test_a_cron_expression_in_words(text: str, words: str) -> None:
    assert cron_words(text) == words
    assert rule_words(Schedule(name="s", type="t", cron=text)) == words


@pytest.mark.parametrize(
    ("every", "words"),
    [
        (timedelta(hours=1), "Every hour"),
        (timedelta(minutes=15), "Every 15 minutes"),
        (timedelta(days=1, minutes=90), "Every 1 day 1 hour 30 minutes"),
        (timedelta(seconds=1), "Every second"),
        (timedelta(seconds=1.5), "Every 1.5 seconds"),
    ],
)
def test_an_interval_in_words(every: timedelta, words: str) -> None:
    assert rule_words(Schedule(name="s", type="t", every=every)) == words


@pytest.mark.parametrize(
    "text", [None, "", "@reboot", "@daily", "99 * * * *", "1-99999999999 * * * *", "x" * 10**6]
)
def test_what_cannot_be_read_has_no_words(text: str | None) -> None:
    assert rule_words(Schedule(name="s", type="t", cron=text)) == ""


@given(CRON | st.lists(CRON, min_size=5, max_size=6).map(" ".join) | st.text(max_size=300))
def test_no_text_makes_it_long_or_slow(text: str) -> None:
    began = process_time()
    try:
        words = cron_words(text)
    except InvalidOption:
        words = ""
    assert len(words) < 1_500
    assert process_time() - began < 1


RANGES = ((0, 59), (0, 59), (0, 23), (1, 28), (1, 12), (0, 7))


@given(st.tuples(*(st.sets(st.integers(*pair), min_size=1, max_size=12) for pair in RANGES)))
def test_any_lists_of_values_have_words(fields: tuple[set[int], ...]) -> None:
    text = " ".join(",".join(map(str, field)) for field in fields)
    assert 0 < len(cron_words(text)) < 1_500
