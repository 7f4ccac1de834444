"""Claims: which tasks they are for, and whether they leave some that another would get."""

from typing import Any

import pytest

from windlass._model.lease import Claim
from windlass._model.queue import Level


def claim(**fields: Any) -> Claim:
    return Claim(session="s", queues=("q",), limit=1, number=1, **fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({}, False), ({"level": Level.LOW}, True), ({"types": ("mine",)}, True), ({"types": ()}, True)],
)
def test_a_claim_is_selective_with_a_level_or_types(fields: dict[str, Any], expected: bool) -> None:
    assert claim(**fields).is_selective is expected


def test_a_claim_takes_the_types_that_it_names_or_any() -> None:
    assert claim().takes("mine")
    assert claim(types=("mine",)).takes("mine")
    assert not claim(types=("mine",)).takes("other")
    assert not claim(types=()).takes("mine")
