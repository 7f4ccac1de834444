"""The period of a report: days of a time zone."""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct

from ...errors import InvalidOption

MAX_DAYS = 91


class Period(Struct, frozen=True):
    """Whole days from `first` to `last` in a zone."""

    first: date
    last: date
    zone: ZoneInfo

    @property
    def since(self) -> datetime:
        """When it begins."""
        return datetime.combine(self.first, time(), self.zone).astimezone(UTC)

    @property
    def until(self) -> datetime:
        """When it is over: the next midnight, also after a day of 23 or 25 hours."""
        return datetime.combine(self.last + timedelta(days=1), time(), self.zone).astimezone(UTC)

    @property
    def days(self) -> int:
        """The number of its days."""
        return (self.last - self.first).days + 1

    def __str__(self) -> str:
        return f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"


def parse_period(
    first: date | None, last: date | None, zone: str, now: datetime, *, days_ago: int = 1
) -> Period:
    """Return the period of these days; without any, of the day so many days ago. Raises InvalidOption."""
    try:
        place = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidOption(f"{zone[:100]!r} is not a time zone") from None
    begin = first or now.astimezone(place).date() - timedelta(days=days_ago)
    end = last or begin
    if not 0 <= (end - begin).days < MAX_DAYS or not 2000 <= begin.year <= 9000:
        raise InvalidOption(f"a report is of 1 to {MAX_DAYS} days, got {begin} to {end}")
    return Period(begin, end, place)
