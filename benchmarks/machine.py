"""The machine and the versions that the figures were measured on."""

import os
import platform
import sqlite3
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

SYNCS = 200


def described(folder: Path) -> dict[str, str]:
    """Describe the machine, for the head of the report. `folder` is on the disk of the stores."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": f"{os.cpu_count()} x {_processor()}",
        "load": _load(),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": sqlite3.sqlite_version,
        "windlass": version("windlass"),
        "huey": version("huey"),
        "fdatasync": f"{_sync_milliseconds(folder):.2f} ms for 4 kB (median of {SYNCS})",
    }


def load() -> str:
    """Return the load average of the last minute."""
    return f"{os.getloadavg()[0]:.2f}"


def _load() -> str:
    """Tell whether the machine is busy: that slows the side that syncs most, so ratios cannot be trusted."""
    busy = "; BUSY, so trust no figure below" if os.getloadavg()[0] > 1 else ""
    return f"{load()} before the run{busy}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _sync_milliseconds(folder: Path) -> float:
    path = folder / "sync.probe"
    taken = []
    with path.open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            file.write(bytes(4096))
            started = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - started)
    path.unlink()
    return sorted(taken)[SYNCS // 2] * 1000
