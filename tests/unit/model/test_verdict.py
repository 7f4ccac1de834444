"""The progress that settlements carry."""

from windlass._model.lease import Lease, ProgressReport
from windlass._model.task import Progress
from windlass._model.verdict import Complete, Settlement, last_reports

HALF, DONE = Progress(fraction=0.5), Progress(fraction=1.0)


def settled(task_id: str, progress: Progress | None) -> Settlement:
    return Settlement(lease=Lease(task_id, 1), verdict=Complete(), outcome="returned", progress=progress)


def test_progress_is_stored_in_the_order_of_ids_and_the_first_of_repeats_counts() -> None:
    batch = [settled("b", DONE), settled("a", HALF), settled("b", HALF), settled("c", None)]

    assert last_reports(batch) == [ProgressReport(Lease("a", 1), HALF), ProgressReport(Lease("b", 1), DONE)]
    assert last_reports([settled("c", None)]) == []
