"""The entry point: starts the command line, or says what is missing to have one."""

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        import click  # noqa: F401
        import rich  # noqa: F401
    except ModuleNotFoundError as missing:
        if missing.name not in {"click", "rich"}:
            raise
        hint = f'the command line needs {missing.name}; pip install "windlass[cli]"'
        print(f"error[not-installed]: {hint}", file=sys.stderr)
        sys.exit(2)
    from .root import root

    root()


if __name__ == "__main__":
    main()
