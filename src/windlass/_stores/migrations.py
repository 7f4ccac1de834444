"""Numbered steps of a schema, forward and back: which comes next. The SQL stores share this, and no SQL.

The caller holds its store's lock while it asks where the schema stands, asks here for the next move, makes
it and writes down where it stands then, all in one transaction. So any number of migrators may run at once:
each finds what the others have left to do.

A step whose up-script begins with the line `-- phase: after` is for when no old code runs any more. New code
does without it for as long; every other step it demands.
"""

import re
from collections.abc import Sequence
from importlib.resources import files

from msgspec import Struct

from .._store.protocol import Finding, Migration, Phase, Severity
from ..errors import InvalidOption, SchemaMismatch

_NAME = re.compile(r"(\d{4})_(\w+)\.up\.sql")
_PHASE = re.compile(r"-- phase: (\w+)\n")


class Step(Struct, frozen=True, kw_only=True):
    """One numbered step, there and back."""

    number: int
    name: str
    up: str
    down: str

    @property
    def phase(self) -> Phase:
        """When it may be taken, as the first line of its script says."""
        said = _PHASE.match(self.up)
        return Phase.BEFORE if said is None else Phase(said[1])

    def reported(self, *, applied: bool) -> Migration:
        """The step as it is shown."""
        return Migration(number=self.number, name=self.name, applied=applied, phase=self.phase)


class Move(Struct, frozen=True, kw_only=True):
    """One step to take now: the script to run, and the number at which the schema stands afterwards."""

    step: Step
    script: str
    arrives_at: int

    @property
    def migration(self) -> Migration:
        """The move as it is reported."""
        return self.step.reported(applied=self.arrives_at == self.step.number)


def load_steps(package: str) -> tuple[Step, ...]:
    """The steps in a package's folder `migrations`: 0001_tasks.up.sql, 0001_tasks.down.sql and so on."""
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
    """The step that leads from `at` towards `target` (None: the newest); None if it is reached."""
    newest = len(steps)
    goal = newest if target is None else target
    if not 0 <= goal <= newest:
        raise InvalidOption(f"there is no schema number {goal}: they go from 0 (nothing) to {newest}")
    if at > newest:
        raise newer(at, newest)
    if at == goal:
        return None
    step = steps[at] if at < goal else steps[at - 1]
    return (
        Move(step=step, script=step.up, arrives_at=at + 1)
        if at < goal
        else Move(step=step, script=step.down, arrives_at=at - 1)
    )


def overview(steps: Sequence[Step], at: int) -> tuple[Migration, ...]:
    """Every step that this code or the store knows."""
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
    """The number that this code cannot work below: `after` steps may be outstanding, if they are the last."""
    return max((step.number for step in steps if step.phase is Phase.BEFORE), default=0)


def standing(steps: Sequence[Step], at: int, where: str) -> Finding:
    """Where the schema stands, as a line of the store's health report."""
    try:
        require_current(steps, at, where)
    except SchemaMismatch as error:
        return Finding(severity=Severity.ERROR, subject="schema", message=str(error))
    if at == len(steps):
        message = f"{where} has schema {at}, the newest"
        return Finding(severity=Severity.OK, subject="schema", message=message)
    message = (
        f"{where} has schema {at} of {len(steps)}: once no older version of windlass runs, "
        f"`windlass migrate --phase after`"
    )
    return Finding(severity=Severity.WARNING, subject="schema", message=message)


def newer(at: int, newest: int, where: str = "the store") -> SchemaMismatch:
    """The error for a schema that this code does not know."""
    return SchemaMismatch(
        f"{where} has schema {at}, this version of windlass knows only up to {newest}: upgrade windlass, or "
        f"go back with the newer version's `windlass migrate --to {newest}`"
    )
