"""Failed sign-ins: an address with too many is refused further ones; many from everywhere are slowed down.

A key has 256 random bits, so nobody guesses one. This bounds what trying costs the server and the log.
"""

from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from time import monotonic

from msgspec import Struct

PER_ADDRESS, ADDRESS_SECONDS = 5, 10.0
"""Failures from one address at once, and the seconds after which it may fail once more."""

IN_ALL, IN_ALL_SECONDS = 100, 1.0
"""The same for all addresses together."""

MAX_ADDRESSES = 10_000
"""Addresses that are remembered; beyond, the one that failed least recently is forgotten."""


class Allowance(Struct):
    """Failures that are `left` at the time `at`."""

    left: float
    at: float


class Lockout:
    """Counts failed sign-ins."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._all = Allowance(IN_ALL, clock())
        self._addresses: OrderedDict[str, Allowance] = OrderedDict()

    def seconds_left(self, address: str) -> float:
        """Return how long an address must wait before it may fail again; 0 if it need not."""
        known = self._addresses.get(_network(address))
        if known is None:
            return 0.0
        self._refill(known, PER_ADDRESS, ADDRESS_SECONDS)
        return max(1 - known.left, 0.0) * ADDRESS_SECONDS

    @property
    def is_flooded(self) -> bool:
        """Whether too many sign-ins have failed lately, from wherever."""
        self._refill(self._all, IN_ALL, IN_ALL_SECONDS)
        return self._all.left < 1

    def note_failure(self, address: str) -> None:
        """Count a failed sign-in."""
        network = _network(address)
        known = self._addresses.pop(network, None) or Allowance(PER_ADDRESS, self._clock())
        self._refill(known, PER_ADDRESS, ADDRESS_SECONDS)
        self._refill(self._all, IN_ALL, IN_ALL_SECONDS)
        known.left, self._all.left = max(known.left - 1, 0), max(self._all.left - 1, 0)
        self._addresses[network] = known
        if len(self._addresses) > MAX_ADDRESSES:
            self._addresses.popitem(last=False)

    def _refill(self, allowance: Allowance, most: int, seconds: float) -> None:
        now = self._clock()
        allowance.left = min(allowance.left + (now - allowance.at) / seconds, most)
        allowance.at = now


def _network(address: str) -> str:
    """Return the address; of IPv6 its /64, all of which one client may have."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address[:100]
    return str(parsed) if parsed.version == 4 else str(IPv6Address(int(parsed) >> 64 << 64))
