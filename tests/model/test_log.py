"""The protocol of a replicated log, checked: no flaw in the chain rule, and every mutant found."""

import pytest

from tests.model.bounds import LOG, LOG_LARGER, row
from tests.model.checker import explore
from tests.model.log_mutants import MUTANTS, PLAIN, FirstRule
from tests.model.log_protocol import Bounds, LogModel
from tests.model.log_rules import ChainRule


@pytest.mark.parametrize(("name", "bounds"), LOG.items(), ids=LOG)
def test_the_chain_rule_has_no_flaw(name: str, bounds: Bounds, guarantees: str) -> None:
    found = explore(LogModel(ChainRule(), bounds))

    assert found.flaw is None
    assert row(f"log: {name}", found) in guarantees


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "bounds"), LOG_LARGER.items(), ids=LOG_LARGER)
def test_the_chain_rule_has_no_flaw_in_larger_bounds(name: str, bounds: Bounds, guarantees: str) -> None:
    found = explore(LogModel(ChainRule(), bounds))

    assert found.flaw is None
    assert row(f"log: {name} (full)", found) in guarantees


def test_the_flaw_of_the_first_rule_is_found() -> None:
    """A stale owner's append takes the place of the new owner's first; its second then counts without it."""
    flaw = explore(LogModel(FirstRule(), PLAIN)).flaw

    assert flaw is not None
    assert flaw.reason == "a replay applies 1.2; its owner executed 1.1 1.2"


@pytest.mark.parametrize(("rule", "bounds"), MUTANTS, ids=[rule.name for rule, _ in MUTANTS])
def test_a_mistake_in_the_rule_is_found(rule: ChainRule, bounds: Bounds) -> None:
    assert explore(LogModel(rule, bounds)).flaw is not None
