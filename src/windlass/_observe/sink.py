"""What takes events in."""

from typing import Protocol

from .events import Event, EventName


class Sink(Protocol):
    """A taker of events. It must be quick, and must not raise."""

    def wants(self, name: EventName) -> bool:
        """Whether events of this name are worth making right now."""
        ...

    def take(self, event: Event) -> None:
        """Take one in."""
        ...
