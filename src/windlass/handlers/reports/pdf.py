"""Lay out a report as PDF. Runs in the sandbox, which bounds the time and memory that it takes.

A report is a list of blocks: headings, texts, figures, bars and tables. Texts are drawn as they are: nothing
in them is markup.
"""

import io
import re
from collections.abc import Callable, Sequence
from typing import Any
from xml.sax.saxutils import escape

from reportlab.graphics.charts.barcharts import VerticalBarChart
from reportlab.graphics.charts.legends import Legend
from reportlab.graphics.shapes import Drawing
from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

_INK, _GREY, _LINE, _PALE = (colors.HexColor(f"#{code}") for code in ("1f2933", "66727f", "d5dbe1", "f4f6f8"))
_SERIES = tuple(colors.HexColor(f"#{code}") for code in ("2f6f9f", "c8553d", "e0a03b", "6a9f58"))
_MARGIN = 18 * mm
_INSET = 6  # of frames, by reportlab
_WIDTH = A4[0] - 2 * (_MARGIN + _INSET)
_NUMBER = re.compile(r"\d[\d,.]*( [a-z%]{1,4})?|\N{EN DASH}")
_MAX_CELL = 300
_WRAPPED = 24  # longer cells are broken into lines


def render(options: Any, _: Sequence[bytes]) -> tuple[dict[str, int], list[bytes]]:
    """Draw the blocks of `options`; return the number of pages, and the PDF."""
    sheet = _Sheet(options["font"])
    file = io.BytesIO()
    document = SimpleDocTemplate(
        file,
        pagesize=A4,
        leftMargin=_MARGIN,
        rightMargin=_MARGIN,
        topMargin=_MARGIN,
        bottomMargin=_MARGIN + 4 * mm,
        title=options["title"],
        author="windlass",
        invariant=1,  # the same blocks give the same bytes
    )
    story: list[Any] = [
        Paragraph(sheet.text(options["title"]), sheet.title),
        Paragraph(sheet.text(options["subtitle"]), sheet.small),
        Spacer(1, 5 * mm),
    ]
    for block in options["blocks"]:
        story += sheet.drawn(block)
    pages: list[int] = []
    document.build(story, canvasmaker=sheet.numbered(options["footer"], pages))
    return {"pages": pages[0]}, [file.getvalue()]


class _Sheet:
    """Styles, and how each kind of block is drawn with them."""

    def __init__(self, font: str | None) -> None:
        self._encoding: str | None = "cp1252"
        self._font, self._bold = "Helvetica", "Helvetica-Bold"
        if font is not None:
            pdfmetrics.registerFont(TTFont("Given", font))
            self._font = self._bold = "Given"
            self._encoding = None
        usual: dict[str, Any] = {"fontName": self._font, "textColor": _INK, "splitLongWords": True}
        self.title = ParagraphStyle("title", **usual | {"fontName": self._bold}, fontSize=20, leading=25)
        bold = usual | {"fontName": self._bold}
        self.heading = ParagraphStyle(
            "heading", **bold, fontSize=12, leading=16, spaceBefore=10, spaceAfter=4
        )
        self.body = ParagraphStyle("body", **usual, fontSize=9, leading=12)
        self.cell = ParagraphStyle("cell", **usual, fontSize=8, leading=10)
        self.small = ParagraphStyle("small", **usual | {"textColor": _GREY}, fontSize=9, leading=12)

    def text(self, value: object) -> str:
        """Return text for a paragraph, of which nothing is markup."""
        return escape(self._drawable(str(value)))

    def drawn(self, block: dict[str, Any]) -> list[Any]:
        draw: dict[str, Callable[[Any], list[Any]]] = {
            "heading": lambda value: [Paragraph(self.text(value), self.heading)],
            "text": lambda value: [Paragraph(self.text(value), self.body), Spacer(1, 2 * mm)],
            "figures": self._figures,
            "bars": self._bars,
            "table": self._table,
        }
        (kind, value), *_ = block.items()
        return draw[kind](value)

    def numbered(self, footer: str, pages: list[int]) -> type[Canvas]:
        """Return a canvas that writes the number of each page and of all below it, and keeps the latter."""
        font, drawable = self._font, self._drawable

        class Numbered(Canvas):  # type: ignore[misc]  # reportlab has no types
            def __init__(self, *args: Any, **options: Any) -> None:
                super().__init__(*args, **options)
                self._kept: list[dict[str, Any]] = []

            def showPage(self) -> None:  # noqa: N802  reportlab's name
                self._kept.append(dict(self.__dict__))
                self._startPage()

            def save(self) -> None:
                pages.append(len(self._kept))
                for number, state in enumerate(self._kept, 1):
                    self.__dict__.update(state)
                    self.setFont(font, 8)
                    self.setFillColor(_GREY)
                    left, where = _MARGIN + _INSET, f"page {number} of {len(self._kept)}"
                    self.drawString(left, 12 * mm, drawable(footer))
                    self.drawRightString(left + _WIDTH, 12 * mm, where)
                    super().showPage()
                super().save()

        return Numbered

    def _drawable(self, text: str) -> str:
        """Replace what the font cannot show."""
        plain = "".join(one if one.isprintable() else " " for one in text)
        return (
            plain
            if self._encoding is None
            else plain.encode(self._encoding, "replace").decode(self._encoding)
        )

    def _figures(self, figures: list[tuple[str, str]]) -> list[Any]:
        """Draw numbers in boxes, four in a row."""
        drawn: list[Any] = []
        for start in range(0, len(figures), 4):
            row = figures[start : start + 4]
            labels = [self._drawable(label) for label, _ in row] + [""] * (4 - len(row))
            values = [self._drawable(value) for _, value in row] + [""] * (4 - len(row))
            table = Table([values, labels], colWidths=[_WIDTH / 4] * 4)
            table.setStyle(
                TableStyle(
                    [
                        ("FONT", (0, 0), (-1, 0), self._bold, 16, 20),
                        ("FONT", (0, 1), (-1, 1), self._font, 8, 10),
                        ("TEXTCOLOR", (0, 0), (-1, 0), _INK),
                        ("TEXTCOLOR", (0, 1), (-1, 1), _GREY),
                        ("BACKGROUND", (0, 0), (len(row) - 1, -1), _PALE),
                        ("LINEAFTER", (0, 0), (-2, -1), 3, colors.white),
                        ("LEFTPADDING", (0, 0), (-1, -1), 8),
                        ("BOTTOMPADDING", (0, 1), (-1, 1), 8),
                    ]
                )
            )
            drawn += [table, Spacer(1, 3 * mm)]
        return drawn

    def _bars(self, bars: dict[str, Any]) -> list[Any]:
        """Draw stacked bars, one for each label, with a legend."""
        drawing = Drawing(_WIDTH, 62 * mm)
        chart = VerticalBarChart()
        chart.x, chart.y, chart.width, chart.height = 34, 26, _WIDTH - 40, 62 * mm - 52
        chart.data = [series["values"] for series in bars["series"]]
        labels = [self._drawable(label) for label in bars["labels"]]
        every = max(1, len(labels) // 12)
        chart.categoryAxis.categoryNames = [one if not n % every else "" for n, one in enumerate(labels)]
        chart.categoryAxis.style = "stacked"
        chart.categoryAxis.labels.fontName, chart.categoryAxis.labels.fontSize = self._font, 7
        chart.categoryAxis.strokeColor = chart.valueAxis.strokeColor = _LINE
        chart.categoryAxis.visibleTicks = False
        chart.valueAxis.labels.fontName, chart.valueAxis.labels.fontSize = self._font, 7
        chart.valueAxis.valueMin = 0
        highest = max((sum(values) for values in zip(*chart.data, strict=True)), default=0)
        if not highest:
            chart.valueAxis.valueMax = 1
        chart.valueAxis.labelTextFormat = lambda value: f"{value:,.0f}" if highest >= 5 else f"{value:g}"
        chart.valueAxis.visibleGrid, chart.valueAxis.gridStrokeColor = True, _LINE
        chart.barWidth, chart.groupSpacing = 8, 3
        legend = Legend()
        legend.x, legend.y, legend.boxAnchor = 34, 62 * mm - 4, "nw"
        legend.alignment, legend.columnMaximum, legend.deltax = "right", 1, 90
        legend.fontName, legend.fontSize, legend.strokeWidth = self._font, 8, 0
        legend.dx = legend.dy = 7
        legend.colorNamePairs = []
        for number, series in enumerate(bars["series"]):
            chart.bars[number].fillColor = _SERIES[number % len(_SERIES)]
            chart.bars[number].strokeColor = None
            legend.colorNamePairs.append((_SERIES[number % len(_SERIES)], self._drawable(series["name"])))
        drawing.add(chart)
        drawing.add(legend)
        return [drawing, Spacer(1, 3 * mm)]

    def _table(self, table: dict[str, Any]) -> list[Any]:
        """Draw a table whose first row is repeated on each page; columns of numbers are right-aligned."""
        columns, rows = table["columns"], table["rows"]
        numeric = [n for n in range(len(columns)) if rows and all(_is_number(row[n]) for row in rows)]
        cells = [[self._drawable(str(one)) for one in columns]]
        cells += [[self._cell(one) for one in row] for row in rows]
        drawn = Table(cells, colWidths=_widths(columns, rows), repeatRows=1)
        drawn.setStyle(
            TableStyle(
                [
                    ("FONT", (0, 0), (-1, 0), self._bold, 8, 10),
                    ("FONT", (0, 1), (-1, -1), self._font, 8, 10),
                    ("TEXTCOLOR", (0, 0), (-1, -1), _INK),
                    ("LINEBELOW", (0, 0), (-1, 0), 0.8, _GREY),
                    ("LINEBELOW", (0, 1), (-1, -1), 0.3, _LINE),
                    ("VALIGN", (0, 0), (-1, -1), "TOP"),
                    ("LEFTPADDING", (0, 0), (-1, -1), 3),
                    ("RIGHTPADDING", (0, 0), (-1, -1), 3),
                    *(("ALIGN", (n, 0), (n, -1), "RIGHT") for n in numeric),
                ]
            )
        )
        return [drawn, Spacer(1, 3 * mm)]

    def _cell(self, value: object) -> Any:
        if value is None:
            return ""
        if isinstance(value, bool) or not isinstance(value, int | float):
            text = str(value)[:_MAX_CELL]
            return Paragraph(self.text(text), self.cell) if len(text) > _WRAPPED else self._drawable(text)
        return (
            f"{value:,}"
            if isinstance(value, int)
            else f"{value:,.3g}"
            if abs(value) < 100
            else f"{value:,.0f}"
        )


def _is_number(value: object) -> bool:
    """Return whether a value is a number, or text that reads as one: "1.4 s"."""
    if isinstance(value, str):
        return _NUMBER.fullmatch(value) is not None
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _widths(columns: list[str], rows: list[list[Any]]) -> list[float]:
    """Share the width among columns by what is in them, none with less than a third of an equal share."""
    sizes = [
        max([len(str(name)), *(min(len(str(row[n])), 60) for row in rows[:200])])
        for n, name in enumerate(columns)
    ]
    least = max(1.0, sum(sizes) / len(sizes) / 3)
    fair = [max(size, least) for size in sizes]
    return [_WIDTH * size / sum(fair) for size in fair]
