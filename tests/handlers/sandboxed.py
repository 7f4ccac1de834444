"""Functions that a sandbox has to bear with."""

import ctypes
import fcntl
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


def echo(options: Any, inputs: Sequence[bytes]) -> tuple[Any, list[bytes]]:
    return options, [*inputs, b"more"]


def refuse(options: Any, inputs: Sequence[bytes]) -> tuple[Any, list[bytes]]:
    raise ValueError("not today")


def eat(options: Any, inputs: Sequence[bytes]) -> tuple[Any, list[bytes]]:
    return len(bytearray(2 << 30)), []


def spin(options: Any, inputs: Sequence[bytes]) -> tuple[Any, list[bytes]]:
    while True:
        pass


def hang(options: Any, inputs: Sequence[bytes]) -> tuple[Any, list[bytes]]:
    sys.stdin.buffer.read()
    os.read(os.pipe()[0], 1)
    return None, []


def crash(options: Any, inputs: Sequence[bytes]) -> tuple[Any, list[bytes]]:
    ctypes.string_at(0)
    return None, []


def flood(options: Any, inputs: Sequence[bytes]) -> tuple[Any, list[bytes]]:
    return None, [b"x" * 5_000_000]


def flood_at_once(options: Any, inputs: Sequence[bytes]) -> tuple[Any, list[bytes]]:
    """Leave more in the pipe than asyncio buffers, when the process is killed."""
    for pipe in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            fcntl.fcntl(int(pipe.name), fcntl.F_SETPIPE_SZ, 1 << 20)
    return flood(options, inputs)


def write(options: Any, inputs: Sequence[bytes]) -> tuple[Any, list[bytes]]:
    Path(options).write_bytes(b"x")
    return None, []


def leave(options: Any, inputs: Sequence[bytes]) -> tuple[Any, list[bytes]]:
    os._exit(3)


def lie(options: Any, inputs: Sequence[bytes]) -> tuple[Any, list[bytes]]:
    os.write(1, b"\0\0\0\5{oops")
    os._exit(0)


def environment(options: Any, inputs: Sequence[bytes]) -> tuple[Any, list[bytes]]:
    return sorted(os.environ), [str(time.time()).encode()]
