"""Format values for error messages: short, printable, and never raising."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_MAX_QUOTED = 80


def quoted(value: object) -> str:
    """Return text and small numbers as literals, and any other value by its type ("a list")."""
    match value:
        case None | bool() | float():
            return repr(value)
        case str():
            return shorten(repr(shorten(str.__str__(value))))
        case int() if abs(value) < 1 << 64:
            return repr(value)
        case _:
            return kind_of(value)


def kind_of(value: object) -> str:
    """Return the name of a value's type with its article: "an int", "a list"."""
    name = shorten(type(value).__name__)
    return f"an {name}" if name.lower().startswith(("a", "e", "i", "o", "u")) else f"a {name}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number and its noun: "1 task", "2 tasks", "1,000 queries" (`plural` if it is irregular)."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def first_named(names: Sequence[str], limit: int) -> str:
    """Return the names for one line; of more than `limit` the first ones, and the number of the others."""
    first, more = ", ".join(names[:limit]), len(names) - limit
    return f"{first} and {more:,} more" if more > 0 else first


def suggestion(given: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return the end of a message about an unknown name: "; did you mean 'x'?", or else "; {otherwise}"."""
    close = get_close_matches(given, [*known], n=1)
    hint = f"did you mean {close[0]!r}?" if close else otherwise
    return f"; {hint}" if hint else ""


def shorten(text: str, limit: int = _MAX_QUOTED) -> str:
    """Replace the middle of a text longer than `limit` characters with an ellipsis."""
    if len(text) <= limit:
        return text
    half = (limit - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def printable(text: str) -> str:
    """Escape every character that cannot be printed or would forge a log line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
