"""Progress on a terminal; prints nothing elsewhere."""

import sys

WIDTH = 78


def tell(line: str) -> None:
    """Replace the progress line."""
    if sys.stderr.isatty():
        print(f"\r  {line:<{WIDTH}}\r  ", end="", file=sys.stderr, flush=True)
