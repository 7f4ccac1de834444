"""The entry point: runs the command line, or reports which package it lacks."""

import sys
from importlib.util import find_spec


def main() -> None:
    """Run the command line and exit with its code."""
    for needed in ("click", "rich"):
        if find_spec(needed) is None:
            hint = f'the command line needs {needed}; pip install "windlass[cli]"'
            print(f"error[not-installed]: {hint}", file=sys.stderr)
            sys.exit(2)
    from .root import root

    root()


if __name__ == "__main__":
    main()
