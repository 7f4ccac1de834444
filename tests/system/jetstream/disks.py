"""Small disks that can be filled: file systems in memory, which only root can mount."""

import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Self

MEGABYTES = 96
BALLAST = "ballast"
CHUNK = bytes(1 << 20)


class SmallDisk:
    """A disk of its own, mounted until the end of the block."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="windlass-disk-"))
        options = f"size={MEGABYTES}m,mode=1777"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(self.path)], check=True)

    def fill(self) -> None:
        """Leave no room, until `free`."""
        with suppress(OSError), (self.path / BALLAST).open("ab", buffering=0) as ballast:
            while ballast.write(CHUNK):
                continue

    def free(self) -> None:
        (self.path / BALLAST).unlink(missing_ok=True)

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)
        shutil.rmtree(self.path, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def can_mount() -> bool:
    """Whether this process may mount disks: root may, except in most containers."""
    if os.geteuid() != 0:
        return False
    try:
        SmallDisk().close()
    except subprocess.CalledProcessError:
        return False
    return True
