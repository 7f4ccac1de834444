"""`windlass limits`: list, set, change and remove limits."""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import click
from msgspec import Struct

from ..._documents.limits import limit_document
from ..._model.limit import Limit, Usage
from ..._policy.input.quote import shorten
from ..._policy.order.limit_options import format_rate
from ..command import Cli, Commands, on_store, pass_cli
from ..operator_actions import audit_options, name_command
from ..options import stacked, start_rate
from ..output import Column, Document, Styled

_BUSIEST = 3
_MAX_VALUE = 24  # characters of a value in the table

_limit_options = stacked(
    click.option("--queue", "-q", metavar="QUEUE", help="Only tasks of this queue  [default: any]"),
    click.option("--type", "-t", metavar="TYPE", help="Only tasks of this type  [default: any]"),
    click.option("--tenant", metavar="TENANT", help="Only tasks of this tenant  [default: any]"),
    click.option(
        "--by",
        metavar="FIELD",
        help="Count per value of queue, type, tenant, a payload field or the host of a URL in it (url.host)",
    ),
    click.option("--running", type=int, metavar="N", help="At most N tasks run at once"),
    click.option(
        "--rate", type=start_rate, metavar="RATE", help="At most this many starts per time: 10/s, 100/m, 5/h"
    ),
    click.option(
        "--burst",
        type=int,
        metavar="N",
        help="At most N starts at once after a pause  [default: starts in one second]",
    ),
    click.option("--all", is_flag=True, help="All tasks, of any queue, type and tenant"),
)


class LimitUse(Struct, frozen=True, kw_only=True):
    """A limit and its usages, busiest first."""

    limit: Limit
    usages: list[Usage]


@click.group(cls=Commands)
def limits() -> None:
    """List, set, change and remove limits."""


@limits.command("list")
@on_store
async def list_limits(cli: Cli) -> None:
    """List limits and how much of each is in use."""
    found = await cli.operator.limits.list()
    usages: dict[str, list[Usage]] = defaultdict(list)
    for usage in await cli.operator.limits.usages() if found else ():
        usages[usage.limit].append(usage)
    declared = await cli.operator.limits.declared()
    cli.output.items(
        [LimitUse(limit=one, usages=one.busiest(usages[one.name])) for one in found],
        _COLUMNS,
        lambda use: limit_document(use.limit, use.usages, declared=use.limit.name in declared),
        none="there are no limits",
    )


@limits.command("show")
@click.argument("name")
@on_store
async def show(cli: Cli, name: str) -> None:
    """Show a limit and each value that uses it."""
    limit = await cli.operator.limits.get(name)
    usages = limit.busiest(await cli.operator.limits.usages(name))
    if cli.as_json:
        declared = name in await cli.operator.limits.declared()
        cli.output.document(limit_document(limit, usages, declared=declared))
        return
    cli.output.fields(
        [
            ("name", limit.name),
            ("applies to", _scope(limit)),
            ("by", limit.by or ""),
            ("running", "" if limit.running is None else f"at most {limit.running:,}"),
            ("rate", _rate(limit)),
        ]
    )
    if usages:
        cli.output.heading("in use")
        columns = (
            Column[Usage](limit.by or "", lambda usage: usage.value, elastic=True),
            Column[Usage]("running", lambda usage: _of(usage.running, limit.running), right=True),
            Column[Usage]("starts left", lambda usage: _left(limit, usage), right=True, optional=True),
        )
        cli.output.items(usages, columns, none="")


@limits.command("set")
@click.argument("name")
@_limit_options
@click.option("--create", is_flag=True, help="Set up a new limit if there is none of this name")
@audit_options
@pass_cli
def set_limit(cli: Cli, /, *, name: str, create: bool, **given: Any) -> None:
    """Change parts of a limit, or set up a new one with --create.

    Options that are not given stay as they are; an empty value, as in --by "", removes one. It applies from
    the next claim on. A limit that an app declares is reset when its declaration changes.
    """
    options = _options(given)
    if not options:
        raise click.UsageError("Give at least one option to set", click.get_current_context())
    if create:
        options["create"] = True
    cli.run(lambda: _print_result(cli, cli.operator.limits.set, name, options), create=create)


@limits.command("change")
@click.argument("name")
@_limit_options
@audit_options
@pass_cli
def change(cli: Cli, /, *, name: str, **given: Any) -> None:
    """Do the same as `set`, for a limit that exists."""
    options = _options(given)
    if not options:
        raise click.UsageError("Give at least one option to change", click.get_current_context())
    cli.run(lambda: _print_result(cli, cli.operator.limits.change, name, options))


@name_command(limits, "remove", "removed", metavar="NAME")
async def remove(cli: Cli, name: str) -> Document:
    """Remove a limit; tasks it held back can start."""
    await cli.operator.limits.remove(name)
    return {"name": name, "removed": True}


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """The options that were given. Empty text means None, so only programs can limit the empty tenant."""
    named = {key: value for key, value in given.items() if value is not None and value is not False}
    return {key: None if value == "" else value for key, value in named.items()}


async def _print_result(
    cli: Cli, store: Callable[..., Awaitable[Limit]], name: str, options: dict[str, Any]
) -> None:
    limit = await store(name, **options)
    parts = (
        _scope(limit),
        f"per {limit.by}" if limit.by else "",
        "" if limit.running is None else f"{limit.running:,} at once",
        _rate(limit),
    )
    text = ", ".join(part for part in parts if part)
    declared = limit.name in await cli.operator.limits.declared()
    cli.output.say(f"limit {limit.name}: {text}", limit_document(limit, (), declared=declared))


def _scope(limit: Limit) -> str:
    """Which tasks a limit applies to."""
    given = (("queue", limit.queue), ("type", limit.type), ("tenant", limit.tenant))
    parts = [f"{name} {value or '(none)'}" for name, value in given if value is not None]
    return ", ".join(parts) or "all tasks"


def _rate(limit: Limit) -> str:
    return "" if limit.rate is None else f"{format_rate(limit.rate)}, burst {limit.capacity:,}"


def _of(number: int, maximum: int | None) -> Styled:
    if maximum is None:
        return f"{number:,}", ""
    return f"{number:,}/{maximum:,}", "yellow" if number >= maximum else ""


def _left(limit: Limit, usage: Usage | None) -> str:
    """The starts that are left, of how many."""
    if limit.rate is None:
        return ""
    tokens = limit.capacity if usage is None or usage.tokens is None else usage.tokens
    return f"{tokens:.1f}/{limit.capacity:,}"


def _running(use: LimitUse) -> Styled:
    if use.limit.by is None:
        return _of(use.usages[0].running if use.usages else 0, use.limit.running)
    return f"{sum(usage.running for usage in use.usages):,}", ""


def _busiest(use: LimitUse) -> str:
    if use.limit.by is None:
        return ""
    return ", ".join(
        f"{shorten(usage.value, _MAX_VALUE) or '(none)'} {_of(usage.running, use.limit.running)[0]}"
        for usage in use.usages[:_BUSIEST]
        if usage.running
    )


def _starts_left(use: LimitUse) -> str:
    if use.limit.by is None:
        return _left(use.limit, use.usages[0] if use.usages else None)
    fewest = min(use.usages, key=lambda usage: usage.tokens or 0.0, default=None)
    return "" if fewest is None else _left(use.limit, fewest)


_COLUMNS = (
    Column[LimitUse]("name", lambda use: use.limit.name, elastic=True),
    Column[LimitUse]("applies to", lambda use: _scope(use.limit), elastic=True),
    Column[LimitUse]("by", lambda use: use.limit.by or "", optional=True),
    Column[LimitUse]("running", _running, right=True),
    Column[LimitUse](
        "rate", lambda use: "" if use.limit.rate is None else format_rate(use.limit.rate), optional=True
    ),
    Column[LimitUse]("starts left", _starts_left, right=True, optional=True),
    Column[LimitUse]("busiest", _busiest, elastic=True, optional=True),
)
