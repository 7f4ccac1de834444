"""The rule of a schedule in plain words: "At 03:30, Monday to Friday".

A cron expression is described by the values that it matches, not by its text: there are at most 60 of them in
a field, so no text makes the description long or slow.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import product

from cronsim import CronSim

from ..._model.schedule import Schedule
from ...errors import InvalidOption
from ..input.quote import counted
from .cron import parse_fields

_MAX_TIMES = 6  # times of day, or values at equal distances, that are listed one by one
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_NTH = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth", CronSim.LAST: "last"}
_LAST_DAYS = {CronSim.LAST: "the last day", CronSim.LAST_WEEKDAY: "the last weekday"}


def rule_words(schedule: Schedule) -> str:
    """Describe the rule of a schedule; "" if it has none that can be read."""
    if schedule.every is not None:
        return _interval(schedule.every)
    try:
        return cron_words(schedule.cron or "")
    except InvalidOption:
        return ""


def cron_words(text: str) -> str:
    """Describe a cron expression. Raises InvalidOption if it is not one."""
    cron = parse_fields(text)
    time = _time(sorted(cron.seconds), sorted(cron.minutes), sorted(cron.hours))
    days, months = _days(cron), _months(sorted(cron.months))
    if not days and not months and "every" not in time:
        time = f"every day {time}"
    said = ", ".join(part for part in (time, days, months) if part)
    return said[0].upper() + said[1:]


def _interval(every: timedelta) -> str:
    seconds, parts = every.total_seconds(), []
    for noun, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        whole, seconds = divmod(seconds, length)
        if whole:
            parts.append(counted(int(whole), noun))
    if seconds:
        parts.append(f"{seconds:g} second{'' if seconds == 1 else 's'}")
    said = " ".join(parts)
    return f"Every {said.removeprefix('1 ') if len(parts) == 1 else said}"


# -- times of day ----------------------------------------------------------------------------------


def _time(seconds: Sequence[int], minutes: Sequence[int], hours: Sequence[int]) -> str:
    if len(seconds) * len(minutes) * len(hours) <= _MAX_TIMES:
        times = [
            f"{hour:02}:{minute:02}" + (f":{second:02}" if seconds != [0] else "")
            for hour, minute, second in product(hours, minutes, seconds)
        ]
        return f"at {_joined(times)}"
    if seconds == [0]:
        return _within(_often("minute", minutes, 60), hours)
    often = _often("second", seconds, 60)
    if len(minutes) < 60:
        often += f" of {_listed('minute', minutes)}"
    elif not often.startswith("every"):
        often += " of every minute"
    return _within(often, hours)


def _within(often: str, hours: Sequence[int]) -> str:
    """Add the hours to what happens in each of them."""
    if len(hours) == 24:
        if often == "at minute 0":
            return "every hour"
        return often if "every" in often else f"{often} of every hour"
    step = _step(hours, 24)
    if step:
        return f"every {step} hours" if often == "at minute 0" else f"{often}, every {step} hours"
    if len(hours) == hours[-1] - hours[0] + 1:
        return f"{often} from {hours[0]:02}:00 to {hours[-1]:02}:59"
    return f"{often} of {_listed('hour', hours)}"


def _often(noun: str, values: Sequence[int], whole: int) -> str:
    """Return "every minute", "every 15 minutes", or "at minutes 5 and 35"."""
    if len(values) == whole:
        return f"every {noun}"
    step = _step(values, whole)
    return f"every {step} {noun}s" if step else f"at {_listed(noun, values)}"


def _step(values: Sequence[int], whole: int) -> int:
    """Return the distance of values that go from 0 through the whole evenly; 0 if they do not."""
    step = values[1] - values[0] if len(values) > 1 else 0
    return step if step and whole % step == 0 and [*values] == [*range(0, whole, step)] else 0


# -- days and months -------------------------------------------------------------------------------


def _days(cron: CronSim) -> str:
    in_month = "" if len(cron.days) == 31 else _month_days(cron.days)
    in_week = _week_days(cron)
    if not in_month or not in_week:
        return in_month or in_week
    return f"{in_month}, only {in_week}" if cron.day_and else f"{in_month} or {in_week}"


def _month_days(days: Iterable[int]) -> str:
    numbers = sorted(day for day in days if day > 0)
    said = [_listed("day", numbers)] if numbers else []
    said += [words for day, words in _LAST_DAYS.items() if day in days]
    return f"on {_joined(said)} of the month"


def _week_days(cron: CronSim) -> str:
    plain = {day % 7 for day in cron.weekdays if isinstance(day, int)}
    if len(plain) == 7:
        return ""
    # Monday first: a week that ends on Sunday is then one run.
    runs = _runs(sorted((day - 1) % 7 for day in plain), [_DAYS[(number + 1) % 7] for number in range(7)])
    nth = sorted(day for day in cron.weekdays if not isinstance(day, int))
    said = [f"the {_NTH[number]} {_DAYS[day % 7]} of the month" for day, number in nth]
    if not said and len(runs) == 1 and " to " in runs[0]:
        return runs[0]
    return f"on {_joined([*runs, *said])}"


def _months(months: Sequence[int]) -> str:
    if len(months) == 12:
        return ""
    runs = _runs([month - 1 for month in months], _MONTHS)
    return f"in {_joined(runs)}"


# -- lists -----------------------------------------------------------------------------------------


def _listed(noun: str, values: Sequence[int]) -> str:
    """Return "minute 5", "minutes 0 to 9 and 30"."""
    step = values[1] - values[0] if len(values) > 1 else 0
    if len(values) > _MAX_TIMES and step > 1 and [*values] == [*range(values[0], values[-1] + 1, step)]:
        return f"{noun}s {values[0]}, {values[1]}, …, {values[-1]}"
    runs = _runs(values, [*map(str, range(values[-1] + 1))])
    return f"{noun} {runs[0]}" if len(values) == 1 else f"{noun}s {_joined(runs)}"


def _runs(numbers: Sequence[int], names: Sequence[str]) -> list[str]:
    """Return the names of the numbers; three or more in a row as "a to c"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    said: list[str] = []
    for run in runs:
        if len(run) > 2:
            said.append(f"{names[run[0]]} to {names[run[-1]]}")
        else:
            said += [names[number] for number in run]
    return said


def _joined(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
