"""What the keeper deletes, in steps that leave others their turn."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from windlass._model.queue import Retention
from windlass._stores.sqlite import SQLiteStore
from windlass._stores.sqlite import upkeep as keeping
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import a_task

Peek = Callable[..., list[tuple[object, ...]]]
HOUR = timedelta(hours=1)


@pytest.mark.parametrize("number", [3, 4, 5])
async def test_expired_keys_go_a_few_at_a_time_until_none_is_left(
    store: SQLiteStore, clock: ManualClock, peek: Peek, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(keeping, "KEYS_AT_ONCE", 2)
    await store.enqueue([a_task(idempotency_key=f"k{n}", idempotency_for=HOUR) for n in range(number)])
    clock.advance(HOUR)

    await store.prune(Retention(), limit=1)

    assert peek("SELECT count(*) FROM windlass_idempotency") == [(0,)]
