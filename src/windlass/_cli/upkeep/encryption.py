"""`windlass encryption`: make the keys that secret fields are encrypted with."""

from datetime import UTC, datetime

import click

from ..._encryption.keys import new_key
from ..command import Cli, Command, Commands, pass_cli


@click.group(cls=Commands)
def encryption() -> None:
    """Make keys for the encryption of secret fields."""


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
