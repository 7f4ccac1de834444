"""Corpora of probes: all of them in a full run, a few otherwise."""

from collections.abc import Sequence
from typing import TypeVar

from tests.examples import FULL

T = TypeVar("T")

ENOUGH = 200
"""Probes of each kind."""


def chosen(corpus: Sequence[T], few: int = 20) -> list[T]:
    """Return all probes in a full run, otherwise a few, spread over the corpus."""
    if FULL or len(corpus) <= few:
        return [*corpus]
    return [corpus[number * len(corpus) // few] for number in range(few)]
