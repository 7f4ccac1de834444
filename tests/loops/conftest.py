"""Shorten the retry delays of workers and keepers, so that the tests are quick."""

import pytest

from windlass._keeper import keeper
from windlass._worker import run, slots, worker


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "_RETRY_AFTER", 0.05)
    monkeypatch.setattr(worker, "_REOPEN_AFTER", 0.05)
    monkeypatch.setattr(worker, "_CLEANUP_TIMEOUT", 0.5)
    monkeypatch.setattr(slots, "_CLOSE_TIMEOUT", 0.3)
    monkeypatch.setattr(run, "_INTERRUPT_AGAIN_AFTER", 0.5)
