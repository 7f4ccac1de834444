"""The protocol of leases and fences, checked: no flaw in the rules of the seam, and every mutant found."""

import pytest

from tests.model.bounds import LEASES, LEASES_LARGER, row
from tests.model.checker import explore, follow
from tests.model.lease_mutants import MUTANTS
from tests.model.lease_protocol import Bounds, LeaseModel
from tests.model.lease_rules import LeaseRules
from tests.model.real_store import play
from windlass._stores.memory import MemoryStore
from windlass.testing.clock import ManualClock


@pytest.mark.parametrize(("name", "bounds"), LEASES.items(), ids=LEASES)
def test_the_rules_of_the_seam_have_no_flaw(name: str, bounds: Bounds, guarantees: str) -> None:
    found = explore(LeaseModel(LeaseRules(), bounds))

    assert found.flaw is None
    assert row(f"leases: {name}", found) in guarantees


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "bounds"), LEASES_LARGER.items(), ids=LEASES_LARGER)
def test_the_rules_of_the_seam_have_no_flaw_in_larger_bounds(
    name: str, bounds: Bounds, guarantees: str
) -> None:
    found = explore(LeaseModel(LeaseRules(), bounds))

    assert found.flaw is None
    assert row(f"leases: {name} (full)", found) in guarantees


@pytest.mark.parametrize(("rules", "bounds"), MUTANTS, ids=[rules.name for rules, _ in MUTANTS])
def test_a_mistake_in_the_rules_of_the_seam_is_found(rules: LeaseRules, bounds: Bounds) -> None:
    assert explore(LeaseModel(rules, bounds)).flaw is not None


@pytest.mark.parametrize(("rules", "bounds"), MUTANTS, ids=[rules.name for rules, _ in MUTANTS])
async def test_a_model_with_a_mistake_is_told_apart_from_a_store(rules: LeaseRules, bounds: Bounds) -> None:
    """The memory store does otherwise on the way to the flaw, or in what may come next."""
    model = LeaseModel(rules, bounds)
    flaw = explore(model).flaw
    assert flaw is not None
    story = list(follow(model, flaw.steps))

    differences = 0
    for step in model.steps(story[-1].state):
        clock = ManualClock()
        try:
            await play(MemoryStore(clock=clock), clock, [*story, step])
        except AssertionError:
            differences += 1

    assert differences
