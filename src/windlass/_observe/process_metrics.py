"""The metrics of several processes as those of one, by the multiprocess mode of prometheus_client.

Each process keeps its numbers in files of a directory, and each exports the sums over all files. A process
that is replaced goes on with the numbers of the one before, so that no counter falls.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import ProcessCollector, values
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from ..config import metrics_directory, use_metrics_directory


def share_metrics(directory: Path, seat: int, number: int | None = None) -> None:
    """Keep the metrics of this process in files of the directory; no other process uses its seat meanwhile.

    `number` is its number among the others, if its process metrics are to be shown. To be called before any
    metric is made.
    """
    use_metrics_directory(directory)
    values.ValueClass = values.MultiProcessValue(lambda: seat)  # type: ignore[no-untyped-call]
    if number is not None:
        (directory / f"{number}.pid").write_text(str(os.getpid()))


def forget_gauges(directory: Path, seat: int) -> None:
    """Remove what a process that has ended had at that moment; what it counted stays."""
    mark_process_dead(seat, str(directory))  # type: ignore[no-untyped-call]


def are_shared() -> bool:
    """Tell whether metrics are kept in files, by us or by the program that the API is mounted in."""
    return bool(getattr(values.ValueClass, "_multiprocess", False))


def shared_families() -> Iterable[Metric]:
    """Return our metrics summed over all processes, and the process metrics of each."""
    directory = metrics_directory()
    merged: Iterable[Metric] = MultiProcessCollector(None, str(directory)).collect()  # type: ignore[no-untyped-call]
    yield from (family for family in merged if family.name.startswith("windlass_"))
    by_name: dict[str, Metric] = {}
    for file in sorted(directory.glob("*.pid")):
        for family in ProcessCollector(pid=file.read_text, registry=None).collect():
            kept = by_name.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                kept.add_sample(sample.name, {"process": file.stem}, sample.value)
    yield from by_name.values()
