"""The task type generate_report and its settings."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import force_setattr

from ..._handler.context import INJECTED, Context
from ..._model.brief import Brief
from ..._policy.backoff import Backoff
from ...errors import InvalidOption
from ...signals import Fatal
from ...tasktype import TaskType
from ..sandbox import Bounds, SandboxError, run_in_sandbox
from ..settings import HandlerSettings, errors_of, required
from ..storage import DEFAULT_STORAGE, Storage, content_name, open_storage, public_url
from .period import Period, parse_period
from .queue_report import queue_report, tenant_report
from .sources import Query, check_source, checked_rows, rows_of

if TYPE_CHECKING:
    from ...app import App

FUNCTION = f"{Path(__file__).with_name('pdf.py')}:render"  # not imported: only the child has reportlab
MAX_COLUMNS = 20
_BACKOFF = Backoff(base=10, factor=3, cap=1800, max_attempts=5)
_EXAMPLE = {"date": "2026-11-15", "zone": "Europe/Berlin"}
_TYPE = "application/pdf"


class Report(Brief, Struct, frozen=True, kw_only=True):
    """The result. It can be given to send_email as an attachment."""

    name: str
    file: str
    url: str | None
    type: str
    pages: int
    bytes: int


class Reports(HandlerSettings, frozen=True):
    """Settings of generate_report.

    `storage`: a directory, s3://bucket/prefix, or a `Storage`. `sources`: queries and functions by name, from
    which reports can be made. `zone`: the time zone of days. `font`: a TrueType file, for texts that Latin
    letters cannot write. `timeout`: seconds for a query, and for drawing.
    """

    table: ClassVar[str] = "reports"
    task: ClassVar[str] = "generate_report"

    storage: str | Storage = DEFAULT_STORAGE
    sources: dict[str, Any] = field(default_factory=dict)
    zone: str = "UTC"
    font: str | None = None
    timeout: float = 60.0
    queue: str = "reports"
    max_attempts: int = _BACKOFF.max_attempts

    def __post_init__(self) -> None:
        parse_period(None, None, self.zone, datetime.now(UTC))
        if self.font is not None and not Path(self.font).is_file():
            raise InvalidOption(f"font: there is no file {self.font}")
        sources = dict(self.sources)
        for name, source in sources.items():
            with errors_of(f"sources.{name}"):
                if isinstance(source, dict):  # from a settings file
                    try:
                        sources[name] = msgspec.convert(source, Query)
                    except msgspec.ValidationError as error:
                        raise InvalidOption(str(error)) from None
                check_source(name, sources[name])
        force_setattr(self, "sources", sources)

    def __call__(self, app: "App") -> TaskType[..., Any, Report]:
        """Declare generate_report."""
        required("reportlab.platypus", "reports", self.task)
        declared: TaskType[..., Any, Report] = app.task(
            name=self.task,
            queue=self.queue,
            backoff=_BACKOFF,
            max_attempts=self.max_attempts,
            timeout=2 * self.timeout + 60,
            example=_EXAMPLE,
        )(_Reporter(self, app).generate_report)
        return declared


class _Reporter:
    def __init__(self, settings: Reports, app: "App") -> None:
        self._settings = settings
        self._app = app
        self._files, self._base = open_storage(settings.storage, settings.task)

    async def generate_report(
        self,
        date: date | None = None,
        until: date | None = None,
        zone: str | None = None,
        title: str | None = None,
        source: str | None = None,
        rows: list[dict[str, Any]] | None = None,
        columns: list[str] | None = None,
        *,
        ctx: Context = INJECTED,
    ) -> Report:
        """Make a PDF of what the queue did on a day or in a period, or of rows, and store it.

        `date`: the day, or the first; `until`: the last [default: yesterday; with `rows`, today]. `source`:
        the name of a configured one; `rows`: a table to print. `columns`: in this order [default: all].
        """
        try:
            now = datetime.now(UTC)
            place = zone or self._settings.zone
            if rows is None:
                period = parse_period(date, until, place, now)
            else:  # the same in every attempt
                period = parse_period(date, until, place, ctx.task.created_at, days_ago=0)
            if source is not None or rows is not None:
                blocks = await self._table(source, rows, columns, period)
                heading = title or source or "Report"
            else:
                tenant = ctx.task.tenant
                if tenant:
                    blocks = await tenant_report(self._app, period, tenant)
                else:
                    blocks = await queue_report(self._app, period, now)
                heading = title or "Task queue report"
        except InvalidOption as error:
            raise Fatal(str(error)) from None
        ctx.progress(0.5, "drawing")
        return await self._drawn(heading, blocks, period, ctx)

    async def _drawn(self, title: str, blocks: list[Any], period: Period, ctx: Context) -> Report:
        made_at = ctx.task.created_at.astimezone(period.zone)
        options = {
            "title": title[:200],
            "subtitle": f"{period} ({period.zone.key})",
            "footer": f"enqueued {made_at:%Y-%m-%d %H:%M} {period.zone.key} · {self._app.store_name}"[:150],
            "font": self._settings.font,
            "blocks": blocks,
        }
        try:
            plain = msgspec.to_builtins(options, str_keys=True)
            bounds = Bounds(cpu=int(self._settings.timeout) + 1, seconds=self._settings.timeout * 2)
            made, (content,) = await run_in_sandbox(FUNCTION, plain, [], bounds)
        except SandboxError as error:
            raise Fatal(f"the report cannot be drawn: {error}") from None
        name = content_name("reports", content, "pdf")
        await self._files.put(name, content, _TYPE)
        return Report(
            name=f"report-{str(period).replace(' ', '-')}.pdf",
            file=name,
            url=public_url(self._base, name),
            type=_TYPE,
            pages=made["pages"],
            bytes=len(content),
        )

    async def _table(
        self, source: str | None, rows: list[dict[str, Any]] | None, columns: list[str] | None, period: Period
    ) -> list[Any]:
        """Return a table of the rows of a source, or of those given."""
        if source is not None:
            if source not in self._settings.sources:
                known = ", ".join(sorted(self._settings.sources)) or "none"
                raise InvalidOption(f"there is no source {source[:100]!r}; configured are: {known}")
            found = await rows_of(self._settings.sources[source], period, self._settings.timeout)
        else:
            found = checked_rows(rows or [])
        names = columns or [*dict.fromkeys(name for row in found for name in row)]
        if not names:
            return [{"text": "There are no rows."}]
        if len(names) > MAX_COLUMNS:
            raise InvalidOption(f"a report has at most {MAX_COLUMNS} columns, got {len(names)}")
        table = {"columns": names, "rows": [[_cell(row.get(name)) for name in names] for row in found]}
        return [{"table": table}, {"text": f"{len(found):,} rows." if len(found) != 1 else "1 row."}]


def _cell(value: object) -> object:
    """Return a value as a table shows it: JSON for what is nested, text for what JSON has no value for."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    return str(value)
