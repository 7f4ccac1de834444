"""When a page of a host may be fetched: with a pause after the one before.

Tasks for one host already start apart, by a limit of the store. This is for what that limit cannot know:
redirects to other hosts, and sites that ask for longer pauses.
"""

from collections.abc import Callable
from time import monotonic

MAX_TICKETS = 100_000


class Politeness:
    """Gives each task its turn for a host, in this process.

    A task that has to wait is told how long, and comes back at its turn.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._free_at: dict[str, float] = {}  # by host
        self._tickets: dict[tuple[str, str], float] = {}  # by host and task: when it is its turn

    def wait(self, host: str, task_id: str, pause: float) -> float:
        """Return the seconds until this task's turn; 0 if it is now, and then the turn is used up."""
        now = self._clock()
        ticket = self._tickets.pop((host, task_id), None)
        if ticket is None:
            if len(self._free_at) >= MAX_TICKETS:
                self._free_at = {one: at for one, at in self._free_at.items() if at > now}
            ticket = max(self._free_at.get(host, now), now)
            self._free_at[host] = ticket + pause
        if ticket <= now:
            return 0.0
        if len(self._tickets) >= MAX_TICKETS:  # of tasks that ran elsewhere, or were cancelled
            self._tickets.clear()
        self._tickets[host, task_id] = ticket
        return ticket - now
