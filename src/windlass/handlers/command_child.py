"""Start a program that ends with its worker: argv are bytes of memory, the worker, the program."""

import ctypes
import os
import resource
import signal
import sys

_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def main() -> None:
    """Set the bounds and become the program."""
    memory, worker, *argv = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":  # a worker that is killed cannot kill what it runs: the kernel does
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != int(worker):
        sys.exit("the worker has ended")
    os.execv(argv[0], argv)  # noqa: S606  a program of the settings, without a shell


if __name__ == "__main__":
    main()
