"""`windlass encryption`: make the keys that secret fields are encrypted with, and rotate them."""

from datetime import UTC, datetime

import click
from msgspec.structs import asdict

from ..._client.encryption import Rotation
from ..._encryption.keys import new_key
from ..._policy.input.quote import counted
from ..command import Cli, Command, Commands, pass_cli
from ..operator_actions import audit_options


@click.group(cls=Commands)
def encryption() -> None:
    """Make and rotate the keys that encrypt secret fields."""


@encryption.command("new-key", cls=Command)
@click.option(
    "--id", "key_id", metavar="ID", help="Letters, digits, '_', '.' and '-'  [default: the present day]"
)
@pass_cli
def make_key(cli: Cli, key_id: str | None) -> None:
    """Print a new random key.

    It goes into WINDLASS_ENCRYPTION_KEYS or a key file: first, to encrypt with it; keep the others to decrypt
    with them. Nothing is stored.
    """
    key_id = key_id or datetime.now(UTC).strftime("%Y-%m-%d")
    text = new_key(key_id)
    cli.output.say(text, {"id": key_id, "key": text})


@encryption.command("rotate", cls=Command)
@click.option("--after", metavar="CURSOR", help="Go on behind this cursor  [default: from the beginning]")
@audit_options
@pass_cli
def rotate(cli: Cli, after: str | None) -> None:
    """Encrypt everything stored with the first key.

    Also encrypts secret fields that are still in plain text. It takes small steps, and can be stopped and run
    again at any time. Restart all programs with the new first key before; see docs/encryption.md.
    """

    def report(done: Rotation) -> None:
        if done.cursor is not None:
            click.echo(f"read {counted(done.read, 'task')}; to go on: --after {done.cursor}", err=True)

    async def work() -> None:
        done = await cli.operator.encryption.rotate(after=after, report=report)
        text = (
            f"read {counted(done.read, 'task')}; encrypted {counted(done.rewritten, 'task')} and "
            f"{counted(done.schedules, 'schedule')} with the first key"
        )
        if done.locked:
            text += f"; {counted(done.locked, 'task')} cannot be decrypted with the keys at hand"
        cli.output.say(text, asdict(done))

    cli.run(work)
