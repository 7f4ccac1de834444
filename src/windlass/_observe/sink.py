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


class Timer(Protocol):
    """A receiver of the times that the store takes. Called from any thread."""

    def took(self, verb: str, seconds: float) -> None:
        """Record how long a call took, whether it returned or raised."""
        ...

    def failed(self, verb: str, code: str) -> None:
        """Count a call that failed in the store. An error that the caller caused is not a failure."""
        ...

    def batch(self, size: int) -> None:
        """Record how many tasks were settled in one call."""
        ...


class TimingSink(Sink, Timer, Protocol):
    """One that also wants to know how long the store takes."""
