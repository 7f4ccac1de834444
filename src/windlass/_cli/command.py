"""What was asked for apart from a command's own options: which store, which app, tables or JSON."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import InvalidOption, NotFound
from .output import Output

if TYPE_CHECKING:
    from .._model.filter import By
    from ..app import App
    from ..config import Settings

T = TypeVar("T")


class Asked:
    """The shared options, wherever on the line they stood, and the app or store they lead to."""

    def __init__(self) -> None:
        self.flags: dict[str, Any] = {}
        self.as_json = False
        self.file: Path | None = None
        self.by: By | None = None  # who acts, where a command does

    @cached_property
    def settings(self) -> "Settings":
        """The settings in force, these flags included."""
        from ..config import Settings

        return Settings.load(self.file, flags=self.flags)

    @property
    def output(self) -> Output:
        """How to answer."""
        return Output(as_json=self.as_json)

    @cached_property
    def app(self) -> "App":
        """The app named, on the store named; without an app one that declares nothing."""
        from ..app import DEFAULT_STORE, App
        from .target import load_app

        settings = self.settings
        if settings.app is None:
            return App(settings.store or DEFAULT_STORE, webhook_secret=settings.webhook_secret)
        app = load_app(settings.app)
        if settings.store is not None:
            app.use_store(settings.store)
        if settings.webhook_secret is not None:
            app.alert_notifier.secret = settings.webhook_secret
        return app

    def run(self, work: Callable[["App"], Awaitable[T]]) -> T:
        """Do this with a store that must be there already: looking must not make one."""
        return self.run_anywhere(lambda app: _if_there(app, work))

    def run_anywhere(self, work: Callable[["App"], Awaitable[T]], *, long: bool = False) -> T:
        """Do this, making the store where there is none."""
        _require_shared(self.app)
        return self.run_alone(work, long=long)

    def run_alone(self, work: Callable[["App"], Awaitable[T]], *, long: bool = False) -> T:
        """Do this, on a store that nobody else need see; `long`: on the quickest loop there is."""
        from .._worker.process import calm_collector, loop_factory

        app = self.app
        if long:
            calm_collector()
        if self.by is not None:
            app.operator = app.operator.acting_as(self.by)

        async def session() -> T:
            try:
                return await work(app)
            finally:
                await app.close()

        with asyncio.Runner(loop_factory=loop_factory() if long else None) as runner:
            return runner.run(session())


def _require_shared(app: "App") -> None:
    from .._store.protocol import Capability

    if Capability.SHARE not in app.store.capabilities:
        raise InvalidOption(
            f"the store {app.place} lives inside the process that made it and cannot be seen from here; "
            f"name another with --store or WINDLASS_STORE"
        )


async def _if_there(app: "App", work: Callable[["App"], Awaitable[T]]) -> T:
    from .._store.protocol import Capability

    if Capability.MIGRATE in app.store.capabilities:
        steps = await app.operator.migrations()
        if not any(step.applied for step in steps):
            raise NotFound(
                f"there is no store at {app.place} yet; start a worker, enqueue a task or run "
                f"`windlass migrate` to make it, or name another with --store"
            )
    return await work(app)


class Command(click.Command):
    """A command that takes the shared options too, after its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(shared_options())


class Commands(click.Group):
    """A group of such commands."""

    command_class: type[click.Command] | None = Command


def shared_options() -> Iterator[click.Option]:
    """The options that every command takes, before or after its name."""
    yield click.Option(
        ["--store"], metavar="URL", help="Where the tasks are.", callback=_flag, expose_value=False
    )
    yield click.Option(
        ["--app"],
        metavar="MODULE:NAME",
        help="The app whose store and task types to use.",
        callback=_flag,
        expose_value=False,
    )
    yield click.Option(
        ["--config"],
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Settings, instead of those of this folder.",
        callback=_file,
        expose_value=False,
    )
    yield click.Option(
        ["--json"],
        is_flag=True,
        help="Print JSON, one object a line.",
        callback=_json,
        expose_value=False,
    )
    yield click.Option(["--debug"], is_flag=True, help="Show tracebacks of errors.", expose_value=False)


def _flag(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None and option.name is not None:
        context.ensure_object(Asked).flags[option.name] = value


def _file(context: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None:
        context.ensure_object(Asked).file = value


def _json(context: click.Context, _: click.Parameter, value: bool) -> None:
    asked = context.ensure_object(Asked)
    asked.as_json = asked.as_json or value


pass_asked = click.make_pass_decorator(Asked, ensure=True)
