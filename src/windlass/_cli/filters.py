"""The options that select tasks, as `tasks` and `dead` share them: filters, and pages of a list."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypedDict, TypeVar

import click

from .._model.filter import Filter, Page
from .._model.state import State
from .options import MAX_LISTED, stacked, task_id, when

F = TypeVar("F", bound=Callable[..., Any])


class FilterOptions(TypedDict):
    """The values of `filter_options`."""

    types: tuple[str, ...]
    queues: tuple[str, ...]
    tenants: tuple[str, ...]
    root: str | None
    key: str | None
    error: str | None
    since: datetime | None
    until: datetime | None


class PageOptions(TypedDict):
    """The values of `page_options`."""

    limit: int
    cursor: str | None
    oldest: bool


def filter_options(past: str) -> Callable[[F], F]:
    """The options of a filter; `past` says what --since and --until are about: "created", "died"."""
    past = past.capitalize()
    return stacked(
        click.option("--type", "types", multiple=True, metavar="TYPE", help="Only this type (repeatable)"),
        click.option(
            "--queue", "-q", "queues", multiple=True, metavar="QUEUE", help="Only this queue (repeatable)"
        ),
        click.option(
            "--tenant", "tenants", multiple=True, metavar="TENANT", help="Only this tenant (repeatable)"
        ),
        click.option("--root", type=task_id, help="Only the chain or group that began with this task"),
        click.option("--key", metavar="KEY", help="Only this idempotency key"),
        click.option("--error", metavar="TEXT", help="Only tasks whose last error contains this text"),
        click.option("--since", type=when, help=f"{past} at or after this instant, or this long ago (2h)"),
        click.option("--until", type=when, help=f"{past} before this instant, or this long ago (2h)"),
    )


page_options = stacked(
    click.option(
        "--limit",
        type=click.IntRange(1, MAX_LISTED),
        default=50,
        show_default=True,
        metavar="N",
        help="At most N tasks",
    ),
    click.option("--cursor", type=task_id, metavar="ID", help="Start after this task, the last one listed"),
    click.option("--oldest", is_flag=True, help="Oldest first  [default: newest first]"),
)


def page_of(options: PageOptions) -> Page:
    """The page that these options ask for."""
    return Page(limit=options["limit"], cursor=options["cursor"], newest_first=not options["oldest"])


def created_filter(options: FilterOptions, states: tuple[State, ...] = ()) -> Filter:
    """A filter whose --since and --until are about when tasks were created."""
    return Filter(**_common(options, states), created_after=options["since"], created_before=options["until"])


def finished_filter(options: FilterOptions, states: tuple[State, ...] = ()) -> Filter:
    """A filter whose --since and --until are about when tasks ended."""
    return Filter(
        **_common(options, states), finished_after=options["since"], finished_before=options["until"]
    )


def is_filtered(options: FilterOptions) -> bool:
    """Whether any option of the filter was given."""
    return any(options.get(name) for name in FilterOptions.__annotations__)


def _common(options: FilterOptions, states: tuple[State, ...]) -> dict[str, Any]:
    return {
        "states": states or None,
        "types": options["types"] or None,
        "queues": options["queues"] or None,
        "tenants": options["tenants"] or None,
        "root": options["root"],
        "idempotency_key": options["key"],
        "error": options["error"],
    }
