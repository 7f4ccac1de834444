"""SQL statements: one file each, read once; what varies goes into named slots.

A slot is written `/* :name */` in the file. Filling is strict, so that an edit to a file cannot silently
disable a condition: a slot without a value, and a value without a slot, are errors.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_SLOT = re.compile(r"/\* :(\w+) \*/")


@cache
def load(package: str, name: str) -> str:
    """Return the text of the package's sql/<name>.sql without its comment lines; slots stay as they are."""
    text = (files(package) / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--")).strip()


def slots_of(text: str) -> frozenset[str]:
    """Return the names of the slots in a statement."""
    return frozenset(_SLOT.findall(text))


def fill(text: str, slots: Mapping[str, str]) -> str:
    """Put a text into every slot; ValueError if one is missing, unknown, or brings a slot of its own."""
    wanted = slots_of(text)
    problems = [f"no value for {name}" for name in sorted(wanted - slots.keys())]
    problems += [f"no slot named {name}" for name in sorted(slots.keys() - wanted)]
    problems += [f"the value for {name} has a slot itself" for name in sorted(slots) if slots_of(slots[name])]
    if problems:
        raise ValueError(f"cannot fill the slots of a statement: {'; '.join(problems)}")
    return _SLOT.sub(lambda slot: slots[slot[1]], text)
