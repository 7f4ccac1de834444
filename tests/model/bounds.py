"""How much of each model is explored: by default, and in full runs as well."""

from tests.model.checker import Exploration
from tests.model.lease_protocol import Bounds as LeaseBounds
from tests.model.log_protocol import Bounds as LogBounds
from tests.model.log_rules import Kind

LOG = {
    "three owners, two commits each in flight": LogBounds(reigns=3),
    "three commits in flight": LogBounds(appends=3, depth=3),
    "the check of the stream fails once": LogBounds(failures=1),
    "commits in parts": LogBounds(appends=3, kinds=(Kind.PART, Kind.COMMIT)),
    "reads": LogBounds(kinds=(Kind.COMMIT, Kind.READ)),
    "snapshots and deletion": LogBounds(appends=3, kinds=(Kind.COMMIT, Kind.SNAPSHOT)),
}
LOG_LARGER = {
    "the check of the stream fails twice": LogBounds(failures=2),
    "three owners, snapshots and deletion": LogBounds(reigns=3, kinds=(Kind.COMMIT, Kind.SNAPSHOT)),
    "snapshots, and the check fails once": LogBounds(failures=1, kinds=(Kind.COMMIT, Kind.SNAPSHOT)),
}
LEASES = {
    "one worker, one keeper, two faults": LeaseBounds(workers=1, keepers=1),
    "two workers, two keepers, one fault": LeaseBounds(faults=1),
}
LEASES_LARGER = {
    "one keeper, two faults": LeaseBounds(keepers=1),
    "two keepers, two faults": LeaseBounds(),
    "one keeper, three faults": LeaseBounds(keepers=1, faults=3),
    "two tasks, one fault": LeaseBounds(tasks=2, keepers=1, faults=1),
}


def row(name: str, found: Exploration) -> str:
    """The figures, as docs/guarantees.md has them."""
    return f"| {name} | {found.states:,} | {found.steps:,} |"
