"""Ready-made handlers for commands that run: `--handlers`, and the tables `[handlers.…]` of settings."""

import logging

import click

from ..command import Cli, keep_flag

logger = logging.getLogger("windlass.handlers")

handlers_option = click.option(
    "--handlers",
    "all_handlers",
    is_flag=True,
    expose_value=False,
    callback=keep_flag,
    help="Run every ready-made handler that its extras and settings allow: e-mail, webhooks, …",
)


def include_handlers(cli: Cli) -> None:
    """Declare the ready-made handlers of the settings on the app, and log which. Raises InvalidOption."""
    settings = cli.settings
    if not settings.handlers and not settings.all_handlers:
        return
    from ...handlers.selection import include_configured

    selected = include_configured(cli.app, settings.handlers, every=bool(settings.all_handlers))
    logger.info("ready-made handlers: %s", ", ".join(selected.declared) or "none")
    for task, why in selected.left_out.items():
        logger.info("%s is off: %s", task, why)
