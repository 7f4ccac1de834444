"""Live workers by queue: whether one serves a queue, and whether one there handles a type."""

from windlass._model.record import Worker
from windlass._policy.live_workers import LiveWorkers


def test_a_queue_is_served_by_workers_that_name_it_or_serve_all() -> None:
    named = LiveWorkers([Worker(name="w", queues=("mail", "slow")), Worker(name="v", queues=("mail",))])

    assert named.serves("mail")
    assert named.serves("slow")
    assert not named.serves("other")
    assert LiveWorkers([Worker(name="w", all_queues=True)]).serves("other")
    assert not LiveWorkers([]).serves("mail")


def test_a_type_is_handled_by_a_worker_of_its_queue_only() -> None:
    live = LiveWorkers(
        [
            Worker(name="a", queues=("mail", "slow"), types=("send", "read")),
            Worker(name="b", queues=("mail", "slow"), types=("send", "read")),
            Worker(name="c", queues=("other",), types=("sort",)),
        ]
    )

    assert live.handles("slow", "read")
    assert live.handles("other", "sort")
    assert not live.handles("mail", "sort")
    assert not live.handles("nowhere", "send")


def test_a_worker_of_all_queues_handles_its_types_in_each() -> None:
    live = LiveWorkers([Worker(name="w", all_queues=True, types=("send",))])

    assert live.handles("mail", "send")
    assert not live.handles("mail", "sort")


def test_a_worker_whose_types_are_not_known_handles_any() -> None:
    live = LiveWorkers([Worker(name="a", queues=("mail",), types=()), Worker(name="w", queues=("mail",))])

    assert live.handles("mail", "send")
