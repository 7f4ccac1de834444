"""Cron: the instants of an expression, also on days when clocks change."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._policy.calendar.cron import Cron, parse_cron
from windlass.errors import InvalidOption

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
# The first instant of the other offset, in 2026.
SPRING = {
    BERLIN: datetime(2026, 3, 29, 1, tzinfo=UTC),
    NEW_YORK: datetime(2026, 3, 8, 7, tzinfo=UTC),
    LORD_HOWE: datetime(2026, 10, 3, 15, 30, tzinfo=UTC),
}
AUTUMN = {
    BERLIN: datetime(2026, 10, 25, 1, tzinfo=UTC),
    NEW_YORK: datetime(2026, 11, 1, 6, tzinfo=UTC),
    LORD_HOWE: datetime(2026, 4, 4, 15, tzinfo=UTC),
}
# A time of day that is left out in spring and shown twice in autumn, and when the clock has jumped over it.
LEFT_OUT = {
    BERLIN: ("30 2 * * *", "03:00"),
    NEW_YORK: ("30 2 * * *", "03:00"),
    LORD_HOWE: ("15 2 * * *", "02:30"),
}
TWICE = {
    BERLIN: ("30 2 * * *", "02:30"),
    NEW_YORK: ("30 1 * * *", "01:30"),
    LORD_HOWE: ("45 1 * * *", "01:45"),
}


def named(text: str, zone: str, after: datetime, until: datetime) -> list[datetime]:
    cron, found = parse_cron(text, zone), []
    while (tick := cron.after(after)) is not None and tick <= until:
        found.append(tick)
        after = tick
    return found


def on_the_wall(instants: list[datetime], zone: str) -> list[str]:
    return [f"{instant.astimezone(ZoneInfo(zone)):%d %H:%M}" for instant in instants]


def gaps(instants: list[datetime]) -> list[timedelta]:
    return [later - earlier for earlier, later in pairwise(instants)]


def test_it_names_what_it_says() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)

    assert named("*/20 * * * *", "UTC", start, start + HOUR) == [start + k * 20 * MINUTE for k in (1, 2, 3)]
    assert on_the_wall(named("0 9 * * 1-5", BERLIN, start, start + 6 * DAY), BERLIN) == [
        "01 09:00",
        "02 09:00",
        "05 09:00",
        "06 09:00",
    ]
    assert len(named("*/10 * * * * *", "UTC", start, start + MINUTE)) == 6  # six fields: seconds too


def test_it_names_what_comes_after_and_never_the_instant_itself() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    cron = parse_cron("0 12 * * *", "UTC")

    assert cron.after(noon - timedelta(microseconds=1)) == noon
    assert cron.after(noon) == noon + DAY
    assert cron.after(noon + timedelta(microseconds=1)) == noon + DAY


@pytest.mark.parametrize("zone", SPRING)
def test_in_spring_a_daily_rule_fires_once_when_the_clock_has_jumped_over_it(zone: str) -> None:
    text, told = LEFT_OUT[zone]
    turn = SPRING[zone]
    found = named(text, zone, turn - 36 * HOUR, turn + 36 * HOUR)

    usual = f"{int(text.split()[1]):02}:{text.split()[0]}"
    assert [wall[3:] for wall in on_the_wall(found, zone)] == [usual, told, usual]
    assert found[1] == turn
    assert len({wall[:2] for wall in on_the_wall(found, zone)}) == 3  # one a day


@pytest.mark.parametrize("zone", AUTUMN)
def test_in_autumn_a_daily_rule_fires_once_when_the_wall_first_shows_it(zone: str) -> None:
    text, told = TWICE[zone]
    turn = AUTUMN[zone]
    found = named(text, zone, turn - 36 * HOUR, turn + 36 * HOUR)

    assert [wall[3:] for wall in on_the_wall(found, zone)] == [told] * 3
    assert turn - HOUR <= found[1] < turn
    assert len({wall[:2] for wall in on_the_wall(found, zone)}) == 3


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK])
@pytest.mark.parametrize("turns", [SPRING, AUTUMN], ids=["spring", "autumn"])
@pytest.mark.parametrize("minute", [0, 30, 59])
def test_an_hourly_rule_fires_every_hour_that_passes(
    zone: str, turns: dict[str, datetime], minute: int
) -> None:
    found = named(f"{minute} * * * *", zone, turns[zone] - 5 * HOUR, turns[zone] + 5 * HOUR)

    assert len(found) >= 9
    assert set(gaps(found)) == {HOUR}


@pytest.mark.parametrize(
    ("text", "turns", "walls", "minutes"),
    [
        ("0 * * * *", SPRING, ["00:00", "01:00", "03:00", "04:00"], [60, 90, 60]),
        ("30 * * * *", SPRING, ["00:30", "01:30", "02:30", "03:30"], [60, 30, 60]),
        ("0 * * * *", AUTUMN, ["00:00", "01:00", "02:00", "03:00"], [60, 90, 60]),
        ("30 * * * *", AUTUMN, ["00:30", "01:30", "01:30", "02:30"], [60, 30, 60]),
    ],
)
def test_where_clocks_turn_by_half_an_hour_an_hourly_rule_keeps_to_its_minute(
    text: str, turns: dict[str, datetime], walls: list[str], minutes: list[int]
) -> None:
    turn = turns[LORD_HOWE]
    found = [*named(text, LORD_HOWE, turn - 5 * HOUR, turn + 5 * HOUR)]
    day = f"{turn.astimezone(ZoneInfo(LORD_HOWE)):%d}"
    that_night = [tick for tick in found if on_the_wall([tick], LORD_HOWE)[0].startswith(day)][:4]

    assert [wall[3:] for wall in on_the_wall(that_night, LORD_HOWE)] == walls
    assert [gap // MINUTE for gap in gaps(that_night)] == minutes


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, LORD_HOWE])
@pytest.mark.parametrize("turns", [SPRING, AUTUMN], ids=["spring", "autumn"])
def test_a_rule_for_every_minute_misses_none_and_repeats_none(zone: str, turns: dict[str, datetime]) -> None:
    found = named("* * * * *", zone, turns[zone] - 3 * HOUR, turns[zone] + 3 * HOUR)

    assert len(found) == 360
    assert set(gaps(found)) == {MINUTE}


def test_several_times_that_are_left_out_are_one_tick() -> None:
    turn = SPRING[BERLIN]

    found = named("0,20,40 2,3 * * *", BERLIN, turn - HOUR, turn + HOUR - timedelta(seconds=1))

    assert on_the_wall(found, BERLIN) == ["29 03:00", "29 03:20", "29 03:40"]


def test_a_rule_of_several_hours_does_not_repeat_those_that_are_shown_twice() -> None:
    turn = AUTUMN[BERLIN]

    found = named("*/30 2 * * *", BERLIN, turn - 2 * HOUR, turn + 2 * HOUR)

    assert found == [turn - HOUR, turn - 30 * MINUTE]


RULES = [
    "30 2 * * *",
    "* * * * *",
    "*/7 * * * *",
    "0 */2 * * *",
    "59 1,2,3 * * *",
    "0 * * * 0",
    "30 * * * *",
    "5 0 1 * *",
]


@given(
    zone=st.sampled_from([BERLIN, NEW_YORK, LORD_HOWE, "UTC", "Antarctica/Troll", "Africa/Cairo"]),
    rule=st.sampled_from(RULES),
    start=st.integers(0, 2 * 365 * 86400),
    back=st.integers(1, 5 * 3600),
)
def test_the_instants_do_not_depend_on_where_one_begins(zone: str, rule: str, start: int, back: int) -> None:
    cron, instant = parse_cron(rule, zone), datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=start)
    first = cron.after(instant)
    assert first is not None
    assert first > instant

    tick = instant - timedelta(seconds=back)
    while tick <= instant:
        following = cron.after(tick)
        assert following is not None
        assert following > tick
        tick = following

    assert tick == first


@given(
    turn=st.sampled_from([(zone, turn) for turns in (SPRING, AUTUMN) for zone, turn in turns.items()]),
    rule=st.sampled_from(["* * * * *", "*/7 * * * *", "30 * * * *", "0,45 0-23 * * *"]),
    start=st.integers(-4 * 3600, 2 * 3600),
)
def test_a_rule_for_every_hour_names_exactly_the_minutes_at_which_the_wall_matches(
    turn: tuple[str, datetime], rule: str, start: int
) -> None:
    zone, at = turn
    begin, end = at + timedelta(seconds=start), at + 5 * HOUR
    field = rule.split(maxsplit=1)[0]
    wanted = {"*": range(60), "*/7": range(0, 60, 7), "30": [30], "0,45": [0, 45]}[field]
    first = begin.replace(second=0, microsecond=0) + MINUTE
    every = [first + k * MINUTE for k in range((end - first) // MINUTE + 1)]

    assert named(rule, zone, begin, end) == [
        minute for minute in every if minute.astimezone(ZoneInfo(zone)).minute in wanted
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("61 * * * *", "invalid minute '61'"),
        ("0 25 * * *", "invalid hour '25'"),
        ("0 0 32 * *", "invalid day-of-month '32'"),
        ("0 0 * 13 *", "invalid month '13'"),
        ("0 0 * * 9", "invalid day-of-week '9'"),
        ("61 0 0 * * *", "invalid second '61'"),
        ("*/0 * * * *", "invalid minute '*/0'"),
        ("9-5 * * * *", "invalid minute '9-5'"),
        ("* * * *", "has 4 fields"),
        ("@daily", "has 1 field;"),
        ("", "has 0 fields"),
        ("0 0 30 2 *", "never matches"),
        ("0 0 */30 2 1#5", "never matches"),
        ("0 " * 200, "at most 200 characters"),
        ("٣ * * * *", "invalid minute"),
    ],
)
def test_a_bad_expression_is_refused_and_named(text: str, told: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        Cron(text, "UTC")

    assert told in str(refused.value)


@given(st.text(alphabet="0123456789*/-,#LWMONJAN? ", max_size=30))
def test_no_text_does_worse_than_being_refused(text: str) -> None:
    try:
        cron = Cron(text, BERLIN)
    except InvalidOption:
        return
    found = cron.after(datetime(2026, 1, 1, tzinfo=UTC))
    assert found is None or found > datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("zone", ["Europe/Berln", "europe/berlin", "berlin"])
def test_an_unknown_zone_is_refused_with_the_one_that_was_meant(zone: str) -> None:
    with pytest.raises(InvalidOption, match="did you mean 'Europe/Berlin'"):
        Cron("0 3 * * *", zone)


@pytest.mark.parametrize(
    "zone", ["", "../../etc/passwd", "/etc/passwd", "\0", "Nowhere/At-all", "x" * 10_000, None]
)
def test_what_is_no_zone_is_refused(zone: str) -> None:
    with pytest.raises(InvalidOption, match="unknown time zone"):
        Cron("0 3 * * *", zone)


def test_it_ends_with_the_calendar() -> None:
    late = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)

    assert Cron("0 3 * * *", "UTC").after(late) is None
    assert Cron("* * * * *", BERLIN).after(late) is None


def test_rare_days_are_found_and_what_comes_in_more_than_fifty_years_is_not() -> None:
    leap_sunday = parse_cron("0 0 29 2 */7", "UTC")

    assert leap_sunday.after(datetime(2026, 1, 1, tzinfo=UTC)) == datetime(2032, 2, 29, tzinfo=UTC)
    assert Cron("* * 29 2 */7", "UTC").after(datetime(9980, 3, 1, tzinfo=UTC)) is None
