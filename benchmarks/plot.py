"""A plot of the results as SVG: bars for comparisons, lines for series."""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from benchmarks.figures import MILLISECONDS, RATE, Figure, Findings

WIDTH, LEFT, RIGHT = 760, 170, 130
BAR, TITLE, GAP, LINE_HEIGHT = 18, 22, 16, 120
OURS, THEIRS, INK = "#1f6feb", "#9aa4b2", "#24292f"
ROOM = WIDTH - LEFT - RIGHT


def save(findings: Findings, path: Path) -> Path:
    """Draw all comparisons; return the file."""
    body, height = [], GAP
    for panel in _panels(findings.figures):
        lines, height = (_curve if panel[0].along else _bars)(panel, height)
        body += lines
        height += GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif"'
    )
    ground = f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    path.write_text("\n".join([f'{head} font-size="12" fill="{INK}">', ground, *body, "</svg>"]) + "\n")
    return path


def _panels(figures: Sequence[Figure]) -> Iterator[list[Figure]]:
    """Figures to draw beside each other."""
    drawn = [figure for figure in figures if figure.along or figure.unit in {RATE, MILLISECONDS}]
    for _, several in groupby(drawn, key=lambda figure: (figure.part, figure.what)):
        yield list(several)


def _bars(panel: list[Figure], top: int) -> tuple[list[str], int]:
    longest = max(max(figure.values) for figure in panel) or 1
    lines = [_text(LEFT, top + 12, _title(panel[0]), bold=True)]
    top += TITLE
    for figure in panel:
        middle = top + BAR / 2
        low, high = (LEFT + ROOM * value / longest for value in figure.spread)
        colour = OURS if figure.who == "windlass" else THEIRS
        width = ROOM * figure.median / longest
        lines += [
            _text(LEFT - 8, middle + 4, figure.who, anchor="end"),
            f'<rect x="{LEFT}" y="{top + 2}" width="{width:.1f}" height="{BAR - 4}" fill="{colour}"/>',
            f'<path d="M{low:.1f} {middle}H{high:.1f}" stroke="{INK}"/>',
            _text(max(high, LEFT + width) + 8, middle + 4, f"{_number(figure.median)} {figure.unit}"),
        ]
        top += BAR
    return lines, top


def _curve(panel: list[Figure], top: int) -> tuple[list[str], int]:
    figure = panel[0]
    highest = max(figure.values) or 1
    lines = [_text(LEFT, top + 12, f"{_title(figure)}; {figure.along}", bold=True)]
    top += TITLE
    foot = top + LINE_HEIGHT
    step = ROOM / max(1, len(figure.values) - 1)
    points = [
        f"{LEFT + step * index:.1f},{foot - LINE_HEIGHT * value / highest:.1f}"
        for index, value in enumerate(figure.values)
    ]
    lines += [
        f'<path d="M{LEFT} {top}V{foot}H{LEFT + ROOM}" fill="none" stroke="{THEIRS}"/>',
        f'<polyline points="{" ".join(points)}" fill="none" stroke="{OURS}" stroke-width="2"/>',
        _text(LEFT - 8, top + 8, f"{_number(highest)} {figure.unit}", anchor="end"),
        _text(LEFT - 8, foot, "0", anchor="end"),
    ]
    return lines, foot + GAP


def _title(figure: Figure) -> str:
    better = "shorter is better" if figure.unit == MILLISECONDS else ""
    return f"{figure.part}: {figure.what}" + (f" ({better})" if better else "")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _text(x: float, y: float, text: str, *, anchor: str = "start", bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'
