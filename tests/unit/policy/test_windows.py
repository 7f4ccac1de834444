"""Windows of queues: when they are open, in any zone and through any change of clocks."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import example, given
from hypothesis import strategies as st

from windlass._model.queue import QueueSettings, Window
from windlass._policy.order.window_options import format_window, parse_window, parse_windows
from windlass._policy.order.windows import closed_until, open_queues, opening

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",  # half an hour of daylight saving
    "Asia/Kathmandu",
    "Pacific/Apia",  # skipped a day
    "Africa/Casablanca",
)
CHANGES = (
    datetime(2026, 3, 29, 1, tzinfo=UTC),  # Berlin, forward
    datetime(2026, 10, 25, 1, tzinfo=UTC),  # Berlin, back
    datetime(2026, 3, 8, 7, tzinfo=UTC),  # New York, forward
    datetime(2026, 11, 1, 6, tzinfo=UTC),  # New York, back
    datetime(2026, 4, 4, 15, tzinfo=UTC),  # Lord Howe, back
    datetime(2026, 10, 3, 15, 30, tzinfo=UTC),  # Lord Howe, forward
    datetime(2011, 12, 30, 10, tzinfo=UTC),  # Apia, a day forward
)
MINUTE = timedelta(minutes=1)

minutes = st.integers(0, 24 * 60 - 1)
days = st.sets(st.integers(0, 6), min_size=1).map(lambda found: tuple(sorted(found)))
windows = (
    st.builds(dict, opens=minutes, closes=st.integers(0, 24 * 60), days=days, zone=st.sampled_from(ZONES))
    .filter(lambda fields: fields["opens"] != fields["closes"])
    .map(lambda fields: Window(**fields))
)
near_changes = st.builds(
    lambda at, seconds: at + timedelta(seconds=seconds),
    st.sampled_from(CHANGES),
    st.integers(-2 * 86_400, 2 * 86_400),
)
anywhen = st.integers(631_152_000, 2_840_140_800).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
instants = near_changes | anywhen


def window(text: str) -> Window:
    return parse_window(text)


def is_open(which: tuple[Window, ...], now: datetime) -> bool:
    return opening(which, now).opens_at <= now


def shows_open(which: Window, now: datetime) -> bool:
    """Whether the wall clock shows a time within the window."""
    wall = now.astimezone(ZoneInfo(which.zone))
    minute = wall.hour * 60 + wall.minute
    today, yesterday = wall.weekday() in which.days, (wall.weekday() - 1) % 7 in which.days
    if which.closes > which.opens:
        return today and which.opens <= minute < which.closes
    return (today and minute >= which.opens) or (yesterday and minute < which.closes)


def is_ordinary(now: datetime, zone: str) -> bool:
    """Whether the clock has not been changed within a day and a half."""
    offsets = {
        (now + hours * timedelta(hours=6)).astimezone(ZoneInfo(zone)).utcoffset() for hours in range(-6, 7)
    }
    return len(offsets) == 1


@given(windows, instants)
def test_a_queue_is_open_when_the_wall_clock_shows_it(which: Window, now: datetime) -> None:
    if is_ordinary(now, which.zone):
        assert is_open((which,), now) == shows_open(which, now)


@given(windows, near_changes)
def test_where_clocks_change_only_times_that_occur_twice_are_not_as_the_wall_clock_shows(
    which: Window, now: datetime
) -> None:
    zone = ZoneInfo(which.zone)
    if "Apia" in which.zone and now.year == 2011:
        return  # a whole day does not occur, and so neither do windows that would open on it
    wall = now.astimezone(zone).replace(tzinfo=None)
    repeated = [
        wall + timedelta(minutes=offset)
        for offset in range(-180, 181, 5)
        if _occurs_twice(wall + timedelta(minutes=offset), zone)
    ]
    if not repeated:
        assert is_open((which,), now) == shows_open(which, now)


def _occurs_twice(wall: datetime, zone: ZoneInfo) -> bool:
    first, second = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return second > first and second.astimezone(zone).replace(tzinfo=None) == wall


@given(st.lists(windows, min_size=1, max_size=4).map(tuple), instants)
def test_the_opening_is_the_present_or_the_next_one(which: tuple[Window, ...], now: datetime) -> None:
    found = opening(which, now)

    assert found.opens_at < found.closes_at
    assert found.closes_at > now
    assert opening(which, found.opens_at).opens_at <= found.opens_at  # It is open there,
    before = found.opens_at - timedelta(microseconds=1)
    if found.opens_at > now:
        assert not is_open(which, before)  # and was not before.
        assert opening(which, before).opens_at == found.opens_at
    assert found.opens_at - now <= timedelta(days=15)


@given(st.lists(windows, min_size=2, max_size=4).map(tuple), instants)
def test_several_windows_are_open_whenever_one_is(which: tuple[Window, ...], now: datetime) -> None:
    assert is_open(which, now) == any(is_open((one,), now) for one in which)


@given(windows)
@example(Window(opens=0, closes=24 * 60))
def test_a_window_reads_as_it_is_written(which: Window) -> None:
    assert parse_window(format_window(which)) == which


def test_windows_that_touch_are_one_opening() -> None:
    which = parse_windows(["mon 00:00-24:00", "tue 00:00-12:00"])

    found = opening(which, datetime(2026, 11, 16, 5, tzinfo=UTC))

    assert found.opens_at == datetime(2026, 11, 16, tzinfo=UTC)
    assert found.closes_at == datetime(2026, 11, 17, 12, tzinfo=UTC)


def test_over_midnight_the_day_is_the_one_on_which_it_opens() -> None:
    which = (window("fri 22:00-06:00 Europe/Berlin"),)
    friday, saturday = datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC)

    assert is_open(which, friday + timedelta(hours=21, minutes=30))
    assert is_open(which, saturday + timedelta(hours=4))
    assert not is_open(which, saturday + timedelta(hours=22))
    assert not is_open(which, friday + timedelta(hours=4))


def test_a_night_in_which_clocks_change_is_an_hour_shorter_or_longer() -> None:
    which = (window("22:00-06:00 Europe/Berlin"),)

    spring = opening(which, datetime(2026, 3, 28, 23, tzinfo=UTC))
    autumn = opening(which, datetime(2026, 10, 24, 23, tzinfo=UTC))

    assert spring.closes_at - spring.opens_at == timedelta(hours=7)
    assert autumn.closes_at - autumn.opens_at == timedelta(hours=9)


def test_a_window_that_is_skipped_opens_a_week_later() -> None:
    which = (window("sun 02:00-03:00 Europe/Berlin"),)

    found = opening(which, datetime(2026, 3, 28, tzinfo=UTC))

    assert found.opens_at == datetime(2026, 4, 5, tzinfo=UTC)


def test_a_window_that_occurs_twice_opens_once() -> None:
    which = (window("sun 02:15-02:45 Europe/Berlin"),)

    found = opening(which, datetime(2026, 10, 24, tzinfo=UTC))
    following = opening(which, found.closes_at)

    assert found.opens_at == datetime(2026, 10, 25, 0, 15, tzinfo=UTC)
    assert found.closes_at == datetime(2026, 10, 25, 0, 45, tzinfo=UTC)
    assert following.opens_at == datetime(2026, 11, 1, 1, 15, tzinfo=UTC)


def test_queues_are_open_closed_or_paused() -> None:
    noon = datetime(2026, 11, 16, 12, tzinfo=UTC)
    night, day = parse_windows("22:00-06:00"), parse_windows("08:00-18:00")
    settings = {
        one.name: one
        for one in (
            QueueSettings(name="night", windows=night),
            QueueSettings(name="later", windows=parse_windows("23:00-06:00")),
            QueueSettings(name="day", windows=day),
            QueueSettings(name="paused", windows=night, paused=True),
            QueueSettings(name="plain"),
        )
    }

    found, wait = open_queues(["later", "night", "day", "paused", "plain", "other", "day"], settings, noon)

    assert (found, wait) == (["day", "plain", "other"], 10 * 3600)
    assert open_queues(["day", "paused"], settings, noon) == (["day"], None)
    assert closed_until(settings["night"], noon) == noon + timedelta(hours=10)
    assert closed_until(settings["day"], noon) is None
    assert closed_until(None, noon) is None
