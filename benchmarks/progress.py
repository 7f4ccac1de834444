"""Progress, for whoever sits before the terminal; nothing is said where nobody does."""

import sys

WIDTH = 78


def tell(line: str) -> None:
    """Say where it is, in the place of what was said before."""
    if sys.stderr.isatty():
        print(f"\r  {line:<{WIDTH}}\r  ", end="", file=sys.stderr, flush=True)
