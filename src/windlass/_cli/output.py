"""One value, two looks: a table that people read, or a line of JSON for each item that scripts read."""

import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from .escaping import document, line, lines
from .terminal import stderr, stdout

T = TypeVar("T")

_GAP = 2
_LEAST = 8  # columns that a shrunk cell keeps

Styled: TypeAlias = tuple[str, str]
"""A text and its style."""


class Column(Struct, Generic[T], frozen=True):
    """One column. An elastic one gives way to the others, an optional one disappears before that."""

    title: str
    cell: Callable[[T], str | Styled]
    right: bool = False
    elastic: bool = False
    optional: bool = False
    keeps_end: bool = False  # when cut, for dotted names, whose end says most
    wraps: bool = False  # goes on below instead of being cut; for the last column


class Output(Struct, frozen=True):
    """Answers in the way that was asked for. Everything shown is escaped here, and nowhere else."""

    as_json: bool = False

    def items(
        self,
        values: Sequence[T],
        columns: Sequence[Column[T]],
        as_document: Callable[[T], dict[str, Any]],
        *,
        none: str,
    ) -> None:
        """Several things: a table, or a line of JSON for each; `none` is said to people if there are none."""
        if self.as_json:
            for value in values:
                self.document(as_document(value))
        elif not values:
            self.note(none)
        else:
            _print_table(values, columns)

    def document(self, value: Any) -> None:
        """One JSON value on a line."""
        print(document(value, encoding=sys.stdout.encoding or "utf-8"))

    def fields(self, pairs: Iterable[tuple[str, str | Styled]]) -> None:
        """One thing, a field a line; empty ones are left out."""
        shown = [(name, *_styled(value)) for name, value in pairs]
        wide = max(len(name) for name, _, _ in shown)
        rows: list[list[Styled]] = []
        for name, text, style in shown:
            for number, one in enumerate(lines(text) if text else []):
                rows.append([((name if number == 0 else "").ljust(wide), "dim"), (one, style)])
        _print_lines(rows, gap=_GAP)

    def heading(self, text: str) -> None:
        """A title above what follows."""
        _print_lines([[], [(line(text), "bold")]])

    def say(self, text: str, value: dict[str, Any] | None = None) -> None:
        """What was done, in a sentence; or, where JSON is wanted, this value."""
        if not self.as_json:
            _print_lines([[(line(text), "")]])
        elif value is not None:
            self.document(value)

    def note(self, text: str, *, warning: bool = False) -> None:
        """An aside for people, on stderr: never part of the answer."""
        if not self.as_json:
            style = "yellow" if warning else "dim"
            stderr().print(line(text), style=style, markup=False)


def _print_table(values: Sequence[T], columns: Sequence[Column[T]]) -> None:
    cells = [[_styled(column.cell(value)) for column in columns] for value in values]
    rows = [[(line(text), style) for text, style in row] for row in cells]
    widths = _fit(rows, columns, stdout().width)
    shown = [index for index, width in enumerate(widths) if width]
    if columns[-1].wraps and widths[-1]:
        rows = [part for row in rows for part in _wrapped(row, widths[-1])]
    head = [(column.title, "bold") for column in columns]
    _print_lines(([_pad(*row[i], widths[i], columns[i]) for i in shown] for row in [head, *rows]), gap=_GAP)


def _wrapped(row: list[Styled], width: int) -> list[list[Styled]]:
    """The row, its last cell going on below."""
    text, style = row[-1]
    first, *rest = textwrap.wrap(text, width) or [""]
    return [[*row[:-1], (first, style)], *([*(("", "") for _ in row[:-1]), (part, style)] for part in rest)]


def _fit(rows: list[list[Styled]], columns: Sequence[Column[Any]], width: int) -> list[int]:
    """How wide each column is: 0 if it is left out. What neither gives way nor disappears is never cut."""
    from rich.cells import cell_len

    widths = [
        max(cell_len(column.title), *(cell_len(row[index][0]) for row in rows))
        for index, column in enumerate(columns)
    ]
    for index in reversed([i for i, column in enumerate(columns) if column.optional]):
        empty = all(not row[index][0] for row in rows)
        if empty or _total(widths) - _slack(widths, columns) > width:
            widths[index] = 0
    while (excess := _total(widths) - width) > 0:
        index = max(
            (i for i, column in enumerate(columns) if column.elastic and widths[i] > _LEAST),
            key=lambda i: widths[i],
            default=-1,
        )
        if index < 0:
            break
        widths[index] -= max(1, min(excess, widths[index] - _LEAST) // 2)
    return widths


def _total(widths: list[int]) -> int:
    shown = [width for width in widths if width]
    return sum(shown) + _GAP * (len(shown) - 1)


def _slack(widths: list[int], columns: Sequence[Column[Any]]) -> int:
    """What elastic columns would give before an optional one has to go."""
    return sum(max(0, widths[i] - 2 * _LEAST) for i, column in enumerate(columns) if column.elastic)


def _pad(text: str, style: str, width: int, column: Column[Any]) -> Styled:
    from rich.cells import cell_len

    whole = text
    while cell_len(text) > width:
        most = len(text) - max(1, (cell_len(text) - width) // 2)
        text = f"…{text[-most + 1 :]}" if column.keeps_end else f"{text[: most - 1]}…"
    if text != whole and column.keeps_end and "." in text:  # better whole parts of a dotted name
        text = f"…{text.partition('.')[2]}"
    blank = " " * (width - cell_len(text))
    return (f"{blank}{text}" if column.right else f"{text}{blank}"), style


def _print_lines(rows: Iterable[Sequence[Styled]], *, gap: int = 0) -> None:
    from rich.text import Text

    console = stdout()
    between = Text(" " * gap)
    for row in rows:
        whole = between.join(Text(text, style) for text, style in row)
        whole.rstrip()
        console.print(whole, soft_wrap=True)


def _styled(value: str | Styled) -> Styled:
    return (value, "") if isinstance(value, str) else value
