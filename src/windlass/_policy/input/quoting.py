"""How a wrong value is shown in the message that refuses it: short, printable, and never failing itself."""

_MAX_SHOWN = 80


def shown(value: object) -> str:
    """Text and small numbers as they are written, everything else by its type."""
    match value:
        case None | bool() | float():
            return repr(value)
        case str():
            return cut(repr(cut(str.__str__(value))))
        case int() if abs(value) < 1 << 64:
            return repr(value)
        case _:
            return kind_of(value)


def kind_of(value: object) -> str:
    """A value by its type alone: "an int", "a list"."""
    name = cut(type(value).__name__)
    return f"an {name}" if name.lower().startswith(("a", "e", "i", "o", "u")) else f"a {name}"


def cut(text: str, most: int = _MAX_SHOWN) -> str:
    """The text if it is short enough; otherwise its two ends."""
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[:half]}…{text[-half:]}"


def printable(text: str) -> str:
    """The text with every character escaped that could not be printed, encoded or trusted in a log line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
