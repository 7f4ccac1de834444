"""`windlass version`: which windlass, on which Python."""

import platform
from importlib.metadata import version as installed

import click

from ..command import Asked, Command, pass_asked


@click.command("version", cls=Command)
@pass_asked
def version(asked: Asked) -> None:
    """Print the version."""
    number, python = installed("windlass"), platform.python_version()
    asked.output.say(f"windlass {number} (Python {python})", {"windlass": number, "python": python})
