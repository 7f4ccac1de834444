"""How a command ends: its exit code, and one line on stderr that says why."""

import asyncio
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from enum import IntEnum

import click

from ..errors import NotFound, Refused, SchemaMismatch, StoreError, UsageError, WindlassError
from .output import stderr
from .passwords import without_passwords
from .text import one_line


class ExitCode(IntEnum):
    """The exit codes of every command; `MEANINGS` describes them."""

    OK = 0
    NEGATIVE = 1
    USAGE = 2
    REFUSED = 3
    UNAVAILABLE = 4
    SCHEMA = 5
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.OK: "success",
    ExitCode.NEGATIVE: "negative: check found errors; a task waited for did not complete; a drain left tasks",
    ExitCode.USAGE: "invalid command, option, payload, setting or app",
    ExitCode.REFUSED: "not found, or not possible in the current state",
    ExitCode.UNAVAILABLE: "the store is unavailable or failed",
    ExitCode.SCHEMA: "the store's schema does not match this version; run windlass migrate",
    ExitCode.INTERRUPTED: "interrupted",
}


def code_of(error: WindlassError) -> ExitCode:
    """The exit code for an error."""
    match error:
        case UsageError():
            return ExitCode.USAGE
        case Refused() | NotFound():
            return ExitCode.REFUSED
        case SchemaMismatch():
            return ExitCode.SCHEMA
        case StoreError():
            return ExitCode.UNAVAILABLE
        case _:
            return ExitCode.NEGATIVE


def guarded(work: Callable[[], object], arguments: Sequence[str]) -> int:
    """Run a command line, report its error if there is one, and return its exit code.

    A traceback is printed only with --debug.
    """
    as_json, debug = "--json" in arguments, "--debug" in arguments
    try:
        work()
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return ExitCode.USAGE
    except click.ClickException as error:
        report("usage", without_passwords(_message(error), arguments), as_json=as_json)
        return ExitCode.USAGE
    except WindlassError as error:
        if debug:
            print(without_passwords(traceback.format_exc(), arguments), file=sys.stderr, end="")
        report(error.code, without_passwords(str(error), arguments), as_json=as_json)
        return code_of(error)
    except BrokenPipeError:
        # The reader has closed the pipe, which is not an error; and the flush at exit must not fail either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (KeyboardInterrupt, asyncio.CancelledError, click.Abort):
        return ExitCode.INTERRUPTED
    return ExitCode.OK


def report(code: str, message: str, *, as_json: bool) -> None:
    """Print `error[code]: message` to stderr, or the same as JSON."""
    if as_json:
        print(json.dumps({"error": {"code": code, "message": message}}), file=sys.stderr)
        return
    from rich.text import Text

    stderr().print(Text.assemble((f"error[{code}]:", "bold red"), " ", one_line(message)))


def _message(error: click.ClickException) -> str:
    if not isinstance(error, click.UsageError):
        return error.format_message()
    message = error.format_message().rstrip(".")
    return f"{message}; see `{error.ctx.command_path} --help`" if error.ctx else message
