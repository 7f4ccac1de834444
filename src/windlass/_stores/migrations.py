"""Numbered schema migrations, up and down, and which one comes next. Shared by the SQL stores.

In one transaction, under its store's lock, the caller reads the schema number, gets the next move, runs it
and writes the new number. So several processes may migrate at once: each finds what the others have left to
do.

A step whose up-script begins with the line `-- phase: after` may run only once no old code runs any more. New
code works without it until then; it requires every other step.
"""

import re
from collections.abc import Sequence
from importlib.resources import files

from msgspec import Struct

from .._store.protocol import Finding, Migration, Phase
from ..errors import InvalidOption, SchemaMismatch
from .findings import error, fine, warning

_NAME = re.compile(r"(\d{4})_(\w+)\.up\.sql")
_PHASE = re.compile(r"-- phase: (\w+)\n")


class Step(Struct, frozen=True, kw_only=True):
    """One numbered step, up and down."""

    number: int
    name: str
    up: str
    down: str

    @property
    def phase(self) -> Phase:
        """When it may run, from the first line of its script."""
        marked = _PHASE.match(self.up)
        return Phase.BEFORE if marked is None else Phase(marked[1])

    def reported(self, *, applied: bool) -> Migration:
        """Return the step as a migration to show."""
        return Migration(number=self.number, name=self.name, applied=applied, phase=self.phase)


class Move(Struct, frozen=True, kw_only=True):
    """A step to take now: the script to run, and the schema number afterwards."""

    step: Step
    script: str
    arrives_at: int

    @property
    def migration(self) -> Migration:
        """Return the move as a migration to show."""
        return self.step.reported(applied=self.arrives_at == self.step.number)


def load_steps(package: str) -> tuple[Step, ...]:
    """Load the steps in a package's folder `migrations`: 0001_tasks.up.sql, 0001_tasks.down.sql and so on."""
    folder = files(package) / "migrations"
    names = sorted(file.name for file in folder.iterdir())
    found = [match for name in names if (match := _NAME.fullmatch(name))]
    steps = tuple(
        Step(
            number=int(match[1]),
            name=match[2],
            up=(folder / match[0]).read_text(encoding="utf-8"),
            down=(folder / match[0].replace(".up.", ".down.")).read_text(encoding="utf-8"),
        )
        for match in found
    )
    assert [step.number for step in steps] == list(range(1, len(steps) + 1)), (
        f"gaps in the steps of {package}"
    )
    return steps


def next_move(steps: Sequence[Step], at: int, target: int | None) -> Move | None:
    """Return the step from `at` towards `target` (None: the newest); None if it is reached."""
    newest = len(steps)
    goal = newest if target is None else target
    if not 0 <= goal <= newest:
        raise InvalidOption(f"there is no schema number {goal}: choose one from 0 (no schema) to {newest}")
    if at > newest:
        raise newer(at, newest)
    if at == goal:
        return None
    if at < goal:
        return Move(step=steps[at], script=steps[at].up, arrives_at=at + 1)
    return Move(step=steps[at - 1], script=steps[at - 1].down, arrives_at=at - 1)


def overview(steps: Sequence[Step], at: int) -> tuple[Migration, ...]:
    """Return every step known to this code or the store."""
    known = [step.reported(applied=step.number <= at) for step in steps]
    unknown = [
        Migration(number=n, name="unknown to this version", applied=True)
        for n in range(len(steps) + 1, at + 1)
    ]
    return (*known, *unknown)


def require_current(steps: Sequence[Step], at: int, where: str) -> None:
    """Raise SchemaMismatch unless this code can work with the schema."""
    if at > len(steps):
        raise newer(at, len(steps), where)
    if at < needed(steps):
        raise SchemaMismatch(
            f"{where} has schema {at}, this version of windlass needs {needed(steps)}: run `windlass migrate`"
        )


def needed(steps: Sequence[Step]) -> int:
    """Return the lowest number this code works with: the last steps may be pending if they are `after`."""
    return max((step.number for step in steps if step.phase is Phase.BEFORE), default=0)


def standing(steps: Sequence[Step], at: int, where: str) -> Finding:
    """Return the state of the schema as a finding of the health check."""
    try:
        require_current(steps, at, where)
    except SchemaMismatch as mismatch:
        return error("schema", str(mismatch))
    if at == len(steps):
        return fine("schema", f"{where} has schema {at}, the newest")
    return warning(
        "schema",
        f"{where} has schema {at} of {len(steps)}: once no older version of windlass runs, "
        f"`windlass migrate --phase after`",
    )


def newer(at: int, newest: int, where: str = "the store") -> SchemaMismatch:
    """Return the error for a schema that is newer than this code."""
    return SchemaMismatch(
        f"{where} has schema {at}, this version of windlass knows only up to {newest}: upgrade windlass, or "
        f"go back with the newer version's `windlass migrate --to {newest}`"
    )
