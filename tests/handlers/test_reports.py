"""generate_report: what the PDF says, read back, and how it looks, rendered by pdftoppm."""

import asyncio
import json
import sqlite3
import subprocess
from datetime import UTC, date, datetime, time, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pypdf import PdfReader

from tests.handlers.pictures import opened
from tests.handlers.runs import new_app, run
from tests.loops.workers import drained
from tests.servers.postgres import Postgres
from windlass import Fatal, InvalidOption, State, Task, handlers
from windlass._model.record import HistoryBucket, HistorySeries
from windlass._policy.history.buckets import HOUR, bucket_name
from windlass._policy.history.histogram import cell_of, histogram
from windlass.handlers.reports.pdf import render
from windlass.handlers.reports.period import parse_period
from windlass.handlers.reports.queue_report import queue_report

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
SALES = [{"day": "2026-11-15", "rope": 12, "total": 90.5}, {"day": "2026-11-16", "rope": 7, "total": 52.25}]


def message(task: Task) -> str:
    return task.error.message if task.error else ""


def result(task: Task) -> dict[str, Any]:
    assert task.state is State.COMPLETED, message(task)
    found: dict[str, Any] = json.loads(task.result or b"")
    return found


def text_of(content: bytes) -> str:
    return "\n".join(page.extract_text() for page in PdfReader(BytesIO(content)).pages)


def drawn(blocks: list[Any], **options: Any) -> bytes:
    usual = {"title": "Ropes", "subtitle": "a day", "footer": "made by tests", "font": None}
    made, (content,) = render({**usual, **options, "blocks": blocks}, [])
    assert len(PdfReader(BytesIO(content)).pages) == made["pages"]
    return content


class Office:
    """An app with generate_report, and the folder that it writes to."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.app = new_app()
        self.report = self.app.include(handlers.Reports(storage=str(folder), **settings))

    async def pdf(self, **payload: Any) -> tuple[dict[str, Any], str]:
        """The result of a task, and the text of its PDF."""
        made = result(await run(self.report, self.app, **payload))
        return made, text_of((self.folder / made["file"]).read_bytes())


async def test_the_day_of_the_queue(tmp_path: Path) -> None:
    office = Office(tmp_path)
    app = office.app

    @app.task(name="shop.pay", max_attempts=1)
    async def pay(amount: int) -> None:
        if amount > 2:
            raise Fatal("the card <b>was</b> refused & lost")

    for amount in range(4):
        await pay.using(tenant="acme" if amount else "other").aenqueue(amount=amount)
    await drained(app)
    today = datetime.now(UTC).date()
    made, text = await office.pdf(date=today.isoformat(), until=(today + timedelta(days=1)).isoformat())

    assert made["pages"] == 1
    assert made["name"] == f"report-{today}-to-{today + timedelta(days=1)}.pdf"
    for part in (
        "Task queue report",
        "(UTC)",
        "Throughput",
        "The period is not over: figures, chart and task types reach to ",
        "the card <b>was</b> refused & lost",
        "shop.pay",
        "acme",
        "page 1 of 1",
    ):
        assert part in text, text
    tenants = text.partition("Tenants")[2].split()
    assert tenants[tenants.index("acme") : tenants.index("acme") + 3] == ["acme", "2", "1"]


async def test_a_tenant_learns_nothing_of_others(tmp_path: Path) -> None:
    office = Office(tmp_path)
    app = office.app

    @app.task(name="shop.pay", max_attempts=1)
    async def pay(fault: str) -> None:
        if fault:
            raise Fatal(fault)

    for tenant, fault in (("acme", ""), ("acme", "no rope"), ("globex", "secret-of-globex"), ("globex", "")):
        await pay.using(tenant=tenant).aenqueue(fault=fault)
    await drained(app)
    today = datetime.now(UTC).date()
    days = {"date": today.isoformat(), "until": (today + timedelta(days=1)).isoformat()}
    handle = await office.report.using(tenant="acme").aenqueue(**days)
    await drained(app)
    made = result(await app.operator.task(handle.id))
    text = text_of((tmp_path / made["file"]).read_bytes())

    assert "no rope" in text
    assert "globex" not in text
    types = text.partition("Task types")[2].split()
    assert types[types.index("shop.pay") : types.index("shop.pay") + 3] == ["shop.pay", "1", "1"]


async def test_figures_are_those_of_history(tmp_path: Path) -> None:
    office = Office(tmp_path, zone="Africa/Lagos")  # an hour ahead of UTC in summer and winter
    now = datetime.now(UTC)
    day = now.date() - timedelta(days=2)
    midnight = datetime.combine(day, time(), ZoneInfo("Africa/Lagos")).astimezone(UTC)
    hours = {
        midnight - timedelta(hours=1): 500,
        midnight: 1_000,
        midnight + timedelta(hours=23): 234,
        midnight + timedelta(hours=24): 700,
    }
    await office.app.open()
    for at, number in hours.items():
        took = histogram({cell_of(2.0): number})
        series = HistorySeries(queue="q", type="shop.pay", completed=number, retried=6, buried=1, run=took)
        await office.app.store.put(HistoryBucket(name=bucket_name(HOUR, at), series=(series,)))
    blocks = await queue_report(office.app, parse_period(day, None, "Africa/Lagos", now), now)

    figures, bars = dict(blocks[0]["figures"]), blocks[2]["bars"]
    assert figures["tasks completed"] == "1,234"
    assert (figures["failed attempts"], figures["failure rate"], figures["dead letters"]) == (
        "14",
        "1.1 %",
        "2",
    )
    assert figures["p95 run time"] in ("1.9 s", "2.0 s", "2.1 s")
    assert (bars["labels"][0], bars["labels"][-1], len(bars["labels"])) == ("00:00", "23:00", 24)
    assert [n for n in bars["series"][0]["values"] if n] == [1_000, 234]
    assert blocks[4]["table"]["rows"][0][:4] == ["shop.pay", 1_234, 14, 2]


@pytest.mark.system
async def test_a_query_of_postgres_is_read_only(postgres_newest: Postgres, tmp_path: Path) -> None:
    database = postgres_newest.new_database("sales_report")
    instants = "$1::timestamptz AS since, $2::timestamptz AS until"
    queries = {
        "sales": {"database": database, "sql": f"SELECT {instants}, 7.5 AS n"},
        "evil": {"database": database, "sql": f"CREATE TABLE x AS SELECT {instants}"},
    }
    office = Office(tmp_path, sources=queries)
    _, text = await office.pdf(source="sales", date="2026-11-15")
    evil = await run(office.report, office.app, source="evil")

    assert "2026-11-15 00:00:00+00:00" in text.replace("\n", " ")
    assert evil.state is State.SCHEDULED


async def test_rows_become_a_table(tmp_path: Path) -> None:
    office = Office(tmp_path)
    before = datetime.now(UTC).date()
    made, text = await office.pdf(rows=SALES, title="Sales", columns=["total", "day"])

    assert made["name"] in {f"report-{day}.pdf" for day in (before, datetime.now(UTC).date())}
    assert "Sales" in text
    assert "90.5" in text
    assert "2026-11-15" in text
    assert "rope" not in text
    again, _ = await office.pdf(rows=SALES, title="Other")
    assert made["file"] != again["file"]
    assert (await office.pdf(rows=[]))[1].count("There are no rows.") == 1


async def test_a_query_of_sqlite_is_read_only(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE sales (day TEXT, rope INTEGER)")
    connection.executemany(
        "INSERT INTO sales VALUES (?, ?)", [("2026-11-15T10:00", 7), ("2026-11-17T09:00", 99)]
    )
    connection.commit()
    connection.close()
    queries = {
        "sales": {
            "database": f"sqlite:///{path}",
            "sql": "SELECT day, rope FROM sales WHERE day >= ?1 AND day < ?2",
        },
        "evil": {"database": f"sqlite:///{path}", "sql": "DELETE FROM sales WHERE ?1 < ?2"},
    }
    office = Office(tmp_path / "files", sources=queries)
    _, text = await office.pdf(source="sales", date="2026-11-15", until="2026-11-16")
    evil = await run(office.report, office.app, source="evil")

    assert "2026-11-15T10:00" in text
    assert "99" not in text
    assert evil.state is State.SCHEDULED
    assert "readonly" in message(evil)


async def test_a_function_gives_rows(tmp_path: Path) -> None:
    def weekly(period: Any) -> list[dict[str, Any]]:
        return [{"since": period.since, "days": period.days, "nested": {"a": [1]}}]

    async def slow(period: Any) -> list[dict[str, Any]]:
        await asyncio.Event().wait()
        return []

    office = Office(tmp_path, sources={"weekly": weekly, "slow": slow}, zone="Europe/Berlin", timeout=1)
    _, text = await office.pdf(source="weekly", date="2026-10-25")
    late = await run(office.report, office.app, source="slow")

    assert "2026-10-24 22:00:00+00:00" in text.replace("\n", " ")
    assert '{"a":[1]}' in text
    assert late.state is State.SCHEDULED


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"source": "none"}, "there is no source 'none'; configured are: many, wide, wrong"),
        ({"source": "many"}, "at most 5,000 rows"),
        ({"source": "wide"}, "at most 20 columns, got 21"),
        ({"source": "wrong"}, "each row of a report must be an object"),
        ({"zone": "Mars/Crater"}, "is not a time zone"),
        ({"zone": "../../etc/passwd"}, "is not a time zone"),
        ({"date": "2026-11-16", "until": "2026-11-15"}, "a report is of 1 to 91 days"),
        ({"date": "2026-01-01", "until": "2026-12-31"}, "a report is of 1 to 91 days"),
    ],
)
async def test_a_wrong_payload_is_dead_at_once(
    tmp_path: Path, payload: dict[str, Any], expected: str
) -> None:
    sources = {
        "many": lambda _: [{"n": n} for n in range(5001)],
        "wide": lambda _: [{str(n): n for n in range(21)}],
        "wrong": lambda _: [1],
    }
    office = Office(tmp_path, sources=sources)
    task = await run(office.report, office.app, **payload)

    assert task.state is State.DEAD
    assert expected in message(task)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"zone": "nowhere"}, "is not a time zone"),
        ({"font": "/nowhere.ttf"}, "there is no file"),
        ({"sources": {"a": {"database": "mysql://x", "sql": ""}}}, "database must be sqlite"),
        ({"sources": {"a": {"sql": ""}}}, "missing required field `database`"),
        ({"sources": {"a": 7}}, "must be a Query or a function"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidOption, match=expected):
        handlers.Reports(**settings)


def test_a_day_may_have_23_or_25_hours() -> None:
    long = parse_period(date(2026, 10, 25), None, "Europe/Berlin", NOON)
    short = parse_period(date(2026, 3, 29), None, "Europe/Berlin", NOON)

    assert (long.until - long.since, short.until - short.since) == (timedelta(hours=25), timedelta(hours=23))
    assert parse_period(None, None, "Pacific/Auckland", NOON).first == date(2026, 11, 16)


# -- the PDF -----------------------------------------------------------------------------------------

TABLE = {"columns": ["type", "number"], "rows": [[f"shop.type-{n}", n] for n in range(120)]}
BARS = {
    "labels": [f"{n:02}:00" for n in range(24)],
    "series": [
        {"name": "completed", "values": [n * 7 % 40 for n in range(24)]},
        {"name": "failed attempts", "values": [n % 5 for n in range(24)]},
    ],
}


def test_pages_are_numbered_and_headers_repeated() -> None:
    content = drawn([{"table": TABLE}])
    pages = [page.extract_text() for page in PdfReader(BytesIO(content)).pages]

    assert len(pages) == 3
    assert all(f"page {n} of 3" in text and "made by tests" in text for n, text in enumerate(pages, 1))
    assert all("number" in text for text in pages)
    assert "shop.type-119" in pages[2]


def test_the_same_blocks_are_the_same_bytes() -> None:
    assert drawn([{"table": TABLE}, {"bars": BARS}]) == drawn([{"table": TABLE}, {"bars": BARS}])


@pytest.mark.parametrize(
    "text",
    [
        "<font color='red'>x</font>",
        "<img src='file:///etc/passwd'/>",
        "</para>",
        "&#0;",
        "[[[getattr(__builtins__)]]]",
        "a\0b\x1b[2J",
        "\u2693 \u4e2d\u6587",
        "x" * 5_000,
    ],
)
def test_text_is_never_markup(text: str) -> None:
    blocks = [
        {"heading": text},
        {"text": text},
        {"figures": [(text[:20], text[:20])]},
        {"bars": {"labels": [text[:20]], "series": [{"name": text[:20], "values": [1]}]}},
        {"table": {"columns": [text[:20]], "rows": [[text]]}},
    ]
    got = text_of(drawn(blocks, title=text[:200], subtitle=text, footer=text[:100]))

    if text.startswith(("<", "[", "&")):
        assert text in got.replace("\n", "")


def test_empty_charts_and_tables_can_be_drawn() -> None:
    bars = {"labels": ["a", "b"], "series": [{"name": "none", "values": [0, 0]}]}

    assert drawn([{"bars": bars}, {"table": {"columns": ["a"], "rows": []}}, {"figures": []}])


def test_it_looks_like_a_report(tmp_path: Path) -> None:
    """Rendered as a picture: bars in both colours, and nothing beyond the margins."""
    figures = [("completed", "12,345"), ("failed", "67"), ("rate", "0.5 %"), ("dead", "3"), ("wait", "12 ms")]
    content = drawn([{"figures": figures}, {"heading": "Throughput"}, {"bars": BARS}, {"table": TABLE}])
    (tmp_path / "report.pdf").write_bytes(content)
    command = ["pdftoppm", "-png", "-r", "60", tmp_path / "report.pdf", tmp_path / "page"]
    subprocess.run(command, check=True, timeout=30)
    pages = sorted(tmp_path.glob("page-*.png"))
    first = opened(pages[0].read_bytes()).convert("RGB")
    found = {colour for _, colour in first.getcolors(1 << 20) or ()}

    assert len(pages) == 4
    assert {(0x2F, 0x6F, 0x9F), (0xC8, 0x55, 0x3D)} <= found  # the series of the bars
    width, height = first.size
    margin = int(width * 0.07)
    for left in (0, width - margin):
        strip = first.crop((left, 0, left + margin, height))
        assert strip.getcolors() == [(margin * height, (255, 255, 255))]
