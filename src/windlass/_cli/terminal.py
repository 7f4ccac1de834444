"""The two streams as rich sees them: colour and width of a terminal, or plain text for a pipe."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

UNBOUNDED = 1_000_000


def stdout() -> "Console":
    """Where answers go."""
    return _console(error=False)


def stderr() -> "Console":
    """Where errors, notes and questions go."""
    return _console(error=True)


def _console(*, error: bool) -> "Console":
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # to be met where every command ends, in exits.py

    stream = sys.stderr if error else sys.stdout
    # A pipe has no width: whoever reads it wants the whole of it.
    width = None if stream.isatty() else UNBOUNDED
    return Quiet(file=stream, width=width, highlight=False, markup=True, emoji=False)


def soften() -> None:
    """Let neither stream fail for a character that its encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
