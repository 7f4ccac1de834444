"""Renewals: when sessions were last renewed on each shard, to stop tasks before their leases run out."""

from collections.abc import Iterable
from datetime import timedelta
from time import monotonic

STOP_AT = 0.8  # of the lease, without a renewal, as workers do when the whole store does not answer
_MAX_SESSIONS = 10_000


class Renewals:
    """The sessions that this process renews. Shared by its handles."""

    def __init__(self) -> None:
        self._renewed: dict[str, dict[str, float]] = {}

    def note(self, session: str, shards: Iterable[str], at: float) -> None:
        """Note that these shards have renewed a session, by a heartbeat that was sent at this time."""
        renewed = self._renewed.pop(session, {})
        renewed |= dict.fromkeys(shards, at)
        self._renewed[session] = renewed  # the newest last
        if len(self._renewed) > _MAX_SESSIONS:
            self._renewed.pop(next(iter(self._renewed)), None)

    def silent(self, session: str, lease_for: timedelta) -> set[str]:
        """Return the shards that have not renewed it for so long that its leases there may soon run out."""
        oldest = monotonic() - lease_for.total_seconds() * STOP_AT
        return {name for name, at in self._renewed.get(session, {}).items() if at < oldest}
