"""Check every model and print how much was explored, and the story of each mutant: `make model`."""

import sys
from time import perf_counter
from typing import Any

from tests.examples import FULL
from tests.model import bounds, lease_mutants, log_mutants
from tests.model.checker import Model, explore
from tests.model.lease_protocol import LeaseModel
from tests.model.lease_rules import LeaseRules
from tests.model.log_protocol import LogModel
from tests.model.log_rules import ChainRule


def main() -> int:
    """Return 1 if a rule has a flaw or a mutant has none."""
    log = bounds.LOG | (bounds.LOG_LARGER if FULL else {})
    leases = bounds.LEASES | (bounds.LEASES_LARGER if FULL else {})
    right = [_show(f"log: {name}", LogModel(ChainRule(), one)) for name, one in log.items()]
    right += [_show(f"leases: {name}", LeaseModel(LeaseRules(), one)) for name, one in leases.items()]
    wrong = [_show(f"log, mutant: {rule.name}", LogModel(rule, one)) for rule, one in log_mutants.MUTANTS]
    wrong += [
        _show(f"leases, mutant: {rules.name}", LeaseModel(rules, one)) for rules, one in lease_mutants.MUTANTS
    ]
    return int(any(right) or not all(wrong))


def _show(name: str, model: Model[Any]) -> bool:
    """Print what was found; return whether there is a flaw."""
    begun = perf_counter()
    found = explore(model)
    sys.stdout.write(f"{name} ({perf_counter() - begun:.1f} s): {found}\n")
    sys.stdout.flush()
    return found.flaw is not None


sys.exit(main())
