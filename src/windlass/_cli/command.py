"""What every command has in common: the shared options, and the settings, app and output they select."""

import asyncio
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from difflib import get_close_matches
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click

from .._policy.other_queues import COMMANDS, SWITCHES
from ..errors import InvalidOption, NotFound
from .output import Output

if TYPE_CHECKING:
    from .._client.operator import Operator
    from .._model.filter import By
    from ..app import App
    from ..config import Settings

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_WHOLE = 1_000  # characters, more than any summary has
_DEFAULT_HANDLERS = {signal.SIGINT: signal.default_int_handler}


class Cli:
    """One run of the command line. Options stored here may be given before or after the command's name."""

    def __init__(self) -> None:
        self.flags: dict[str, Any] = {}  # settings given as options
        self.as_json = False
        self.file: Path | None = None
        self.by: By | None = None  # set by commands that are audited

    @cached_property
    def settings(self) -> "Settings":
        """The settings in force, options included."""
        from ..config import Settings

        return Settings.load(self.file, flags=self.flags)

    @property
    def output(self) -> Output:
        """The output: tables, or JSON with --json."""
        return Output(as_json=self.as_json)

    @cached_property
    def app(self) -> "App":
        """The app and store of the settings; without an app one that declares no task types."""
        from .._archive import Archiver
        from ..app import DEFAULT_STORE, App
        from ..config import encryption_keys
        from .target import load_app

        settings = self.settings
        if settings.app is None:
            app = App(settings.store or DEFAULT_STORE)
        else:
            app = load_app(settings.app, settings.imports)
            if settings.store is not None:
                app.use_store(settings.store)
        if settings.webhook_secret is not None:
            app.alert_notifier.secret = settings.webhook_secret
        if settings.allow_addresses:
            app.alert_notifier.fetcher.allowed = settings.allow_addresses
        if settings.redact:
            app.add_redact(settings.redact)
        if settings.encryption_key_file and (keyring := encryption_keys(settings.encryption_key_file)):
            app.use_keyring(keyring)
        if settings.archive is not None:
            app.archiver = Archiver(settings.archive)
            app.archiver.check()
        return app

    @property
    def operator(self) -> "Operator":
        """The operator of the app; within `run` it acts as `by`."""
        return self.app.operator

    def run(
        self,
        work: Callable[[], Awaitable[T]],
        *,
        create: bool = False,
        private: bool = False,
        long: bool = False,
    ) -> T:
        """Run `work` on an event loop, then close the app.

        Unless `create`, the store must exist already (NotFound): commands that only read never make one.
        Unless `private`, a store that other processes cannot see is an InvalidOption. `long` is for commands
        that run until stopped: it takes the fastest event loop available and tunes the garbage collector.
        """
        from .._worker.process import calm_collector, loop_factory

        app = self.app
        if not private:
            _require_shared(app)
        if long:
            calm_collector()
        if self.by is not None:
            app.operator = app.operator.acting_as(self.by)

        async def session() -> T:
            with cancelled_by(signal.SIGINT):
                try:
                    if not create:
                        await _require_existing(app)
                    return await work()
                finally:
                    await app.close()

        noted = nullcontext() if long else _store_log_noted(self.output)
        with noted, asyncio.Runner(loop_factory=loop_factory() if long else None) as runner:
            return runner.run(session())


@contextmanager
def cancelled_by(*signals: signal.Signals) -> Iterator[None]:
    """Let the first of these signals cancel the current task; the next one ends the process at once.

    The task is cancelled by a callback of the event loop. asyncio's own handler of SIGINT cancels between any
    two bytecodes, and a future that is just being resolved then logs an InvalidStateError. A signal that this
    process was started to ignore stays ignored.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    is_main = threading.current_thread() is threading.main_thread()  # only there handlers can be set
    former = {number: signal.getsignal(number) for number in signals} if is_main else {}
    handled = [number for number, handler in former.items() if handler is not signal.SIG_IGN]

    def cancel(_number: int, _frame: object) -> None:
        # Not a handler of the loop: the next signal must act even if the loop is blocked.
        for number in handled:
            signal.signal(number, _DEFAULT_HANDLERS.get(number, signal.SIG_DFL))
        loop.call_soon_threadsafe(task.cancel)

    for number in handled:
        signal.signal(number, cancel)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, former[number])


@contextmanager
def _store_log_noted(output: Output) -> Iterator[None]:
    """Print of the store's log which file it created.

    Outages are kept off stderr, unless the program logs them: a command that needs the store gets the error.
    """

    class CreatedFiles(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if hasattr(record, "created_file"):
                output.note(record.getMessage())

    logger, handler = logging.getLogger("windlass.store"), CreatedFiles()
    former = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(former)
        logger.removeHandler(handler)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt at once, for code that blocks the event loop."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


def _require_shared(app: "App") -> None:
    from .._store.protocol import Capability

    if Capability.SHARE not in app.store.capabilities:
        raise InvalidOption(
            f"the store {app.store_name} exists only inside the process that made it; "
            f"choose another with --store or WINDLASS_STORE"
        )


async def _require_existing(app: "App") -> None:
    from .._store.protocol import Capability

    if Capability.MIGRATE in app.store.capabilities:
        steps = await app.operator.migrations()
        if not any(step.applied for step in steps):
            raise NotFound(
                f"there is no store at {app.store_name} yet; start a worker, enqueue a task or run "
                f"`windlass migrate` to create it, or choose another with --store"
            )


class _Translated(click.Command):
    """A command whose errors translate options of other task queues."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; the error names the option that is meant by one of another task queue."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            here = SWITCHES.get(error.option_name)
            if here is None or not any(here in option.opts for option in self.params):
                raise
            raise click.UsageError(f"No such option {error.option_name!r}; use {here}", ctx) from None


class Command(_Translated):
    """A command that also takes the shared options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(shared_options())


class Commands(_Translated, click.Group):
    """A group of such commands."""

    command_class: type[click.Command] | None = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first argument names; the error suggests the one that is meant."""
        if args[0] not in self.list_commands(ctx):
            group = "" if ctx.parent is None else f"{ctx.info_name} "
            if here := COMMANDS.get(f"{group}{args[0]}"):
                raise click.UsageError(f"No such command {args[0]!r}; use `windlass {here}`", ctx)
            if meant := get_close_matches(args[0], self.list_commands(ctx), n=1):
                raise click.UsageError(f"No such command {args[0]!r}; did you mean {meant[0]!r}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their whole summaries, which click would cut in a narrow terminal."""
        commands = [self.get_command(ctx, name) for name in self.list_commands(ctx)]
        shown = [command for command in commands if command is not None and not command.hidden]
        with formatter.section("Commands"):
            formatter.write_dl([(str(one.name), one.get_short_help_str(_WHOLE)) for one in shown])


def shared_options() -> Iterator[click.Option]:
    """The options that every command takes."""

    def option(name: str, text: str, keep: Callable[..., None] | None, **attributes: Any) -> click.Option:
        return click.Option(name.split(), help=text, callback=keep, expose_value=False, **attributes)

    store = "Store to use  [default: the app's, else sqlite:///windlass.db]"
    file = "Settings file  [default: windlass.toml or pyproject.toml in this folder]"
    yield option("--store", store, _keep_setting, metavar="URL")
    yield option("--app", "App whose store and task types to use", _keep_setting, metavar="MODULE:NAME")
    modules = "Module to import with the app, which declares task types (repeatable)"
    yield option("--import imports", modules, _keep_setting, multiple=True, metavar="MODULE")
    yield option("--config", file, _keep_file, type=click.Path(path_type=Path), metavar="FILE")
    yield option("--json", "Print JSON, one object per line", _keep_json, is_flag=True)
    yield option("--debug", "Show tracebacks of errors", None, is_flag=True)


def setting_option(*names: str, **attributes: Any) -> Callable[[F], F]:
    """An option that overrides the setting of the same name; the command reads it from `cli.settings`."""
    return click.option(*names, callback=_keep_setting, expose_value=False, **attributes)


def _keep_setting(context: click.Context, option: click.Parameter, value: Any) -> None:
    if value not in (None, ()) and option.name is not None:
        context.ensure_object(Cli).flags[option.name] = value


def keep_flag(context: click.Context, option: click.Parameter, value: bool) -> None:
    """Keep a flag that turns the setting of its name on; without it the setting stays as it is."""
    if value and option.name is not None:
        context.ensure_object(Cli).flags[option.name] = True


def _keep_file(context: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None:
        context.ensure_object(Cli).file = value


def _keep_json(context: click.Context, _: click.Parameter, value: bool) -> None:
    cli = context.ensure_object(Cli)
    cli.as_json = cli.as_json or value


pass_cli = click.make_pass_decorator(Cli, ensure=True)


def on_store(command: Callable[Concatenate[Cli, P], Awaitable[None]]) -> Callable[P, None]:
    """Run an async command on the store, which must exist; it takes the Cli first, as with `pass_cli`."""

    @wraps(command)
    def run(cli: Cli, /, *args: P.args, **options: P.kwargs) -> None:
        cli.run(lambda: command(cli, *args, **options))

    return pass_cli(run)
