"""Which lanes had ready tasks a moment ago: with that a claim from lanes takes one statement, too.

Advice: whoever has come since waits a second at most, and whoever has gone is noticed when too little comes
of it. Then the claim asks anew.
"""

from bisect import bisect_left
from collections.abc import Mapping
from time import monotonic
from typing import Any

from msgspec import Struct

from ...._policy.order.limits import Subject
from ...rules.claim_planner import MAX_SIZE, NEXT, Head, Heads, Lanes, Picked, Plan, Question, Sizes
from ..script import Ask

FRESH_FOR = 1.0
"""Seconds for which a roster is gone by."""

AT_ONCE = 1000
"""Lanes that are asked for in one go."""

_NOBODY = Subject("", "", "", b"")


class Segment(Struct):
    """The lanes of a queue from one name up to another, as they were at an instant."""

    first: str
    below: str
    lanes: list[str]
    at: float


class Rosters:
    """What one handle has seen of its queues' lanes."""

    def __init__(self) -> None:
        self._segments: dict[str, Segment] = {}
        self._sizes: dict[tuple[str, str], tuple[float, dict[str, int]]] = {}

    def forget(self) -> None:
        """Nothing of it is to be gone by any more."""
        self._segments.clear()
        self._sizes.clear()

    # -- lanes ---------------------------------------------------------------------------------------

    def lanes(self, asked: Lanes) -> list[str] | None:
        """The answer, if it is known."""
        known = self._segments.get(asked.queue)
        if known is None or monotonic() - known.at > FRESH_FOR or not known.first <= asked.first:
            return None
        start = bisect_left(known.lanes, asked.first)
        end = bisect_left(known.lanes, asked.below)
        found = known.lanes[start : min(end, start + asked.limit)]
        return found if len(found) == asked.limit or asked.below <= known.below else None

    def learn(self, asked: Lanes, lanes: list[str]) -> None:
        """What the database answered to the same question, AT_ONCE of them."""
        below = asked.below if len(lanes) < AT_ONCE else lanes[-1] + NEXT
        new = Segment(asked.first, below, lanes, monotonic())
        known = self._segments.get(asked.queue)
        if known is not None and monotonic() - known.at <= FRESH_FOR and known.first == new.below:
            new = Segment(new.first, known.below, new.lanes + known.lanes, known.at)
        self._segments[asked.queue] = new

    # -- sizes ---------------------------------------------------------------------------------------

    def sizes(self, asked: Sizes) -> dict[str, int] | None:
        """The answer, if it is known."""
        at, sizes = self._sizes.get((asked.queue, asked.first), (-FRESH_FOR, {}))
        return sizes if monotonic() - at <= 2 * FRESH_FOR and any(sizes.values()) else None

    def learn_sizes(self, asked: Sizes, sizes: Mapping[str, int]) -> None:
        """What the database answered."""
        self._sizes[asked.queue, asked.first] = (monotonic(), dict(sizes))

    def take(self, queue: str, lane: str, number: int) -> None:
        """So many fewer wait there."""
        for (of, _), (_, sizes) in self._sizes.items():
            if of == queue and lane in sizes:
                sizes[lane] = max(sizes[lane] - number, 0)


class Planning:
    """Plays the claim planner without taking anything: what it would take, by what is known of the lanes."""

    def __init__(self, rosters: Rosters, picks: Plan[list[Picked]]) -> None:
        self._rosters = rosters
        self._picks = picks
        self._asked: Question | None = None
        self.numbers: dict[tuple[str, str], int] = {}  # (queue, lane) -> tasks

    def go_on(self) -> Ask | None:
        """Go on as far as is known; then what to ask the database next. None at the end."""
        try:
            request = next(self._picks) if self._asked is None else self._asked
            while True:
                self._asked = request
                known = self._answer(request)
                if known is None:
                    return _ask(request)
                request = self._picks.send(known)
        except StopIteration:
            return None

    def learn(self, rows: Any) -> None:
        """What the database answered."""
        match self._asked:
            case Lanes():
                self._rosters.learn(self._asked, [row[0] for row in rows])
            case Sizes():
                self._rosters.learn_sizes(self._asked, {row[0]: row[1] for row in rows})
            case _:
                raise AssertionError(f"{self._asked} was not asked")

    def _answer(self, request: Question) -> Any:
        match request:
            case Lanes():
                return self._rosters.lanes(request)
            case Sizes():
                return self._rosters.sizes(request)
            case Heads(queue, numbers):
                return self._take(queue, numbers)
            case _:
                raise AssertionError(f"{request} is for claims that count")

    def _take(self, queue: str, numbers: Mapping[tuple[str, str], int]) -> list[Head]:
        for (lane, _), number in numbers.items():
            self.numbers[queue, lane] = self.numbers.get((queue, lane), 0) + number
            self._rosters.take(queue, lane, number)
        return [
            Head(lane, key, 0, "", _NOBODY) for (lane, key), number in numbers.items() for _ in range(number)
        ]


def _ask(request: Question) -> Ask:
    match request:
        case Lanes(queue, first, below):
            return Ask("lanes", (queue, first, below, AT_ONCE, 0))
        case Sizes(queue, first, below):
            return Ask("lanes", (queue, first, below, None, MAX_SIZE))
        case _:
            raise AssertionError(f"{request} is always answered")
