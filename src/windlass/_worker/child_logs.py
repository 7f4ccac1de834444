"""Log records of child processes: the child sends them over a socket, and the worker logs them as its own.

Levels and handlers are the worker's. A record is written to the socket before the logging call returns, so a
child that dies loses at most the one that it was writing. A child that logs faster than the worker can take
waits for a second; after that records are dropped, and counted in the log, until there is room again.
"""

import logging
import os
import select
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Any, TypeGuard

import msgspec
from msgspec import Struct

from .._model.brief import Brief
from .._observe.log_secrets import STANDARD_FIELDS, SecretFilter
from .._observe.logs import context_fields, enable_loggers, traceback_of
from .._policy.input.quote import counted, shorten

logger = logging.getLogger("windlass.worker")

MAX_TEXT = 16_000  # characters of a message or a traceback
MAX_FIELDS = 64_000  # bytes of the extra fields of a record
MAX_WAIT = 1.0  # seconds that a child waits for room in the socket
_HEADER = 4
_ALL = 0  # the level of a handler that takes everything


class SentRecord(Brief, Struct, frozen=True, kw_only=True):
    """A log record of a child. `fields` are its extra fields, and those of the running task."""

    name: str
    level: int
    level_name: str
    message: str
    created: float
    path: str
    line: int
    function: str | None
    process: int
    thread_name: str | None
    traceback: str
    fields: dict[str, Any]


_decoder = msgspec.json.Decoder(SentRecord)
_formatter = logging.Formatter()


def levels() -> dict[str, int]:
    """Return the levels that are set on loggers of this process; that of the root logger as ""."""
    found = {
        name: one.level
        for name, one in logging.root.manager.loggerDict.items()
        if isinstance(one, logging.Logger) and one.level
    }
    return {**found, "": logging.root.level}


# -- in the child ------------------------------------------------------------------------------------


class LogSender(logging.Handler):
    """Takes the place of all handlers in the child: the program's own would write beside the worker's."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(_ALL)
        self.addFilter(SecretFilter())
        connection.setblocking(False)
        self._connection = connection
        self._pid = os.getpid()
        self._levels: Mapping[str, int] = MappingProxyType({})
        self._unsent = b""  # the rest of a record that was sent in part
        self._is_stuck = False  # the worker took nothing for MAX_WAIT
        self._dropped = 0

    def install(self, levels: Mapping[str, int]) -> None:
        """Take all records from now on, of these levels."""
        self._levels = levels
        self.restore_levels()

        def call_handlers(_: logging.Logger, record: logging.LogRecord) -> None:
            self.handle(record)

        logging.Logger.callHandlers = call_handlers  # type: ignore[assignment, method-assign]

    def restore_levels(self) -> None:
        """Set the worker's levels again: importing the program may have set others."""
        enable_loggers()
        for name, level in self._levels.items():
            logging.getLogger(name or None).setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            frame = _pack(record)
        except Exception:  # noqa: BLE001 - as every handler does, for example if the arguments do not fit
            self.handleError(record)
            return
        if os.getpid() != self._pid:  # a fork of the child, which must not write into its socket
            os.write(2, f"{record.levelname} {record.name}: {record.getMessage()}\n".encode())
        elif not (self._catch_up() and self._send(frame)):
            self._dropped += 1

    def flush(self) -> None:
        """Report the records that were dropped, if there is room by now."""
        if os.getpid() == self._pid:
            self._catch_up()

    def _catch_up(self) -> bool:
        """Send the rest of the last record and the number of dropped ones; return whether there was room."""
        if self._unsent and not self._send(b""):
            return False
        if not self._dropped:
            return True
        text = f"{counted(self._dropped, 'log record')} dropped: the worker could not log them in time"
        notice = logger.makeRecord(logger.name, logging.WARNING, __file__, 0, text, (), None)
        if not self._send(_pack(notice)):
            return False
        self._dropped = 0
        return True

    def _send(self, frame: bytes) -> bool:
        """Send what is left of the record before and this one; False, and drop it, if it cannot be begun."""
        left = self._push(self._unsent + frame)
        if frame and len(left) >= len(frame):
            self._unsent = left[: len(left) - len(frame)]
            return False
        self._unsent = left
        return bool(frame) or not left

    def _push(self, data: bytes) -> bytes:
        """Send as much as there is room for, and wait for more room; return the rest."""
        deadline = monotonic() + (0.0 if self._is_stuck else MAX_WAIT)
        while data:
            try:
                data = data[self._connection.send(data) :]
            except BlockingIOError:
                left = deadline - monotonic()
                if left <= 0:
                    self._is_stuck = True
                    return data
                self._until_writable(left)
            except OSError:  # the worker has closed it: this child is about to be killed
                return b""
        self._is_stuck = False
        return b""

    def _until_writable(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._connection, select.POLLOUT)
        poll.poll(seconds * 1000)


def _pack(record: logging.LogRecord) -> bytes:
    message, given = record.getMessage(), vars(record)
    if _is_structlog_event(record.msg):
        message, given = str(record.msg["event"]), {**given, **record.msg}
    extra = {
        key: value for key, value in given.items() if key not in STANDARD_FIELDS and not key.startswith("_")
    }
    sent = SentRecord(
        name=record.name,
        level=record.levelno,
        level_name=record.levelname,
        message=_clean(message),
        created=record.created,
        path=record.pathname,
        line=record.lineno,
        function=record.funcName,
        process=record.process or os.getpid(),
        thread_name=record.threadName,
        traceback=_clean(traceback_of(record, _formatter)),
        fields=_plain({**context_fields(record), **extra}),
    )
    data = msgspec.json.encode(sent)
    return len(data).to_bytes(_HEADER, "big") + data


def _is_structlog_event(message: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(message, dict) and "event" in message and all(isinstance(key, str) for key in message)


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields as JSON values: those that are none, or too long, as text."""
    plain: dict[str, Any] = {}
    room = MAX_FIELDS
    for key, value in fields.items():
        try:
            encoded = msgspec.json.encode(value, enc_hook=str)
        except Exception:  # noqa: BLE001 - a value of the program may do anything
            encoded = b""
        if not encoded or len(encoded) > room:
            encoded = msgspec.json.encode(_clean(shorten(repr(value), 200)))
        room -= len(encoded)
        plain[_clean(str(key))] = msgspec.Raw(encoded)
    return plain


def _clean(text: str) -> str:
    return shorten(text, MAX_TEXT).encode("utf-8", "backslashreplace").decode()


# -- in the worker -----------------------------------------------------------------------------------


class LogReceiver:
    """Logs the records of one child, in a thread: neither a slow log nor a flood of records delays tasks."""

    def __init__(self) -> None:
        self._connection, self._childs = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="windlass-child-logs", daemon=True)

    @property
    def fd(self) -> int:
        """The child's end of the socket, which it inherits."""
        return self._childs.fileno()

    def start(self) -> None:
        """Receive records. Call it once the child has inherited its end."""
        self._childs.close()
        self._thread.start()

    def close(self) -> None:
        """Log what the child has sent, once it has ended; give up after MAX_WAIT."""
        if not self._thread.is_alive():
            self._childs.close()
            self._connection.close()
            return
        with suppress(OSError):  # what is in the socket can still be read, also if a grandchild holds it
            self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(MAX_WAIT)

    def _run(self) -> None:
        with self._connection, self._connection.makefile("rb") as stream:
            while len(header := stream.read(_HEADER)) == _HEADER:
                size = int.from_bytes(header, "big")
                if len(data := stream.read(size)) < size:
                    return  # the child died while it wrote
                try:
                    _log(_decoder.decode(data))
                except Exception:
                    logger.exception("cannot log a record of a child process")


def _log(sent: SentRecord) -> None:
    """Log a record as if it were made here, if the worker's levels let it through."""
    target = logging.getLogger(sent.name)
    if not target.isEnabledFor(sent.level):
        return
    path = Path(sent.path)
    known = {
        "name": sent.name,
        "levelno": sent.level,
        "levelname": sent.level_name,
        "msg": sent.message,
        "created": sent.created,
        "msecs": sent.created % 1 * 1000,
        "pathname": sent.path,
        "filename": path.name,
        "module": path.stem,
        "lineno": sent.line,
        "funcName": sent.function,
        "process": sent.process,
        "processName": "windlass-child",
        "threadName": sent.thread_name,
        "exc_text": sent.traceback or None,
    }
    target.handle(logging.makeLogRecord({**sent.fields, **known}))
