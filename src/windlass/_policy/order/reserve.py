"""Room in a worker some of whose slots are kept for tasks of a level of priority. (F2)

Each level uses what is kept for it first, and beyond that the slots that are kept for nobody.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ..._model.queue import Level
from ...errors import InvalidOption
from ..input.quoting import quoted
from .queue_options import parse_level


class Reserve(Struct, frozen=True):
    """So many slots in all, and so many of them kept for each level."""

    slots: int
    kept: dict[Level, int]

    @property
    def shared(self) -> int:
        """The slots that are kept for nobody."""
        return self.slots - sum(self.kept.values())

    @property
    def levels(self) -> tuple[Level | None, ...]:
        """What there are claims for: each level that has slots of its own, and any (None)."""
        return (*self.kept, None) if self.shared else tuple(self.kept)

    def room(self, level: Level | None, held: Mapping[Level, int], asked: Mapping[Level | None, int]) -> int:
        """How many more may be asked for: of a level, what is kept for it; of any (None), what is shared.

        `held` are here, `asked` may yet come from claims under way. What comes of a claim for any level may
        be of one whose slots are full, so it counts as shared until it is here.
        """
        if level is not None:
            return self.kept.get(level, 0) - held.get(level, 0) - asked.get(level, 0)
        beyond = sum(max(held.get(one, 0) + asked.get(one, 0) - self.kept.get(one, 0), 0) for one in Level)
        return self.shared - beyond - asked.get(None, 0)


def new_reserve(slots: int, kept: Mapping[Any, int]) -> Reserve:
    """The reserve of a worker with so many slots, from levels by name."""
    if not isinstance(kept, Mapping):
        raise InvalidOption(f"a worker's reserve is a number of slots for each level, not {quoted(kept)}")
    reserve = {parse_level(level): number for level, number in kept.items()}
    for level, number in reserve.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise InvalidOption(f"a worker reserves 1 slot or more for {level} tasks, not {quoted(number)}")
    if (total := sum(reserve.values())) > slots:
        raise InvalidOption(f"a worker with {slots} slots cannot reserve {total} of them")
    return Reserve(slots, reserve)
