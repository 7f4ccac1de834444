"""What others wrote, made safe to show: no character may act on the terminal. (P13, L5)

Payloads, results and errors come from anywhere. Escape sequences, control characters of both kinds and
marks that turn the writing direction are all "not printable", and are shown escaped.
"""

import json
import re
from typing import Any

from .._policy.input.quoting import printable

_BREAKS = re.compile(r"\s*[\r\n]+\s*")


def line(text: str) -> str:
    """The text on one line."""
    return printable(_BREAKS.sub(" ", text.strip()))


def lines(text: str) -> list[str]:
    """The text with its own line breaks, and nothing else that acts."""
    return [printable(one.expandtabs(4)) for one in text.split("\n")]


def document(value: Any, *, encoding: str = "utf-8") -> str:
    """JSON whose every character is printable, and can be said in this encoding."""
    text = json.dumps(value, ensure_ascii=not encoding.lower().startswith("utf"))
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
