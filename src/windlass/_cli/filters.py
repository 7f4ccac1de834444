"""Which tasks: the filter options that several commands share."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypedDict, TypeVar

import click

from .._model.filter import Filter
from .._model.state import State
from .options import stacked, task_id, when

F = TypeVar("F", bound=Callable[..., Any])


class Wanted(TypedDict):
    """What the filter options give."""

    types: tuple[str, ...]
    queues: tuple[str, ...]
    tenants: tuple[str, ...]
    root: str | None
    key: str | None
    error: str | None
    since: datetime | None
    until: datetime | None


def filter_options(since: str) -> Callable[[F], F]:
    """The options of a filter; `since` completes the help of --since: "created", "ended"."""
    return stacked(
        click.option("--type", "types", multiple=True, metavar="TYPE", help="Of this type (repeatable)."),
        click.option(
            "--queue", "-q", "queues", multiple=True, metavar="QUEUE", help="In this queue (repeatable)."
        ),
        click.option(
            "--tenant", "tenants", multiple=True, metavar="TENANT", help="Of this tenant (repeatable)."
        ),
        click.option("--root", type=task_id, help="Of the chain or group with this first task."),
        click.option("--key", metavar="KEY", help="With this idempotency key."),
        click.option("--error", metavar="TEXT", help="Whose last error holds this text."),
        click.option(
            "--since", type=when, help=f"{since.capitalize()} since: an instant, or how long ago (2h)."
        ),
        click.option("--until", type=when, help=f"{since.capitalize()} before: likewise."),
    )


def created(wanted: Wanted, states: tuple[State, ...] = ()) -> Filter:
    """A filter whose times are those of creation."""
    return Filter(**_common(wanted, states), created_after=wanted["since"], created_before=wanted["until"])


def finished(wanted: Wanted, states: tuple[State, ...] = ()) -> Filter:
    """A filter whose times are those of the end."""
    return Filter(**_common(wanted, states), finished_after=wanted["since"], finished_before=wanted["until"])


def is_set(wanted: Wanted) -> bool:
    """Whether any of them was given."""
    return any(wanted.values())


def _common(wanted: Wanted, states: tuple[State, ...]) -> dict[str, Any]:
    return {
        "states": states or None,
        "types": wanted["types"] or None,
        "queues": wanted["queues"] or None,
        "tenants": wanted["tenants"] or None,
        "root": wanted["root"],
        "idempotency_key": wanted["key"],
        "error": wanted["error"],
    }
