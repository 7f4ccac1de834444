"""Find values in text that is quoted more than once: JSON within JSON, the repr of either, at any depth.

What JSON or repr has quoted, they quote again by nothing but more backslashes. So text and values are
compared without any.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate

_BACKSLASH = "\\"
_MIN_BARE = 3  # characters besides backslashes of a value that is searched for
_CHANGED = re.compile(r"""[\\'"/]""")  # values without these look the same however often they are quoted


def without_quoted(text: str, values: Iterable[str], hole: str) -> str:
    """Return the text with `hole` in place of each value that has backslashes before or in it.

    The values are spelled as they are, and as they are quoted once.
    """
    if _BACKSLASH not in text:
        return text
    bare = {value.replace(_BACKSLASH, "") for value in values if _CHANGED.search(value)}
    pieces = text.split(_BACKSLASH)
    stripped = "".join(pieces)
    found = sorted(span for value in bare if len(value) >= _MIN_BARE for span in _spans(stripped, value))
    if not found:
        return text
    begins = [0, *accumulate(map(len, pieces))][:-1]  # of the pieces, without the backslashes
    kept, end = [], 0
    for start, stop in found:
        before = bisect_right(begins, start) - 1  # the number of backslashes before it
        within = bisect_right(begins, stop - 1) - 1
        first, last = start + before, stop + within
        while text[first - 1 : first] == _BACKSLASH:
            first -= 1
        if last - first == stop - start:
            continue  # it is not quoted
        if first >= end:
            kept += [text[end:first], hole]
        end = max(end, last)
    return "".join([*kept, text[end:]])


def _spans(text: str, value: str) -> Iterator[tuple[int, int]]:
    start = text.find(value)
    while start >= 0:
        yield start, start + len(value)
        start = text.find(value, start + len(value))
