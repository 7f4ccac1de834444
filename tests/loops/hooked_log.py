"""What `hooked_tasks` write down."""

from pathlib import Path


def lines(file: Path, pid: int | None = None) -> list[str]:
    """What happened, in order: in one process, or with every process's number."""
    pairs = [line.split() for line in file.read_text().splitlines()]
    return [what for what, at in pairs if pid is None or int(at) == pid]
