"""What takes events in."""

from typing import Protocol

from .events import Event, EventName
from .timed_store import Timer


class Sink(Protocol):
    """A taker of events. It must be quick, and must not raise."""

    def wants(self, name: EventName) -> bool:
        """Whether events of this name are worth making right now."""
        ...

    def take(self, event: Event) -> None:
        """Take one in."""
        ...


class TimingSink(Sink, Timer, Protocol):
    """One that also wants to know how long the store takes."""
