"""The head start of priorities."""

from datetime import timedelta

from windlass._model.queue import STRICT_MS, Ordering, QueueSettings
from windlass._policy.order.rank import boost, changes_ranks

STRICT = QueueSettings(name="mail")
AGED = QueueSettings(name="mail", ordering=Ordering(ageing=timedelta(minutes=5)))


def test_one_priority_is_worth_the_ageing_of_its_queue() -> None:
    assert [boost(2, settings) for settings in (None, STRICT, AGED)] == [
        2 * STRICT_MS,
        2 * STRICT_MS,
        600_000,
    ]
    assert boost(0, AGED) == 0


def test_only_another_ageing_changes_ranks() -> None:
    assert changes_ranks(STRICT, AGED)
    assert changes_ranks(AGED, None)
    assert not changes_ranks(None, STRICT)
