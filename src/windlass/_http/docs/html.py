"""HTML that is put together safely: whatever is not markup already is escaped."""

import re
from html import escape


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def tag(name: str, *inside: str, **attributes: str) -> Html:
    """An element. An attribute whose name Python keeps for itself ends in `_`."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items()
    )
    return Html(f"<{name}{said}>{together(*inside)}</{name}>")


def together(*parts: str) -> Html:
    """Parts one after another."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts))


def words(text: str) -> Html:
    """A line of prose; what stands in backticks is code."""
    parts = re.split(r"`([^`]+)`", text)
    return together(*(tag("code", part) if index % 2 else part for index, part in enumerate(parts)))


def prose(text: str) -> Html:
    """Paragraphs of prose, parted by blank lines."""
    return together(*(tag("p", words(part)) for part in re.split(r"\n\s*\n", text.strip()) if part))
