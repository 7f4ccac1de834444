"""Numbered steps of a schema, forward and back: which comes next. The SQL stores share this, and no SQL.

The caller holds its store's lock while it asks where the schema stands, asks here for the next move, makes
it and writes down where it stands then, all in one transaction. So any number of migrators may run at once:
each finds what the others have left to do.
"""

import re
from collections.abc import Sequence
from importlib.resources import files

from msgspec import Struct

from .._store import Migration
from ..errors import InvalidOption, SchemaMismatch

_NAME = re.compile(r"(\d{4})_(\w+)\.up\.sql")


class Step(Struct, frozen=True, kw_only=True):
    """One numbered step, there and back."""

    number: int
    name: str
    up: str
    down: str


class Move(Struct, frozen=True, kw_only=True):
    """One step to take now: the script to run, and the number at which the schema stands afterwards."""

    step: Step
    script: str
    arrives_at: int

    @property
    def migration(self) -> Migration:
        """The move as it is reported."""
        return Migration(
            number=self.step.number, name=self.step.name, applied=self.arrives_at == self.step.number
        )


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
    known = [Migration(number=s.number, name=s.name, applied=s.number <= at) for s in steps]
    unknown = [
        Migration(number=n, name="unknown to this version", applied=True)
        for n in range(len(steps) + 1, at + 1)
    ]
    return (*known, *unknown)


def require_current(at: int, newest: int, where: str) -> None:
    """Raise SchemaMismatch unless the schema is the one that this code was written for."""
    if at > newest:
        raise newer(at, newest, where)
    if at < newest:
        raise SchemaMismatch(
            f"{where} has schema {at}, this version of windlass needs {newest}: run `windlass migrate`"
        )


def newer(at: int, newest: int, where: str = "the store") -> SchemaMismatch:
    """The error for a schema that this code does not know."""
    return SchemaMismatch(
        f"{where} has schema {at}, this version of windlass knows only up to {newest}: upgrade windlass, or "
        f"go back with the newer version's `windlass migrate --to {newest}`"
    )
