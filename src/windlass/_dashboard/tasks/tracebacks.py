"""Tracebacks in parts, so that a page can mark the frames of the program's own code."""

import re
from collections.abc import Sequence

from msgspec import Struct

from ..._model.brief import Brief
from ..._policy.failure import is_own_code

_FRAME = re.compile(r'( *)File "([^"]{1,1000})", line \d+')


class Part(Brief, Struct, frozen=True):
    """Lines of a traceback. `kind`: "own" or "foreign" for a frame, and "" for what is between frames."""

    text: str
    kind: str = ""


def traceback_parts(traceback: str) -> Sequence[Part]:
    """Divide a traceback into its frames and what is between them; together they are its text."""
    parts: list[Part] = []
    lines: list[str] = []
    kind, depth = "", -1

    def end() -> None:
        if lines:
            parts.append(Part("".join(lines), kind))
            lines.clear()

    for line in traceback.splitlines(keepends=True):
        if found := _FRAME.match(line):
            end()
            kind, depth = ("own" if is_own_code(found[2]) else "foreign"), len(found[1])
        elif kind and _indent(line) <= depth:
            end()
            kind, depth = "", -1
        lines.append(line)
    end()
    return parts


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
