"""Start a program with a bound of memory: argv are bytes, then the program and its arguments."""

import os
import resource
import sys


def main() -> None:
    """Set the bounds and become the program."""
    memory, *argv = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.execv(argv[0], argv)  # noqa: S606  a program of the settings, without a shell


if __name__ == "__main__":
    main()
