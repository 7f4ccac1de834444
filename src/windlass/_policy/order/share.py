"""Whose turn it is: fair shares between the lanes of a queue, and between its levels. (F2, F3)

Advice: what these say may be a moment old, and nothing of it is written down. Each claimer goes round for
itself; that all of them together are fair follows from each being so.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate

from msgspec import Struct


class RoundPosition(Struct, frozen=True):
    """Where a round stands: whose turn it is, and how many picks are left of it."""

    lane: str = ""
    left: int = 0


class RoundPlan(Struct, frozen=True):
    """How many to pick from which lane, in the order in which they have their turns; and where that ends."""

    quotas: dict[str, int]
    turn: RoundPosition


def round_robin(
    lanes: Sequence[str], turn: RoundPosition, weight: Callable[[str], int], room: int
) -> RoundPlan:
    """Share out so many picks in turn. The lanes are those that have anything, in order."""
    quotas: dict[str, int] = {}
    if not lanes or room <= 0:
        return RoundPlan(quotas, turn)
    place = bisect_left(lanes, turn.lane) if turn.left else bisect_right(lanes, turn.lane)
    left = turn.left if place < len(lanes) and lanes[place] == turn.lane else 0
    while room > 0:
        lane = lanes[place % len(lanes)]
        turns = left or weight(lane)
        given = min(turns, room)
        quotas[lane] = quotas.get(lane, 0) + given
        room -= given
        turn, left = RoundPosition(lane, turns - given), 0
        place += 1
    return RoundPlan(quotas, turn)


def random_picks(sizes: Mapping[str, int], draws: Iterable[float]) -> dict[str, int]:
    """How many to pick from each lane if every pick is drawn by lot, and each waiting task is one ticket."""
    quotas: dict[str, int] = {}
    lanes, edges = list(sizes), list(accumulate(sizes.values()))
    if not edges or not edges[-1]:
        return quotas
    for draw in draws:
        lane = lanes[bisect_right(edges, draw * edges[-1])]
        quotas[lane] = quotas.get(lane, 0) + 1
    return quotas


# -- between levels, or queues -----------------------------------------------------------------------


def split_picks(room: int, weights: Mapping[str, int], passes: Mapping[str, float]) -> dict[str, int]:
    """Share out so many picks between these, each as often as its weight says: who is behind is next."""
    ahead = {name: passes.get(name, 0.0) for name in weights}
    picks = dict.fromkeys(weights, 0)
    for _ in range(room if weights else 0):
        name = min(ahead, key=lambda name: (ahead[name], name))
        picks[name] += 1
        ahead[name] += 1 / weights[name]
    return picks


def advance(
    weights: Mapping[str, int], passes: Mapping[str, float], taken: Mapping[str, int], short: Iterable[str]
) -> dict[str, float]:
    """How far each has come by what was taken. Who had too little saves nothing up for later."""
    now = {name: passes.get(name, 0.0) + taken.get(name, 0) / weights[name] for name in weights}
    wanting = set(short)
    busy = [come for name, come in now.items() if name not in wanting]
    level = min(busy) if busy else max(now.values(), default=0.0)
    # Only differences count; near nought they stay exact.
    return {name: max(come, level) - level if name in wanting else come - level for name, come in now.items()}
