"""The failure of a task: what its error has in common with those of other tasks that failed alike."""

import re
from hashlib import blake2b

from .._model.task import Error

_MAX_MESSAGE = 2_000  # characters of a message that are read
_MAX_SHAPE = 500  # characters of it that count, with its values left out
_MAX_TRACEBACK = 20_000

# Linear in the length of the message: every alternative starts at a fixed character or at the start of a
# word, and what it repeats is bounded or cannot also match what follows.
_VALUE = re.compile(
    r"""
    (?<!\w)[brfu]?(?: '[^'\n]{0,500}' | "[^"\n]{0,500}" | `[^`\n]{0,500}` )  # quoted
    | (?<!\w)[a-zA-Z][a-zA-Z0-9+.-]{0,20}://[^\s'"<>]+  # URL
    | (?<![\w.+-])[\w.+-]{1,64}@[\w.-]{1,255}  # mail address
    | (?<!\w)[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?!\w)  # UUID
    | (?<![\w:])[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}(?![\w:])  # IPv6 address, time
    | (?<![\w./\\])(?:~|\.{1,2}|[a-zA-Z]:)?[/\\][^\s'"<>|:;,()\[\]{}]+  # path
    | (?<!\w)[+-]?[^\W\d]{0,100}\d\w*(?:[.,:/+-][^\W\d]{0,100}\d\w*)*  # word with a digit, date, address
      (?:\ ?(?:[nuµm]?s|min|[hd]|seconds?|minutes?|hours?|days?|weeks?|bytes?|[kMGT]i?B|%)(?!\w))?
    """,
    re.VERBOSE,
)
_FRAME = re.compile(r'File "([^"\n]{1,1000})", line \d+, in ([^\n]{1,200})')
_SECTION = "Traceback (most recent call last)"
_NOT_OWN = re.compile(
    r"/(?:site|dist)-packages/|/lib/python\d|/python\d+(?:\.zip|/lib)/|^<|/windlass/_", re.IGNORECASE
)


def failure_of(task_type: str, error: Error) -> str:
    """Return the id of a failure, 16 hexadecimal characters: tasks of a type that failed alike share it.

    It is computed from the error's type, the shape of its message and the function that it came from.
    """
    parts = "\0".join((task_type, error.type, shape_of(error.message), origin_of(error.traceback or "")))
    return blake2b(parts.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def shape_of(message: str) -> str:
    """Return a message with `#` in place of numbers, ids, addresses, paths, durations and quoted values."""
    return " ".join(_VALUE.sub("#", message[:_MAX_MESSAGE]).split())[:_MAX_SHAPE]


def origin_of(traceback: str) -> str:
    """Return the file and the function of the program's own code that an exception came from; "" if unknown.

    It is the innermost frame of the last exception that is not in an installed package, the standard library
    or windlass; if there is none, the outermost: the handler. Without directories and line numbers, so that
    neither a deploy nor an edit elsewhere in the file changes it.
    """
    text = traceback[-_MAX_TRACEBACK:]
    found = _FRAME.findall(text, max(text.rfind(_SECTION), 0))
    frames = [(path.replace("\\", "/"), function) for path, function in found]
    own = [frame for frame in frames if is_own_code(frame[0])]
    if not frames:
        return ""
    path, function = own[-1] if own else frames[0]
    return f"{path.rpartition('/')[2]} {function}"


def is_own_code(path: str) -> bool:
    """Tell whether a file of a traceback is the program's own: not of a package, of Python or of windlass."""
    return not _NOT_OWN.search(path.replace("\\", "/"))
