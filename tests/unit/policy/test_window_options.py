"""Windows as text: what is read, what is refused, and why."""

from typing import Any

import pytest

from windlass._model.queue import MAX_WINDOWS, QueueSettings, Window
from windlass._policy.order.window_options import parse_window, parse_windows
from windlass.errors import InvalidOption


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("22:00-06:00", {"opens": 1320, "closes": 360}),
        ("mon-fri 8:00-18:30", {"opens": 480, "closes": 1110, "days": (0, 1, 2, 3, 4)}),
        ("sat,sun 00:00-24:00 UTC", {"opens": 0, "closes": 1440, "days": (5, 6)}),
        (
            "fri-mon 01:00 - 02:00 Asia/Tokyo",
            {"opens": 60, "closes": 120, "days": (0, 4, 5, 6), "zone": "Asia/Tokyo"},
        ),
        ("mon,wed-thu,sun 1:05-1:06", {"opens": 65, "closes": 66, "days": (0, 2, 3, 6)}),
    ],
)
def test_a_window_is_text(text: str, fields: dict[str, Any]) -> None:
    assert parse_window(text) == Window(**fields)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("22-06", "a window is days, hours and a time zone"),
        ("", "a window is days, hours"),
        ("mon", "a window is days, hours"),
        ("mon-fri-sun 1:00-2:00", "is not a range of days such as mon-fri"),
        ("monday 1:00-2:00", "a window is days, hours"),
        ("mun 1:00-2:00", "'mun' is not a day; the days are mon, tue"),
        ("25:00-26:00", "'25:00' is not a time of day from 00:00 to 24:00"),
        ("10:60-11:00", "'10:60' is not a time of day"),
        ("10:00-10:00", "must not close at the time it opens"),
        ("24:00-10:00", "opens and closes between 0:00 and 24:00"),
        ("10:00-11:00 Europe/Berln", "did you mean 'Europe/Berlin'"),
        (7, "got 7"),
        ("9" * 100_000, "a window is days, hours"),
    ],
)
def test_anything_else_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message) as caught:
        parse_windows([value])

    assert len(str(caught.value)) < 400


def test_a_queue_has_so_many_windows() -> None:
    with pytest.raises(InvalidOption, match="at most 50 windows"):
        QueueSettings(name="q", windows=parse_windows("1:00-2:00") * (MAX_WINDOWS + 1))


def test_windows_are_none_one_or_several() -> None:
    night = parse_window("mon-fri 22:00-06:00 Europe/Berlin")

    assert parse_windows(None) == ()
    assert parse_windows(night) == parse_windows([night]) == (night,)
    with pytest.raises(InvalidOption, match="windows must be texts"):
        parse_windows(7)
