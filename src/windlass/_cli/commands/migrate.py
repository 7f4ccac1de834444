"""`windlass migrate`: bring the store's schema up, or down."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..._store.protocol import Migration, Phase
from ...errors import InvalidOption, Refused
from ..command import Asked, Command, pass_asked
from ..documents import migration_document
from ..output import Column

if TYPE_CHECKING:
    from ...app import App

_COLUMNS = (
    Column[Migration]("number", lambda step: f"{step.number:04d}", right=True),
    Column[Migration]("name", lambda step: step.name),
    Column[Migration]("phase", lambda step: step.phase.value),
    Column[Migration]("applied", lambda step: ("yes", "green") if step.applied else ("no", "yellow")),
)


@click.command("migrate", cls=Command)
@click.option("--to", "target", type=click.IntRange(0, 9999), metavar="N", help="Up or down to this number.")
@click.option(
    "--phase",
    type=click.Choice([phase.value for phase in Phase]),
    help="Only what may be done before the new version is deployed, or what is left for after.",
)
@click.option("--list", "only_list", is_flag=True, help="Only list the steps of the schema.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before going down.")
@pass_asked
def migrate(asked: Asked, target: int | None, phase: str | None, only_list: bool, yes: bool) -> None:
    """Bring the store's schema to this version of windlass, or to the one named.

    To upgrade while the old version runs: --phase before, deploy, and --phase after once the old one is gone.
    """
    if phase is not None and target is not None:
        raise InvalidOption("--to names a step and --phase several: give one of them")

    async def work(app: "App") -> None:
        steps = await app.operator.migrations()
        if only_list:
            asked.output.items(steps, _COLUMNS, migration_document, none="this store has no schema")
            return
        if not steps:
            asked.output.say(f"the store {app.place} has no schema to migrate")
            return
        _check(steps, target, yes=yes)
        taken = await app.operator.migrate(target if phase is None else _reached(steps, Phase(phase)))
        asked.output.items(taken, _COLUMNS, migration_document, none="nothing to do")

    asked.run_anywhere(work)


def _reached(steps: Sequence[Migration], phase: Phase) -> int | None:
    """The number to go to in this phase; None: the newest. A new store has no old code to be careful of."""
    outstanding = [step for step in steps if not step.applied]
    late = [step.number for step in outstanding if step.phase is Phase.AFTER]
    if phase is Phase.AFTER or not late or len(outstanding) == len(steps):
        return None
    blocked = [step.number for step in outstanding if step.phase is Phase.BEFORE and step.number > late[0]]
    if blocked:
        raise Refused(
            f"step {blocked[0]:04d} belongs before the new version, but step {late[0]:04d} ahead of it may "
            f"only be taken once no version older than its own runs: deploy that one first and then "
            f"`windlass migrate --phase after`, or stop everything and `windlass migrate`"
        )
    return late[0] - 1


def _check(steps: Sequence[Migration], target: int | None, *, yes: bool) -> None:
    if target is None:
        return
    highest = max(step.number for step in steps)
    if target > highest:
        raise InvalidOption(f"there is no migration {target}; the newest is {highest}")
    undone = [step for step in steps if step.applied and step.number > target]
    if not undone or yes:
        return
    try:
        agreed = click.confirm(f"undo {len(undone)} steps? What they hold is lost", err=True)
    except click.Abort:
        agreed = False
    if not agreed:
        raise Refused("the schema was left as it is; --yes skips the question")
