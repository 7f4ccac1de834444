"""The report: a table, JSON, and a verdict for each target."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from benchmarks.figures import RATE, Figure, Findings

RESULTS = Path(__file__).parent / "results"


def header(machine: Mapping[str, str]) -> str:
    """Format machine and versions."""
    width = max([10, *map(len, machine)])
    return "\n".join(f"  {name:<{width}} {value}" for name, value in machine.items())


def table(findings: Findings) -> str:
    """Format every figure: the median, and in brackets the lowest and the highest round."""
    lines = []
    part = ""
    for figure in findings.figures:
        if figure.part != part:
            part = figure.part
            lines += ["", part]
        low, high = figure.spread
        spread = f"({_shown(low, figure)} to {_shown(high, figure)})" if len(figure.values) > 1 else ""
        value = f"{_shown(figure.median, figure)} {figure.unit}"
        lines.append(f"  {figure.what:<28} {figure.who:<29} {value:>11}  {spread}".rstrip())
    return "\n".join(lines)


def verdicts(findings: Findings) -> str:
    """Format each target: met or not, its bound and the measured value."""
    lines = ["Targets"] if findings.targets else []
    width = max([28, *(len(target.name) for target in findings.targets)])
    for target in findings.targets:
        word = "met" if target.is_met else "NOT MET"
        found = f"{_shown(target.figure.median, target.figure)} {target.figure.unit}"
        lines.append(f"  {target.name:<{width}} {target.bound} {target.figure.unit}, found {found}: {word}")
    return "\n".join(lines)


def save(machine: Mapping[str, str], findings: Findings, folder: Path) -> Path:
    """Save everything as JSON; return the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{machine['at'].replace(':', '').replace('+0000', 'Z')}.json"
    document = {
        "machine": dict(machine),
        "figures": [{**asdict(figure), "median": figure.median} for figure in findings.figures],
        "targets": [
            {"name": t.name, "bound": t.bound, "found": t.figure.median, "met": t.is_met}
            for t in findings.targets
        ],
    }
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return path


def _shown(value: float, figure: Figure) -> str:
    if figure.unit == RATE or value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
