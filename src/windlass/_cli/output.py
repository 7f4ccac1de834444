"""What a command prints: tables and fields for people, or one JSON object per line for scripts."""

import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TextIO, TypeAlias, TypeVar

from msgspec import Struct

from .text import escaped_lines, json_text, one_line

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")

_GAP = 2
_MIN_WIDTH = 8  # to which an elastic column may shrink
_UNBOUNDED = 1_000_000

Styled: TypeAlias = tuple[str, str]
"""A text and its style."""

Document: TypeAlias = Struct | dict[str, Any]
"""What `--json` prints; see windlass._documents."""


def stdout() -> "Console":
    """The console for results."""
    return _console(sys.stdout)


def stderr() -> "Console":
    """The console for errors, notes and questions."""
    return _console(sys.stderr)


def _console(stream: TextIO) -> "Console":
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # handled where every command ends, in exit_codes.py

    # A pipe has no width: tables are written to it whole.
    width = None if stream.isatty() else _UNBOUNDED
    return PipeConsole(file=stream, width=width, highlight=False, markup=True, emoji=False)


def escape_unencodable() -> None:
    """Make both streams escape characters that their encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


class Column(Struct, Generic[T], frozen=True):
    """A column of a table.

    If space is short, optional columns are dropped first, then elastic ones cut, then ids cut to a prefix.
    """

    title: str
    cell: Callable[[T], str | Styled]
    right: bool = False
    elastic: bool = False
    optional: bool = False
    keeps_end: bool = False  # cut at the start: the end of a dotted name is its most telling part
    wraps: bool = False  # wrapped instead of cut; for the last column
    prefix: int = 0  # characters of an id that identify it, as commands take it; 0: show it whole


class Output(Struct, frozen=True):
    """Prints results as text or as JSON. All text is escaped here and nowhere else."""

    as_json: bool = False

    def items(
        self,
        values: Sequence[T],
        columns: Sequence[Column[T]],
        as_document: Callable[[T], Document] | None = None,
        *,
        none: str,
    ) -> None:
        """Print a table, or a line of JSON for each value; an empty table prints the note `none`.

        Without `as_document` the values are documents themselves.
        """
        if self.as_json:
            for value in values:
                self.document(as_document(value) if as_document else value)
        elif not values:
            self.note(none)
        else:
            _print_lines(table_rows(values, columns, stdout().width), gap=_GAP)

    def document(self, value: Any) -> None:
        """Print one JSON value on a line."""
        print(json_text(value, encoding=sys.stdout.encoding or "utf-8"))

    def fields(self, pairs: Iterable[tuple[str, str | Styled]]) -> None:
        """Print names and values, one pair per line; empty values are left out."""
        shown = [(name, *_styled(value)) for name, value in pairs]
        width = max(len(name) for name, _, _ in shown)
        rows: list[list[Styled]] = []
        for name, text, style in shown:
            for number, line in enumerate(escaped_lines(text) if text else []):
                rows.append([((name if number == 0 else "").ljust(width), "dim"), (line, style)])
        _print_lines(rows, gap=_GAP)

    def heading(self, text: str) -> None:
        """Print a blank line and a title."""
        _print_lines([[], [(one_line(text), "bold")]])

    def say(self, text: str, value: Document | None = None) -> None:
        """Print the text, or with --json the value, if there is one."""
        if not self.as_json:
            _print_lines([[(one_line(text), "")]])
        elif value is not None:
            self.document(value)

    def note(self, text: str, *, warning: bool = False) -> None:
        """Print a remark to stderr; nothing with --json."""
        if not self.as_json:
            style = "yellow" if warning else "dim"
            stderr().print(one_line(text), style=style, markup=False)


def table_rows(values: Sequence[T], columns: Sequence[Column[T]], width: int) -> list[list[Styled]]:
    """Return the rows of a table that fits the width, its head first."""
    cells = [[_styled(column.cell(value)) for column in columns] for value in values]
    rows = [[(one_line(text), style) for text, style in row] for row in cells]
    widths = _fit(rows, columns, width)
    shown = [index for index, width in enumerate(widths) if width]
    if columns[-1].wraps and widths[-1]:
        rows = [part for row in rows for part in _wrapped(row, widths[-1])]
    head = [(column.title, "bold") for column in columns]
    return [[_pad(*row[i], widths[i], columns[i]) for i in shown] for row in [head, *rows]]


def _wrapped(row: list[Styled], width: int) -> list[list[Styled]]:
    """Wrap the last cell of a row onto rows below it."""
    text, style = row[-1]
    first, *rest = textwrap.wrap(text, width) or [""]
    return [[*row[:-1], (first, style)], *([*(("", "") for _ in row[:-1]), (part, style)] for part in rest)]


def _fit(rows: list[list[Styled]], columns: Sequence[Column[Any]], width: int) -> list[int]:
    """The width of each column, 0 to drop it. A column that is neither elastic nor optional is never cut.

    In a terminal that is too narrow even so, the last columns are dropped; the first two are always shown.
    """
    from rich.cells import cell_len

    widths = [
        max([cell_len(column.title), *(cell_len(row[index][0]) for row in rows)])
        for index, column in enumerate(columns)
    ]
    for index in reversed([i for i, column in enumerate(columns) if column.optional]):
        empty = all(not row[index][0] for row in rows)
        if empty or _total(widths) - _slack(widths, columns, 2 * _MIN_WIDTH) > width:
            widths[index] = 0
    if _total(widths) - _slack(widths, columns, _MIN_WIDTH) > width:
        widths = [min(w, column.prefix or w) for w, column in zip(widths, columns, strict=True)]
    while (excess := _total(widths) - width) > 0:
        index = max(
            (i for i, column in enumerate(columns) if column.elastic and widths[i] > _MIN_WIDTH),
            key=lambda i: widths[i],
            default=-1,
        )
        if index < 0:
            break
        widths[index] -= max(1, min(excess, widths[index] - _MIN_WIDTH) // 2)
    for index in reversed(range(2, len(widths))):
        if _total(widths) > width and not columns[index].wraps:
            widths[index] = 0
    return widths


def _total(widths: list[int]) -> int:
    shown = [width for width in widths if width]
    return sum(shown) + _GAP * (len(shown) - 1)


def _slack(widths: list[int], columns: Sequence[Column[Any]], least: int) -> int:
    """By how much elastic columns may shrink if each keeps its least width."""
    return sum(max(0, widths[i] - least) for i, column in enumerate(columns) if column.elastic)


def _pad(text: str, style: str, width: int, column: Column[Any]) -> Styled:
    from rich.cells import cell_len

    text = text[:width] if column.prefix else text
    uncut = text
    while cell_len(text) > width:
        most = len(text) - max(1, (cell_len(text) - width) // 2)
        text = f"…{text[-most + 1 :]}" if column.keeps_end else f"{text[: most - 1]}…"
    if text != uncut and column.keeps_end and "." in text:  # cut a dotted name between its parts
        text = f"…{text.partition('.')[2]}"
    blank = " " * (width - cell_len(text))
    return (f"{blank}{text}" if column.right else f"{text}{blank}"), style


def _print_lines(rows: Iterable[Sequence[Styled]], *, gap: int = 0) -> None:
    from rich.text import Text

    console = stdout()
    between = Text(" " * gap)
    for row in rows:
        line = between.join(Text(text, style) for text, style in row)
        line.rstrip()
        console.print(line, soft_wrap=True)


def _styled(value: str | Styled) -> Styled:
    return (value, "") if isinstance(value, str) else value
