"""The options that select tasks, as `tasks` and `dead` share them: filters, and pages of a list."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeAlias

import click
from msgspec import Struct

from .._model.filter import Filter, Page
from .._model.state import ENDED, State
from .options import MAX_LISTED, choice_option, instant, number_option, stacked, task_id, when

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


def collected(name: str, kind: type[Struct], *options: Decorator) -> Decorator:
    """Combine options that are fields of `kind`: the command takes one value of that kind, as `name`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def call(*args: Any, **given: Any) -> Any:
            fields = {field: given.pop(field) for field in kind.__struct_fields__ if field in given}
            value = kind(**{field: None if value == () else value for field, value in fields.items()})
            return command(*args, **given, **{name: value})

        return stacked(*options)(call)

    return decorate


def _filter_options(past: str, field: str) -> Decorator:
    """The options of a filter; --since and --until are about when tasks were created or died."""

    def repeatable(name: str, *names: str) -> Decorator:
        metavar, text = name.upper(), f"Only this {name} (repeatable)"
        return click.option(f"--{name}", *names, f"{name}s", multiple=True, metavar=metavar, help=text)

    instant = "this instant, or this long ago (2h)"
    return stacked(
        repeatable("type"),
        repeatable("queue", "-q"),
        repeatable("tenant"),
        click.option("--root", type=task_id, help="Only the chain or group that began with this task"),
        click.option("--chained", is_flag=True, help="Only tasks of chains and groups"),
        click.option("--key", "idempotency_key", metavar="KEY", help="Only this idempotency key"),
        click.option("--error", metavar="TEXT", help="Only tasks whose last error contains this text"),
        click.option(
            "--failure",
            "failures",
            multiple=True,
            metavar="ID",
            help="Only this failure, as `windlass dead failures` lists it (repeatable)",
        ),
        click.option("--since", f"{field}_after", type=when, help=f"{past} at or after {instant}"),
        click.option("--until", f"{field}_before", type=when, help=f"{past} before {instant}"),
    )


filter_options = collected(
    "where",
    Filter,
    choice_option(
        "--state",
        "states",
        of=State,
        multiple=True,
        callback=lambda _, __, given: tuple(State(state) for state in given),
        help="Only this state (repeatable)",
    ),
    _filter_options("Created", "created"),
    click.option("--expires-before", type=instant, help="Not started, and expiring before this instant"),
)
"""The options of a filter, which the command takes as `where`."""

dead_filter_options = collected("where", Filter, _filter_options("Died", "finished"))
"""The options of a filter of dead letters, which the command takes as `where`."""

ended_filter_options = collected(
    "where",
    Filter,
    choice_option(
        "--state",
        "states",
        of=State,
        only=sorted(ENDED),
        multiple=True,
        callback=lambda _, __, given: tuple(State(state) for state in given),
        help="Only tasks that ended in this state (repeatable)",
    ),
    _filter_options("Ended", "finished"),
)
"""The options of a filter of ended tasks, which the command takes as `where`."""

page_options = collected(
    "page",
    Page,
    number_option("--limit", most=MAX_LISTED, default=50, help="At most N tasks"),
    click.option("--cursor", type=task_id, metavar="ID", help="Start after this task, the last one listed"),
    click.option(
        "--oldest",
        "newest_first",
        is_flag=True,
        callback=lambda _context, _option, oldest: not oldest,
        help="Oldest first  [default: newest first]",
    ),
)
"""The options of a page of a list, which the command takes as `page`."""
