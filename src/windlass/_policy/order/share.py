"""Fair shares: how a claim divides its picks between the lanes of a queue, and between its tiers.

Nothing of this is stored, and lane sizes may be slightly out of date. Each claimer keeps its own position;
if each is fair, all of them together are.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate

from msgspec import Struct


class RoundPosition(Struct, frozen=True):
    """The position of a round-robin: the lane whose turn it is, and the picks left of its turn."""

    lane: str = ""
    left: int = 0


class RoundPlan(Struct, frozen=True):
    """How many to pick from each lane, in order of their turns, and the position after that."""

    quotas: dict[str, int]
    turn: RoundPosition


def round_robin(
    lanes: Sequence[str], turn: RoundPosition, weight: Callable[[str], int], room: int
) -> RoundPlan:
    """Divide `room` picks between lanes in turn. `lanes` are those with tasks waiting, sorted."""
    quotas: dict[str, int] = {}
    if not lanes or room <= 0:
        return RoundPlan(quotas, turn)
    index = bisect_left(lanes, turn.lane) if turn.left else bisect_right(lanes, turn.lane)
    left = turn.left if index < len(lanes) and lanes[index] == turn.lane else 0
    while True:
        lane = lanes[index % len(lanes)]
        turns = left or weight(lane)
        given = min(turns, room)
        quotas[lane] = quotas.get(lane, 0) + given
        room -= given
        if not room:
            return RoundPlan(quotas, RoundPosition(lane, turns - given))
        left = 0
        index += 1


def random_picks(sizes: Mapping[str, int], draws: Iterable[float]) -> dict[str, int]:
    """Draw a lane for each pick, with a probability in proportion to the tasks it has waiting."""
    quotas: dict[str, int] = {}
    lanes, edges = list(sizes), list(accumulate(sizes.values()))
    if not edges or not edges[-1]:
        return quotas
    for draw in draws:
        lane = lanes[bisect_right(edges, draw * edges[-1])]
        quotas[lane] = quotas.get(lane, 0) + 1
    return quotas


# -- between tiers, or queues ------------------------------------------------------------------------


def split_picks(room: int, weights: Mapping[str, int], passes: Mapping[str, float]) -> dict[str, int]:
    """Divide `room` picks in proportion to weights (stride scheduling): the lowest pass is next."""
    if len(weights) == 1:
        return dict.fromkeys(weights, room)
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
    """Advance the passes by what was taken. Those that ran `short` of tasks save up no picks for later."""
    now = {name: passes.get(name, 0.0) + taken.get(name, 0) / weights[name] for name in weights}
    idle = set(short)
    busy = [value for name, value in now.items() if name not in idle]
    level = min(busy) if busy else max(now.values(), default=0.0)
    # Only differences matter; near 0 they stay exact.
    return {name: max(value, level) - level if name in idle else value - level for name, value in now.items()}
