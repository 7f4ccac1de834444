"""`windlass limits`: how many may run or start, and how many do. (F4, F5)"""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from ..._model.limit import Limit, Usage
from ..._policy.input.quoting import shorten
from ..._policy.order.rates import format_rate
from ..command import Asked, Commands, pass_asked
from ..documents import limit_document
from ..operator_actions import audited
from ..options import stacked, start_rate
from ..output import Column, Styled

if TYPE_CHECKING:
    from ...app import App

_BUSIEST = 3
_LONGEST = 24

_options = stacked(
    click.option("--queue", "-q", help="For tasks of this queue (default: any)."),
    click.option("--type", "-t", help="For tasks of this type (default: any)."),
    click.option("--tenant", help="For tasks of this tenant (default: any)."),
    click.option(
        "--by", metavar="FIELD", help="Count each queue, type, tenant or payload field's value apart."
    ),
    click.option("--running", type=int, metavar="N", help="How many may run at once."),
    click.option("--rate", type=start_rate, help="How many may start in a time: 10/s, 100/m, 5/h."),
    click.option("--burst", type=int, metavar="N", help="How many may start at once after a quiet time."),
)


class Line(Struct, frozen=True, kw_only=True):
    """A limit, with what of it is in use, the busiest first."""

    limit: Limit
    usages: list[Usage]


@click.group(cls=Commands)
def limits() -> None:
    """See, set and remove limits on how many tasks run at once or start in a time."""


@limits.command("list")
@pass_asked
def list_limits(asked: Asked) -> None:
    """List limits with what of them is in use; of those by a value, the busiest."""

    async def work(app: "App") -> None:
        asked.output.items(await overview(app), _COLUMNS, _document, none="nothing is limited")

    asked.run(work)


@limits.command("show")
@click.argument("name")
@pass_asked
def show(asked: Asked, name: str) -> None:
    """Show one limit and every value under which something ran."""

    async def work(app: "App") -> None:
        limit = await app.operator.limits.get(name)
        line = Line(limit=limit, usages=limit.busiest(await app.operator.limits.usages(name)))
        if asked.as_json:
            asked.output.document(_document(line))
            return
        asked.output.fields(
            [
                ("name", limit.name),
                ("for", _applies(limit)),
                ("by", limit.by or ""),
                ("running", "" if limit.running is None else f"at most {limit.running:,}"),
                ("rate", "" if limit.rate is None else _rate(limit)),
            ]
        )
        if line.usages:
            asked.output.heading("in use")
            columns = (
                Column[Usage](limit.by or "", lambda usage: usage.value, elastic=True),
                Column[Usage]("running", lambda usage: _of(usage.running, limit.running), right=True),
                Column[Usage]("starts left", lambda usage: _left(limit, usage), right=True, optional=True),
            )
            asked.output.items(line.usages, columns, lambda _: {}, none="")

    asked.run(work)


@limits.command("set")
@click.argument("name")
@_options
@audited
@pass_asked
def set_limit(asked: Asked, /, *, name: str, **given: Any) -> None:
    """Set a limit, in place of the one of that name. It holds from the next claim on.

    A limit that an app declares is set back only when its declaration changes.
    """
    asked.run_anywhere(lambda app: _keep(asked, app.operator.limits.set, name, _said(given)))


@limits.command("change")
@click.argument("name")
@_options
@audited
@pass_asked
def change(asked: Asked, /, *, name: str, **given: Any) -> None:
    """Change what is given of a limit that exists. --by "" and the like take something away."""
    if not (said := _said(given)):
        raise click.UsageError("What is to change? Give at least one option", click.get_current_context())
    asked.run(lambda app: _keep(asked, app.operator.limits.change, name, said))


def _said(given: dict[str, Any]) -> dict[str, Any]:
    """The options that were given. Empty text is none: tasks without a tenant are for programs to limit."""
    return {key: None if value == "" else value for key, value in given.items() if value is not None}


async def _keep(asked: Asked, keep: Callable[..., Awaitable[Limit]], name: str, said: dict[str, Any]) -> None:
    limit = await keep(name, **said)
    told = ", ".join(part for part in _told(limit) if part)
    asked.output.say(f"limit {limit.name}: {told}", limit_document(limit, ()))


@limits.command("remove")
@click.argument("name")
@audited
@pass_asked
def remove(asked: Asked, name: str) -> None:
    """Remove a limit: what waited for it may start."""

    async def work(app: "App") -> None:
        await app.operator.limits.remove(name)
        asked.output.say(f"removed {name}", {"limit": name, "removed": True})

    asked.run(work)


async def overview(app: "App") -> list[Line]:
    """Every limit, with what is in use."""
    found = await app.operator.limits.list()
    used: dict[str, list[Usage]] = defaultdict(list)
    for usage in await app.operator.limits.usages() if found else ():
        used[usage.limit].append(usage)
    return [Line(limit=limit, usages=limit.busiest(used[limit.name])) for limit in found]


def _document(line: Line) -> dict[str, Any]:
    return limit_document(line.limit, line.usages)


def _applies(limit: Limit) -> str:
    named = (("queue", limit.queue), ("type", limit.type), ("tenant", limit.tenant))
    return (
        ", ".join(f"{what} {value or '(none)'}" for what, value in named if value is not None) or "every task"
    )


def _rate(limit: Limit) -> str:
    return f"{format_rate(limit.rate or 0)}, burst {limit.capacity:,}"


def _told(limit: Limit) -> tuple[str, ...]:
    return (
        _applies(limit),
        f"each {limit.by} for itself" if limit.by else "",
        "" if limit.running is None else f"{limit.running:,} at once",
        "" if limit.rate is None else _rate(limit),
    )


def _of(number: int, most: int | None) -> Styled:
    if most is None:
        return f"{number:,}", ""
    return f"{number:,}/{most:,}", "yellow" if number >= most else ""


def _left(limit: Limit, usage: Usage | None) -> str:
    """The starts that are left, of how many."""
    if limit.rate is None:
        return ""
    tokens = limit.capacity if usage is None or usage.tokens is None else usage.tokens
    return f"{tokens:.1f}/{limit.capacity:,}"


def _running(line: Line) -> Styled:
    if line.limit.by is None:
        return _of(line.usages[0].running if line.usages else 0, line.limit.running)
    return f"{sum(usage.running for usage in line.usages):,}", ""


def _busiest(line: Line) -> str:
    if line.limit.by is None:
        return ""
    most = line.limit.running
    return ", ".join(
        f"{shorten(usage.value, _LONGEST) or '(none)'} {_of(usage.running, most)[0]}"
        for usage in line.usages[:_BUSIEST]
        if usage.running
    )


def _starts(line: Line) -> str:
    if line.limit.by is None:
        return _left(line.limit, line.usages[0] if line.usages else None)
    if line.limit.rate is None or not line.usages:
        return ""
    return _left(line.limit, min(line.usages, key=lambda usage: usage.tokens or 0.0))


_COLUMNS = (
    Column[Line]("name", lambda line: line.limit.name, elastic=True),
    Column[Line]("for", lambda line: _applies(line.limit), elastic=True),
    Column[Line]("by", lambda line: line.limit.by or "", optional=True),
    Column[Line]("running", _running, right=True),
    Column[Line](
        "rate", lambda line: "" if line.limit.rate is None else format_rate(line.limit.rate), optional=True
    ),
    Column[Line]("starts left", _starts, right=True, optional=True),
    Column[Line]("busiest", _busiest, elastic=True, optional=True),
)
