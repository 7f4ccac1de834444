"""`windlass migrate`: upgrade or downgrade the store's schema."""

from collections.abc import Sequence

import click

from ..._policy.input.quote import counted
from ..._store.protocol import Migration, Phase
from ...errors import InvalidOption, Refused
from ..command import Cli, Command, pass_cli
from ..operator_actions import confirmed
from ..options import choice_option
from ..output import Column

_COLUMNS = (
    Column[Migration]("number", lambda step: f"{step.number:04d}", right=True),
    Column[Migration]("name", lambda step: step.name),
    Column[Migration]("phase", lambda step: step.phase.value),
    Column[Migration]("applied", lambda step: ("yes", "green") if step.applied else ("no", "yellow")),
)


@click.command("migrate", cls=Command)
@click.option(
    "--to",
    "target",
    type=click.IntRange(0, 9999),
    metavar="N",
    help="Migrate up or down to this step  [default: newest]",
)
@choice_option(
    "--phase",
    of=Phase,
    help="Take only the steps that are safe before the deployment of this version, or those left for after",
)
@click.option("--list", "only_list", is_flag=True, help="List the steps and change nothing")
@click.option(
    "--sql", "as_sql", is_flag=True, help="Print the SQL of the steps and change nothing (Postgres)"
)
@click.option(
    "--from",
    "start",
    type=click.IntRange(0, 9999),
    metavar="N",
    help="With --sql: the step that the store is at; 0 is a new store  [default: ask the store]",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation before migrating down")
@pass_cli
def migrate(
    cli: Cli,
    *,
    target: int | None,
    phase: str | None,
    only_list: bool,
    as_sql: bool,
    start: int | None,
    yes: bool,
) -> None:
    """Migrate the store's schema to this version of windlass.

    To upgrade while the old version runs: migrate with --phase before, deploy, and with --phase after once no
    old process runs.
    """
    if phase is not None and target is not None:
        raise InvalidOption("--to and --phase exclude each other")
    if start is not None:
        if not as_sql or phase is not None:
            raise InvalidOption("--from goes with --sql, and without --phase, which asks the store")
        print(cli.app.migration_sql(start, target), end="")
        return

    async def work() -> None:
        steps = await cli.operator.migrations()
        if only_list:
            cli.output.items(steps, _COLUMNS, none="this store has no schema")
            return
        if not steps:
            cli.output.say(f"the store {cli.app.store_name} has no schema to migrate")
            return
        _check_target(steps, target, yes=yes or as_sql)
        goal = target if phase is None else target_of(steps, Phase(phase))
        if as_sql:
            present = max((step.number for step in steps if step.applied), default=0)
            print(cli.app.migration_sql(present, goal), end="")
            return
        taken = await cli.operator.migrate(goal)
        cli.output.items(taken, _COLUMNS, none="the schema is up to date")

    cli.run(work, create=True)


def target_of(steps: Sequence[Migration], phase: Phase) -> int | None:
    """The step to migrate to in this phase; None is the newest. A new store has no old code to consider."""
    outstanding = [step for step in steps if not step.applied]
    late = [step.number for step in outstanding if step.phase is Phase.AFTER]
    if phase is Phase.AFTER or not late or len(outstanding) == len(steps):
        return None
    blocked = [step.number for step in outstanding if step.phase is Phase.BEFORE and step.number > late[0]]
    if blocked:
        raise Refused(
            f"step {blocked[0]:04d} belongs before the deployment, but step {late[0]:04d} comes first and "
            f"needs every older version stopped; deploy the version of that step and run `windlass migrate "
            f"--phase after`, or stop everything and run `windlass migrate`"
        )
    return late[0] - 1


def _check_target(steps: Sequence[Migration], target: int | None, *, yes: bool) -> None:
    """Raise InvalidOption for a step that does not exist, Refused if a downgrade is not confirmed."""
    if target is None:
        return
    highest = max(step.number for step in steps)
    if target > highest:
        raise InvalidOption(f"there is no migration {target}; the newest is {highest}")
    undone = [step for step in steps if step.applied and step.number > target]
    if undone and not yes and not confirmed(f"undo {counted(len(undone), 'step')}? Their data is lost"):
        raise Refused("not confirmed; the schema is unchanged (--yes skips the question)")
