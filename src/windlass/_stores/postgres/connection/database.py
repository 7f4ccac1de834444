"""The database, as those see it who only ask."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from ..script import Ask, Row, Script

T = TypeVar("T")


class Database(Protocol):
    """What claiming needs of the handle."""

    async def fetch(self, ask: Ask) -> Sequence[Row]:
        """One statement's rows."""
        ...

    async def play(self, make: Callable[[], Script[T]]) -> T:
        """A script, in a transaction."""
        ...

    async def know(self) -> None:
        """Ask how queues are laid out."""
        ...
