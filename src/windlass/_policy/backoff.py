"""The delay before the next attempt."""

from collections.abc import Callable
from datetime import timedelta
from typing import ClassVar, TypeAlias

from msgspec import Struct

from .._model.task import DEFAULT_MAX_ATTEMPTS, MAX_ATTEMPTS
from ..errors import InvalidOption
from .input.options import checked_number
from .input.quote import quoted

_MAX_SECONDS = 10 * 365 * 86400.0


class Backoff(Struct, frozen=True, kw_only=True):
    """Exponential backoff: attempt n is followed by `base * factor ** (n - 1)` seconds, at most `cap`.

    `jitter` varies the delay by that fraction either way (0.5: from half to one and a half times), also
    at the cap, so that retries do not come all at once; `spread` adds up to that many seconds. After
    `max_attempts` the task dies.
    """

    base: float = 1.0
    factor: float = 2.0
    cap: float = 3600.0
    jitter: float = 0.25
    spread: float = 0.0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS

    EXPONENTIAL: ClassVar["Backoff"]
    QUICK: ClassVar["Backoff"]
    PATIENT: ClassVar["Backoff"]
    ADDITIVE: ClassVar["Backoff"]

    def __post_init__(self) -> None:
        for name, lowest, highest in (
            ("base", 0, _MAX_SECONDS),
            ("factor", 1, 1000),
            ("cap", 0, _MAX_SECONDS),
            ("jitter", 0, 1),
            ("spread", 0, _MAX_SECONDS),
            ("max_attempts", 1, MAX_ATTEMPTS),
        ):
            value = getattr(self, name)
            kinds = int if name == "max_attempts" else int | float
            if isinstance(value, bool) or not isinstance(value, kinds) or not lowest <= value <= highest:
                raise InvalidOption(
                    f"a backoff's {name} must be from {lowest} to {highest:g}, got {quoted(value)}"
                )

    def __call__(self, attempt: int, draw: float) -> timedelta:
        """Return the delay after this attempt (the first is 1); `draw` is uniform in [0, 1)."""
        try:
            # As floats: integers would grow without bound instead of overflowing.
            delay = min(self.base * float(self.factor) ** (attempt - 1), self.cap)
        except OverflowError:
            delay = self.cap if self.base else 0.0
        jittered = delay * (1 + self.jitter * (2 * draw - 1)) + self.spread * draw
        return timedelta(seconds=jittered)


EXPONENTIAL = Backoff(base=2, factor=2, cap=3600, jitter=0.5)
"""2^n seconds, at most an hour, times a jitter between a half and one and a half."""

QUICK = Backoff(base=1, factor=2, cap=16, jitter=0, max_attempts=6)
"""1, 2, 4, 8, 16 seconds, then dead."""

PATIENT = Backoff(base=30, factor=2, cap=1800)
"""30 s, 1 min, 2 min … half an hour, each varied by up to a quarter."""

ADDITIVE = Backoff(base=2, factor=2, cap=3600, jitter=0, spread=1)
"""2^n seconds plus up to one more, n from 1."""

Backoff.EXPONENTIAL, Backoff.QUICK, Backoff.PATIENT, Backoff.ADDITIVE = EXPONENTIAL, QUICK, PATIENT, ADDITIVE

Delay: TypeAlias = Callable[[int, float], timedelta]
"""Any backoff: (attempt, draw) -> delay."""


def checked_attempts(given: int | None, backoff: Delay) -> int:
    """Check `max_attempts`; the default is the backoff's, or that of `Backoff` for a custom one."""
    if given is None:
        given = getattr(backoff, "max_attempts", DEFAULT_MAX_ATTEMPTS)
    return checked_number(given, "max_attempts", MAX_ATTEMPTS)
