"""Export the tasks of a list as a file: JSON lines or CSV, bounded, page by page."""

import csv
import io
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ..._documents.tasks import TaskDocument
from ..._http.resources.tasks import list_tasks
from ..view import View

MAX_EXPORTED = 10_000
"""Tasks in one file; `windlass export` has no such bound."""

_PAGE = 200
_COLUMNS = (
    "id", "type", "queue", "tenant", "state", "priority", "attempt", "max_attempts", "created_at", "run_at",
    "claimed_at", "finished_at", "duration", "worker", "idempotency_key", "root", "payload", "result",
    "error_type", "error_message",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Format(Struct, frozen=True, kw_only=True):
    """How tasks are written."""

    suffix: str
    media_type: str
    head: bytes
    lines: Callable[[Sequence[TaskDocument]], bytes]


async def export_lines(view: View, kind: Format, where: Mapping[str, Any]) -> AsyncIterator[bytes]:
    """Yield the tasks that match, newest first, at most `MAX_EXPORTED`; secrets are masked."""
    yield kind.head
    left, cursor = MAX_EXPORTED, None
    while left > 0:
        after: dict[str, str] = {} if cursor is None else {"cursor": cursor}
        query = {**where, "limit": min(left, _PAGE), "newest_first": True, **after}
        page = await view.call(list_tasks, query=query)
        yield kind.lines(page.items)
        left, cursor = left - len(page.items), page.cursor
        if cursor is None:
            return


def _json_lines(items: Sequence[TaskDocument]) -> bytes:
    return b"".join(msgspec.json.encode(item) + b"\n" for item in items)


def _csv_lines(items: Sequence[TaskDocument]) -> bytes:
    return _rows([[_cell(_value(item, name)) for name in _COLUMNS] for item in items])


def _rows(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", "replace")


def _value(item: TaskDocument, name: str) -> Any:
    if name.startswith("error_"):
        return None if item.error is None else getattr(item.error, name.removeprefix("error_"))
    return getattr(item, name)


def _cell(value: Any) -> str:
    """Return a cell: text as it is, everything else as JSON; never what a spreadsheet takes for a formula."""
    if value is None:
        return ""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return msgspec.json.encode(value).decode().strip('"')


FORMATS = {
    "jsonl": Format(suffix="jsonl", media_type="application/x-ndjson", head=b"", lines=_json_lines),
    "csv": Format(suffix="csv", media_type="text/csv", head=_rows([_COLUMNS]), lines=_csv_lines),
}
