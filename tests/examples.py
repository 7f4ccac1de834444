"""How much the tests try: a sample by default, everything if WINDLASS_TESTS is `full`, the rest if `rest`.

`make test` runs the sample; `make test-rest` runs what that does not have, or has with fewer examples.
"""

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")

REST = os.environ.get("WINDLASS_TESTS") == "rest"
FULL = REST or os.environ.get("WINDLASS_TESTS") == "full"


def examples(default: int, full: int) -> settings:
    """Hypothesis settings with this many examples."""
    return settings(max_examples=full if FULL else default)


def sample(default: Sequence[T], rest: Sequence[T]) -> list[Any]:
    """The parameters of a test: the default ones, in a full run the rest as well. A tuple is for several."""
    more = [one if isinstance(one, tuple) else (one,) for one in rest] if FULL else []
    return [*default, *(pytest.param(*one, marks=pytest.mark.full) for one in more)]


def is_in_sample(item: pytest.Item) -> bool:
    """Whether a sample has the same test: not with other parameters, nor with more examples."""
    tries_more = item.get_closest_marker("hypothesis") or item.get_closest_marker("more")
    return not tries_more and not item.get_closest_marker("full")
