"""Slots of a worker that are reserved for levels of priority, whose tasks use them before the shared ones."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ..._model.queue import Level
from ...errors import InvalidOption
from ..input.options import parse_choice
from ..input.quote import counted, quoted


class Reserve(Struct, frozen=True):
    """The slots of a worker, and how many of them are reserved for each level."""

    slots: int
    reserved: dict[Level, int]

    @property
    def shared(self) -> int:
        """The slots that are reserved for no level."""
        return self.slots - sum(self.reserved.values())

    @property
    def levels(self) -> tuple[Level | None, ...]:
        """The levels to claim for: each with reserved slots, and any level (None) if slots are shared."""
        return (*self.reserved, None) if self.shared else tuple(self.reserved)

    def room(
        self, level: Level | None, held: Mapping[Level, int], requested: Mapping[Level | None, int]
    ) -> int:
        """Return how many more tasks to claim for a level's reserved slots, or for the shared ones (None).

        `held` are running, `requested` may still arrive from claims in flight. A task claimed for any level
        may be of one whose slots are full, so it counts as shared until it arrives.
        """
        if level is not None:
            return self.reserved.get(level, 0) - held.get(level, 0) - requested.get(level, 0)
        beyond = sum(
            max(held.get(one, 0) + requested.get(one, 0) - self.reserved.get(one, 0), 0) for one in Level
        )
        return self.shared - beyond - requested.get(None, 0)


def new_reserve(slots: int, levels: Mapping[Any, int]) -> Reserve:
    """Return the reserve of a worker, from numbers of slots by level. Raises InvalidOption."""
    if not isinstance(levels, Mapping):
        raise InvalidOption(f"reserve must map levels to numbers of slots, got {quoted(levels)}")
    reserve = {parse_choice(Level, level, "a level"): number for level, number in levels.items()}
    for level, number in reserve.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise InvalidOption(f"the slots reserved for {level} must be 1 or more, got {quoted(number)}")
    if (total := sum(reserve.values())) > slots:
        raise InvalidOption(f"cannot reserve {counted(total, 'slot')} of {slots}")
    return Reserve(slots, reserve)
