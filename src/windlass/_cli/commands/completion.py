"""`windlass completion`: what makes a shell complete our commands."""

import click
from click.shell_completion import get_completion_class

from ..command import Command

_SHELLS = ("bash", "zsh", "fish")


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    For bash: eval "$(windlass completion bash)" in ~/.bashrc; for the others likewise.
    """
    found = get_completion_class(shell)
    assert found is not None
    print(found(context.find_root().command, {}, "windlass", "_WINDLASS_COMPLETE").source())
