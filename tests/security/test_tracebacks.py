"""Tracebacks with local variables, as error trackers and `rich` show them: no password of a store's URL."""

import traceback
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.examples import sample
from windlass import StoreUnavailable
from windlass._stores import open_store
from windlass.handlers.reports.period import Period
from windlass.handlers.reports.sources import Query, rows_of

CANARY = "7f3asings-4111"
POSTGRES = f"postgresql://shop:{CANARY}@127.0.0.1:9/shop"
REFUSED = sample(
    [
        POSTGRES,
        f"postgresql://shop:{CANARY}@127.0.0.1:9,127.0.0.1:10/shop",
        f"redis://shop:{CANARY}@127.0.0.1:9",
    ],
    [f"nats://shop:{CANARY}@127.0.0.1:9/shop", f"nats://shop:{CANARY}@127.0.0.1:9,127.0.0.1:10/shop"],
)
"""URLs at which nobody listens."""


def shown(error: BaseException) -> Iterator[str]:
    """Where the canary is in the tracebacks of an error and of what led to it, but for this file."""
    one: traceback.TracebackException | None = traceback.TracebackException.from_exception(
        error, capture_locals=True
    )
    yield from [line for line in [str(error)] if CANARY in line]
    while one is not None:
        for frame in one.stack:
            values = (frame.locals or {}) if Path(frame.filename) != Path(__file__) else {}
            yield from (
                f"{frame.filename} {frame.name} {name}" for name, value in values.items() if CANARY in value
            )
        one = one.__cause__ or one.__context__


@pytest.mark.parametrize("url", REFUSED)
async def test_a_store_out_of_reach_shows_no_password(url: str) -> None:
    with pytest.raises(StoreUnavailable) as refused:
        await open_store(url).open()

    assert [*shown(refused.value)] == []


async def test_the_database_of_a_report_out_of_reach_shows_no_password() -> None:
    period = Period(date(2026, 1, 1), date(2026, 1, 2), ZoneInfo("UTC"))

    with pytest.raises(OSError, match="9") as refused:
        await rows_of(Query(database=POSTGRES, sql="SELECT 1"), period, 5)

    assert [*shown(refused.value)] == []


def test_a_password_in_a_variable_is_found() -> None:
    def connect(password: str) -> None:
        raise OSError(len(password))

    namespace: dict[str, Any] = {"connect": connect}
    exec(compile("def other(password):\n    connect(password)", "other.py", "exec"), namespace)
    with pytest.raises(OSError, match="14") as raised:
        namespace["other"](CANARY)

    assert [*shown(raised.value)] == ["other.py other password"]
