"""Logging of the commands that run until stopped: text or JSON lines on stderr."""

import logging
import sys
from datetime import UTC, datetime

import click

from ..._observe.logs import JsonFormatter, traceback_of
from ...config import LOG_FORMATS, LOG_LEVELS, Settings
from ..command import setting_option
from ..options import stacked
from ..output import stderr
from ..text import escaped_lines, one_line

_COLOURS = {"debug": "2", "warning": "33", "error": "31", "critical": "1;31"}

log_options = stacked(
    setting_option(
        "--log-level",
        type=click.Choice(LOG_LEVELS),
        help=f"Lowest level to log  [default: {Settings().log_level}]",
    ),
    setting_option(
        "--log-format",
        type=click.Choice(LOG_FORMATS),
        help=f"Text for people or JSON for machines  [default: {Settings().log_format}]",
    ),
)


class TextFormatter(logging.Formatter):
    """Formats a record as time, level and message, escaped, with its traceback below."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        moment = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        level = record.levelname.lower()
        text = f"{moment}Z {level:<7} {one_line(record.getMessage())}"
        if self._colour and level in _COLOURS:
            text = f"\x1b[{_COLOURS[level]}m{text}\x1b[0m"
        if traceback := traceback_of(record, self):
            text = "\n".join([text, *escaped_lines(traceback)])
        return text


def set_up_logging(settings: Settings) -> None:
    """Log to stderr, in the level and format of the settings; colours only on a terminal."""
    terminal = stderr()
    handler = logging.StreamHandler(sys.stderr)
    if settings.log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter(colour=terminal.is_terminal and not terminal.no_color))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    if settings.log_level == "debug":
        logging.getLogger("asyncio").setLevel(logging.INFO)  # its debug records are not about tasks
