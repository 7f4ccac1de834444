"""Log records without secrets: those of the task whose handler logs, and what patterns match."""

import logging
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from .._handler.context import running, taken_secrets
from .._policy.input.options import checked_sequence
from .._policy.secrets.fields import MASK
from .._policy.secrets.mask import mask_of
from .._policy.secrets.patterns import checked_patterns
from .._policy.secrets.values import longest_first, scrub, secret_values

STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_MAX_DEPTH = 8  # of nested extra fields; what is deeper becomes text
_MAX_REMEMBERED = 16_384  # bytes of a payload whose secrets are remembered while its handler logs
_formatter = logging.Formatter()


class SecretFilter(logging.Filter):
    """Masks the secrets of the running task in everything that its handler logs.

    These are the values of its secret payload fields, and matches of its app's patterns. `redact`: patterns
    whose matches are masked in all records, as `App(redact=…)` takes them. Add it to a logging handler, as a
    filter on a logger sees only that logger's own records. Raises InvalidOption.
    """

    def __init__(self, redact: Iterable[str] = ()) -> None:
        super().__init__()
        self.patterns = secret_values({}, checked_patterns(checked_sequence(redact, "redact", "patterns")))

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, without its secrets."""
        mask_record(record, self.patterns)
        return True


def install_filter(redact: Iterable[str] = ()) -> None:
    """Add a filter to the handlers of all loggers, those of the program included, unless they have its like.

    It stays: a thread that a worker could not stop may still log. Also added to what Python itself writes
    with where a program has not set up logging.
    """
    secrets = SecretFilter(redact)
    named = tuple(logging.root.manager.loggerDict.values())  # at once: other threads may add loggers
    known = [one for one in named if isinstance(one, logging.Logger)]
    handlers = {handler for one in (logging.root, *known) for handler in one.handlers}
    for handler in (*handlers, *([logging.lastResort] if logging.lastResort is not None else [])):
        present = [one for one in handler.filters if isinstance(one, SecretFilter)]
        if not any({*one.patterns} >= {*secrets.patterns} for one in present):
            handler.addFilter(secrets)


def mask_record(record: logging.LogRecord, patterns: tuple[str, ...] = ()) -> None:
    """Mask the secrets of the running task, and these patterns, in message, traceback and extra fields.

    The record is changed in place: its other handlers see it without secrets, too.
    """
    values = _running_secrets()
    if patterns:
        values = longest_first(values, patterns)
    if not values:
        return
    if isinstance(record.msg, dict):  # an event of structlog, which its formatter expects as it is
        record.msg = _masked(record.msg, values, _MAX_DEPTH)
    else:
        record.msg, record.args = scrub(_message(record), values), None
    if record.exc_info and not record.exc_text:
        record.exc_text = _formatter.formatException(record.exc_info)
    if record.exc_text:
        record.exc_info, record.exc_text = None, scrub(record.exc_text, values)
    if record.stack_info:
        record.stack_info = scrub(record.stack_info, values)
    for name in vars(record).keys() - STANDARD_FIELDS:
        setattr(record, name, _masked(getattr(record, name), values, _MAX_DEPTH))


def _running_secrets() -> tuple[str, ...]:
    """Return the secret values of the task whose handler is running here, and of the results it takes."""
    task = running.get()
    if task is None:
        return ()
    find = _remembered if len(task.payload) <= _MAX_REMEMBERED else _found
    found, taken = find(task.payload, task.secret), taken_secrets.get()
    return longest_first(found, taken) if taken else found


def _found(payload: bytes, secret: tuple[str, ...]) -> tuple[str, ...]:
    return mask_of(payload, secret).values


_remembered = lru_cache(maxsize=64)(_found)


def _message(record: logging.LogRecord) -> str:
    """Return the message; if its arguments do not fit, both: logging would print them to stderr."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - an argument of the program may do anything
        return f"{record.msg!s} {record.args!r}"


def _masked(value: Any, values: tuple[str, ...], depth: int) -> Any:
    """Mask an extra field. What is not JSON becomes text if there is a secret in it."""
    match value:
        case str():
            return scrub(value, values)
        case None | bool():
            return value
        case dict() if depth:
            return {_masked(key, values, 0): _masked(one, values, depth - 1) for key, one in value.items()}
        case list() | tuple() if depth:
            return [_masked(one, values, depth - 1) for one in value]
        case int() | float():
            return MASK if scrub(str(value), values) == MASK else value
        case _:
            text = str(value)
            masked = scrub(text, values)
            return value if masked == text else masked
