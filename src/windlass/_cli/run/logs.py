"""Logging of the commands that run until stopped: the program's own set-up, or text or JSON on stderr."""

import logging
import sys
from datetime import UTC, datetime
from typing import Literal

import click

from ..._observe.log_secrets import install_filter
from ..._observe.logs import JsonFormatter, TaskFilter, enable_loggers, traceback_of
from ...config import DEFAULT_LOG_FORMAT, DEFAULT_LOG_LEVEL, LOG_FORMATS, LOG_LEVELS
from ..command import Cli, setting_option
from ..options import stacked
from ..output import stderr
from ..text import escaped_lines, one_line

logger = logging.getLogger("windlass")

_COLOURS = {"debug": "2", "warning": "33", "error": "31", "critical": "1;31"}

log_options = stacked(
    setting_option(
        "--log-level",
        type=click.Choice(LOG_LEVELS),
        help=f"Lowest level to log  [default: the app's, else {DEFAULT_LOG_LEVEL}]",
    ),
    setting_option(
        "--log-format",
        type=click.Choice(LOG_FORMATS),
        help=f"Text for people or JSON for machines  [default: the app's, else {DEFAULT_LOG_FORMAT}]",
    ),
)


class TextFormatter(logging.Formatter):
    """Formats a record as instant, level, logger, task and message, escaped, with its traceback below.

    The task is that of the handler that logged; events name theirs in the message.
    """

    def __init__(self, *, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        level = record.levelname.lower()
        start = f"{moment.removesuffix('+00:00')}Z {level:<7} {one_line(record.name)}:"
        text = f"{start} {_process_of(record)}{_task_of(record)}{one_line(record.getMessage())}"
        if self._colour and level in _COLOURS:
            text = f"\x1b[{_COLOURS[level]}m{text}\x1b[0m"
        if traceback := traceback_of(record, self):
            text = "\n".join([text, *escaped_lines(traceback)])
        if record.stack_info:
            text = "\n".join([text, *escaped_lines(record.stack_info)])
        return text


class ProcessFilter(logging.Filter):
    """Gives every record `server_process` or `worker_process`, the number of this process of a command."""

    def __init__(self, kind: Literal["owner", "server", "worker"], number: int) -> None:
        super().__init__()
        self._field = f"{kind}_process"
        self._number = number

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass."""
        setattr(record, self._field, self._number)
        return True


def _process_of(record: logging.LogRecord) -> str:
    if (number := getattr(record, "server_process", None)) is not None:
        return f"[process {number}] "
    number = getattr(record, "worker_process", None)
    return "" if number is None else f"[worker {number}] "


def _task_of(record: logging.LogRecord) -> str:
    task_id, task_type = getattr(record, "task_id", ""), getattr(record, "task_type", "")
    return f"[{task_type} {task_id}] " if task_id and not hasattr(record, "event") else ""


def set_up_logging(cli: Cli, process: ProcessFilter | None = None) -> None:
    """Import the app; if it has not set up logging, log to stderr. A level or format that is given wins.

    All handlers, those of the app too, mask secrets, and tell which `process` of a command logs, if it is one
    of several.
    """
    settings, root, app = cli.settings, logging.getLogger(), cli.app
    enable_loggers()
    is_set_up = _is_set_up(root)
    if not is_set_up or settings.log_format is not None:
        root.handlers[:] = [_stderr_handler(settings.log_format or DEFAULT_LOG_FORMAT)]
    if process is not None:
        for handler in root.handlers:
            handler.addFilter(process)
    install_filter(app.redact)
    if not is_set_up or settings.log_level is not None:
        root.setLevel((settings.log_level or DEFAULT_LOG_LEVEL).upper())
    if settings.log_level == "debug":
        logging.getLogger("asyncio").setLevel(logging.INFO)  # its debug records are not about tasks
    if is_set_up and settings.log_format is not None:
        text = "the log format %r was given, so the log handlers that the app has installed are replaced"
        logger.warning(text, settings.log_format)


def _stderr_handler(log_format: str) -> logging.Handler:
    """Return a handler for stderr; colours only on a terminal."""
    terminal = stderr()
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(TaskFilter())
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(TextFormatter(colour=terminal.is_terminal and not terminal.no_color))
    return handler


def _is_set_up(root: logging.Logger) -> bool:
    """Whether the program has installed handlers.

    `logging.info()` and the like install one by themselves if there is none, which says nothing about what
    the program wants.
    """
    if logger.handlers or len(root.handlers) != 1:
        return bool(logger.handlers or root.handlers)
    only = root.handlers[0]
    formatter = only.formatter
    return not (
        type(only) is logging.StreamHandler
        and only.stream is sys.stderr
        and formatter is not None
        and formatter._fmt == logging.BASIC_FORMAT  # noqa: SLF001 - there is no other way to ask
        and root.level == logging.WARNING
    )
