"""Record a failed attempt: an exception as a bounded, printable error without secrets. Never raises."""

import os
import traceback
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from .._model.task import Error
from .._policy.secrets.values import scrub

_HERE = f"{Path(__file__).parents[1]}{os.sep}"

MAX_TYPE = 200
MAX_MESSAGE = 2_000
MAX_TRACEBACK = 16_000


class AttemptFailed(Exception):
    """Stands for a failure without an exception in this process: raised in a child process, or no exception.

    `error` has its type, message and traceback as text, without secrets. The class is a subclass named like
    the original, `ValueError`, and the text of the traceback is its cause, so that error trackers show both.
    Timeouts are `TimedOut`, deaths of child processes `ProcessDied`.
    """

    def __init__(self, error: Error) -> None:
        super().__init__(error.message)
        self.error = error


class RemoteTraceback(Exception):
    """The traceback of an exception in another process, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def stand_in(error: Error) -> AttemptFailed:
    """Make an exception that stands for a described one."""
    made = _stand_in_type(error.type)(error)
    if error.traceback is not None:
        made.__cause__ = RemoteTraceback(error.traceback)
    return made


@lru_cache(maxsize=256)
def _stand_in_type(name: str) -> type[AttemptFailed]:
    module, _, last = name.rpartition(".")
    return type(last or "Exception", (AttemptFailed,), {"__module__": module or "builtins"})


def describe(error: BaseException, secrets: Iterable[str] = ()) -> Error:
    """Describe an exception by type, message and traceback, without local variables."""
    described = Error(type=_type_name(error), message=_message(error), traceback=_traceback(error))
    return bounded_error(described, tuple(secrets))


def bounded_error(error: Error, secrets: tuple[str, ...] = ()) -> Error:
    """Cut and mask an error that was described elsewhere, as `describe` does."""
    return Error(
        type=_clean(error.type, secrets, MAX_TYPE),
        message=_clean(error.message, secrets, MAX_MESSAGE),
        traceback=None if error.traceback is None else _clean(error.traceback, secrets, MAX_TRACEBACK),
    )


def add_origin(error: BaseException, what: str) -> None:
    """Add to the text of an exception what raised it: a hook or dependency, not the handler."""
    note = f"raised by the {what}"
    if isinstance(error, Exception) and note not in getattr(error, "__notes__", ()):  # raised before
        error.add_note(note)


def whereabouts(error: BaseException) -> str:
    """Format type and frames of an exception for logs: without the message, which may hold a secret."""
    return f"{_type_name(error)}\n{''.join(traceback.format_tb(error.__traceback__))}"


def _type_name(error: BaseException) -> str:
    kind = type(error)
    module = "" if kind.__module__ in {"builtins", "__main__"} else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as problem:  # noqa: BLE001 - a handler's exception may do anything
        return f"(the message cannot be read: str() raised {type(problem).__name__})"


def _traceback(error: BaseException) -> str:
    try:
        formatted = traceback.TracebackException(type(error), error, error.__traceback__)
        formatted.stack = _programs_own(formatted.stack)
        return "".join(formatted.format())
    except BaseException:  # noqa: BLE001 - a handler's exception may do anything
        return "".join(_programs_own(traceback.extract_tb(error.__traceback__)).format())


def _programs_own(frames: traceback.StackSummary) -> traceback.StackSummary:
    """Leave out the frames of windlass before the last one that is not; keep all if there are no others."""
    own = [number for number, frame in enumerate(frames) if not frame.filename.startswith(_HERE)]
    if not own:
        return frames
    return traceback.StackSummary.from_list([*(frames[number] for number in own), *frames[own[-1] + 1 :]])


def _clean(text: str, secrets: tuple[str, ...], limit: int) -> str:
    """Make a text storable everywhere: no NUL, lone surrogates or secrets; cut in the middle if too long."""
    text = scrub(text.replace("\0", "\ufffd"), secrets).encode("utf-8", "backslashreplace").decode()
    if len(text) <= limit:
        return text
    half = limit // 2 - 20
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"
