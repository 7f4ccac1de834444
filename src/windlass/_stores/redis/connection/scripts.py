"""Scripts by name: the files of lua/, put together from parts, and known to the server by their hash.

A line `@part` stands for lua/parts/part.lua; `@numbers`, `@lease_numbers` and `@version` for the layout of
rows. As a hash names a script, versions of the library with different scripts run side by side.
"""

import hashlib
import re
from functools import cache
from pathlib import Path

from msgspec import Struct

from ..rows import LEASE, NUMBERS, VERSION_BYTES

_FOLDER = Path(__file__).parent.parent / "lua"
_LAYOUT = re.compile(r"@(numbers|lease_numbers|version)\b")
_SLOT = re.compile(r"^@(\w+)$", re.MULTILINE)


class Script(Struct, frozen=True):
    """The text of a script, and the hash that the server knows it by."""

    name: str
    text: str
    sha: str


@cache
def script(name: str) -> Script:
    """Return the script of lua/<name>.lua."""
    whole = _SLOT.sub(lambda slot: _read(f"parts/{slot[1]}"), _read(name))
    layout = {"@numbers": NUMBERS, "@lease_numbers": LEASE, "@version": str(VERSION_BYTES)}
    text = _LAYOUT.sub(lambda slot: layout[slot[0]], whole)
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def _read(name: str) -> str:
    return (_FOLDER / f"{name}.lua").read_text(encoding="utf-8").rstrip()
