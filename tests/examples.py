"""How much the tests try: a sample by default, everything with WINDLASS_TESTS=full (`make test-all`)."""

import os
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

T = TypeVar("T")

FULL = os.environ.get("WINDLASS_TESTS") == "full"


def examples(default: int, full: int) -> settings:
    """Hypothesis settings with this many examples."""
    return settings(max_examples=full if FULL else default)


def sample(default: Sequence[T], rest: Sequence[T]) -> list[T]:
    """The parameters of a test: the default ones, in a full run the rest as well."""
    return [*default, *rest] if FULL else [*default]
