"""Figures: the values of a variant in each round, with median and spread; and targets for them."""

from dataclasses import dataclass, field
from math import ceil
from statistics import median

RATE, MILLISECONDS, MICROSECONDS, TIMES, MEGABYTES, PERCENT = "/s", "ms", "µs", "x", "MB", "%"
TASKS, BYTES, KILOBYTES, SECONDS = "tasks", "B", "kB", "s"
CONNECTIONS, RATE_OF_KILOBYTES = "connections", "kB/s"


@dataclass(frozen=True)
class Figure:
    """One line of the table. `values` holds one number per round, in the order of the rounds.

    If it says what it goes `along`, the values are steps along that, and their order is what matters.
    """

    part: str
    what: str
    who: str
    unit: str
    values: tuple[float, ...]
    along: str = ""

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        return min(self.values), max(self.values)


@dataclass(frozen=True)
class Target:
    """A bound for the median of a figure; the process fails if it is violated."""

    name: str
    figure: Figure
    at_least: float | None = None
    at_most: float | None = None

    @property
    def is_met(self) -> bool:
        low = self.at_least is None or self.figure.median >= self.at_least
        high = self.at_most is None or self.figure.median <= self.at_most
        return low and high

    @property
    def bound(self) -> str:
        return f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"


@dataclass
class Findings:
    """The results of a part; `facts` are versions and settings that they depend on."""

    figures: list[Figure] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)

    def add(self, figure: Figure) -> Figure:
        self.figures.append(figure)
        return figure

    def extend(self, other: "Findings") -> None:
        self.figures += other.figures
        self.targets += other.targets
        self.facts |= other.facts


def ratio(part: str, what: str, above: Figure, below: Figure) -> Figure:
    """Divide round by round, so that a slow moment of the machine affects both sides."""
    pairs = zip(above.values, below.values, strict=True)
    return Figure(part, what, f"{above.who} : {below.who}", TIMES, tuple(a / b for a, b in pairs))


def percentile(values: list[float], share: float) -> float:
    """Return the given percentile."""
    ordered = sorted(values)
    return ordered[max(0, ceil(share * len(ordered)) - 1)]
