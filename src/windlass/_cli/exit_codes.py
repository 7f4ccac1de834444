"""How a command ends: its exit code, and the one line that says why. Never a traceback unless asked for."""

import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from enum import IntEnum

import click

from ..errors import NoResult, NotFound, Refused, SchemaMismatch, StoreError, UsageError, WindlassError
from .escaping import line


class ExitCode(IntEnum):
    """What the shell is told."""

    OK = 0
    BAD_NEWS = 1
    USAGE = 2
    REFUSED = 3
    UNAVAILABLE = 4
    SCHEMA = 5
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.OK: "done",
    ExitCode.BAD_NEWS: "the answer is bad news: check found errors; a task waited for did not complete",
    ExitCode.USAGE: "the command is wrong: an option, a payload, a setting, an app",
    ExitCode.REFUSED: "refused, or not found: the command is right, and cannot be done as things stand",
    ExitCode.UNAVAILABLE: "the store is unavailable or failed",
    ExitCode.SCHEMA: "the store's schema does not fit this version; see windlass migrate",
    ExitCode.INTERRUPTED: "interrupted",
}


def code_of(error: WindlassError) -> ExitCode:
    """The exit code for an error, by whose move it is."""
    match error:
        case UsageError():
            return ExitCode.USAGE
        case Refused() | NotFound():
            return ExitCode.REFUSED
        case SchemaMismatch():
            return ExitCode.SCHEMA
        case StoreError():
            return ExitCode.UNAVAILABLE
        case NoResult():
            return ExitCode.BAD_NEWS
        case _:
            return ExitCode.BAD_NEWS


def guarded(work: Callable[[], object], arguments: Sequence[str]) -> int:
    """Run a command line and answer with its exit code, having reported what went wrong."""
    as_json, debug = "--json" in arguments, "--debug" in arguments
    try:
        work()
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return ExitCode.USAGE
    except click.UsageError as error:
        report("usage", _with_hint(error), as_json=as_json)
        return ExitCode.USAGE
    except click.ClickException as error:
        report("usage", error.format_message(), as_json=as_json)
        return ExitCode.USAGE
    except WindlassError as error:
        if debug:
            traceback.print_exc()
        report(error.code, str(error), as_json=as_json)
        return code_of(error)
    except BrokenPipeError:
        # Whoever was reading has seen enough; nor may the interpreter complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (KeyboardInterrupt, click.Abort):
        return ExitCode.INTERRUPTED
    return ExitCode.OK


def report(code: str, message: str, *, as_json: bool) -> None:
    """One line on stderr: `error[code]: message`, or the same as JSON."""
    if as_json:
        print(json.dumps({"error": {"code": code, "message": message}}), file=sys.stderr)
        return
    from rich.text import Text

    from .terminal import stderr

    stderr().print(Text.assemble((f"error[{code}]:", "bold red"), " ", line(message)))


def _with_hint(error: click.UsageError) -> str:
    message = error.format_message().rstrip(".")
    return f"{message}; see `{error.ctx.command_path} --help`" if error.ctx else message
