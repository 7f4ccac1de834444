"""What stores report of the transitions that a verb made."""

from tests.unit.samples import running
from windlass._model.state import State, Verb
from windlass._model.transition import Applied, Pruned, PrunedCount, pruned_counts, transition_of


def test_the_results_of_two_batches_add_up() -> None:
    made = (transition_of(Verb.DISCARD, running()),)

    assert Applied(ids=("a",)) + Applied(ids=("b",), transitions=made) == Applied(
        ids=("a", "b"), transitions=made
    )


def test_pruned_tasks_are_counted_by_queue_and_state() -> None:
    counts = pruned_counts({("mail", "dead"): 2, ("mail", "completed"): 0, ("bulk", "completed"): 3})

    assert counts == (
        PrunedCount(queue="bulk", state=State.COMPLETED, number=3),
        PrunedCount(queue="mail", state=State.DEAD, number=2),
    )
    assert Pruned(counts=counts).number == 5
