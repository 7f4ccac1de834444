"""Stores do what the checked model of leases and fences does, so what was checked holds for the code."""

from pathlib import Path
from random import Random

import pytest

from tests.examples import FULL
from tests.model.checker import random_walk
from tests.model.lease_protocol import Bounds, LeaseModel
from tests.model.lease_rules import LeaseRules
from tests.model.real_store import play
from windlass._model.verdict import Receipt
from windlass.testing.clock import ManualClock

BOUNDS = Bounds(tasks=2, workers=3, keepers=2, faults=4)
STEPS = 60
VERBS = {"cancel", "claim", "enqueue", "heartbeat", "promote", "rescue", "settle", "tick"}
WALKS = {"memory": (40, 2_000), "sqlite": (5, 200), "postgres": (3, 100), "valkey": (3, 100)}
OTHERS = (1, 20)  # by default, in a full run: they have no rules of their own


@pytest.mark.more
@pytest.mark.timeout(600)
async def test_a_store_does_what_the_model_does(
    factory, request: pytest.FixtureRequest, folder: Path
) -> None:
    """Random walks through the model, with every reply and all contents compared after each step."""
    model = LeaseModel(LeaseRules(), BOUNDS)
    walks = WALKS.get(request.node.callspec.params["factory"], OTHERS)[FULL]
    for seed in range(walks):
        own = folder / str(seed)
        own.mkdir()
        clock = ManualClock()
        await play(factory(own, clock), clock, random_walk(model, Random(seed), STEPS))


def test_the_walks_have_every_verb_and_receipt() -> None:
    model = LeaseModel(LeaseRules(), BOUNDS)
    steps = [step for seed in range(WALKS["valkey"][0]) for step in random_walk(model, Random(seed), STEPS)]
    replies = {(step.call[0], step.reply) for step in steps if step.call is not None}

    assert {verb for verb, _ in replies} == VERBS
    # Only a store of several shards may not know yet what became of a settlement.
    assert {reply for verb, reply in replies if verb == "settle"} == set(Receipt) - {Receipt.UNKNOWN}
