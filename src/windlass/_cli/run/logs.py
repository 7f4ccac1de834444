"""Logging as `windlass worker` sets it up: lines for people, or JSON for machines, on stderr."""

import logging
import sys
from datetime import UTC, datetime

from ..._observe.logs import JsonFormatter
from ...config import Settings
from ..escaping import line, lines
from ..terminal import stderr

_COLOURS = {"debug": "2", "warning": "33", "error": "31", "critical": "1;31"}


class TextFormatter(logging.Formatter):
    """Time, level, message; what others wrote is escaped."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line, and its traceback below."""
        moment = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        level = record.levelname.lower()
        text = f"{moment}Z {level:<7} {line(record.getMessage())}"
        if self._colour and level in _COLOURS:
            text = f"\x1b[{_COLOURS[level]}m{text}\x1b[0m"
        if record.exc_info:
            text = "\n".join([text, *lines(self.formatException(record.exc_info))])
        return text


def set_up_by(settings: Settings) -> None:
    """Log as the settings say."""
    terminal = stderr()
    colour = terminal.is_terminal and not terminal.no_color
    set_up(settings.log_level, settings.log_format, colour=colour)


def set_up(level: str, form: str, *, colour: bool) -> None:
    """Log everything from this level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter(colour=colour))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    if level == "debug":
        logging.getLogger("asyncio").setLevel(logging.INFO)  # whose debugging is not of tasks
