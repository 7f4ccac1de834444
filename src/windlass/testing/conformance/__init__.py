"""The promises of a store, as tests that any store can be held to: ours, and yours.

To hold your own store to them, put this into `tests/test_my_store.py`, with pytest-asyncio in auto mode:

    import pytest
    from my_package import MyStore
    from windlass.testing.clock import ManualClock
    from windlass.testing.conformance import *  # every promise, as test classes

    @pytest.fixture
    def clock():
        return ManualClock()

    @pytest.fixture
    async def store(clock, tmp_path):
        store = MyStore(tmp_path / "tasks", clock=clock)
        await store.open()
        yield store
        await store.close()

A store comes empty and opened, and its clock is the fixture `clock`. To leave a promise out, subclass the
class that holds it and set the test to None, where a reader can see it. `windlass.testing.twins` goes
further: it compares a store with the memory store, step by step, along roads that no scenario foresaw.
"""

from .admin import TestCheck, TestHandles
from .apply import TestAudit, TestCancel, TestDiscard, TestFilters, TestReplay
from .ask import TestAttempts, TestCount, TestFind, TestPages
from .chains import TestGroups, TestSuccessors
from .enqueue import TestEnqueue, TestFingerprints, TestIdempotencyKeys
from .life import TestLife
from .order.fairness import TestFairness, TestLevels, TestShares
from .order.limits import TestCaps, TestChangingLimits, TestNobodyElse
from .order.rates import TestRates, TestUsage, TestWaitingForLimits
from .payloads import TestPayloads
from .records import TestAuditedRecords, TestKeptRecords, TestRecords
from .refusals import TestRefusals
from .upkeep.lead import TestLead
from .upkeep.promote import TestPromote
from .upkeep.prune import TestPrune
from .work.claim import TestClaim, TestDue, TestOrder, TestPause
from .work.fences import TestFences
from .work.heartbeat import TestLostReplies, TestNews, TestSessions
from .work.once import TestOnce
from .work.rescue import TestRescue
from .work.settle import TestBatches, TestFlagged, TestVerdicts
from .work.transactions import TestTransactions
from .work.wakes import TestWakes

__all__ = [
    "TestAttempts",
    "TestAudit",
    "TestAuditedRecords",
    "TestBatches",
    "TestCancel",
    "TestCaps",
    "TestChangingLimits",
    "TestCheck",
    "TestClaim",
    "TestCount",
    "TestDiscard",
    "TestDue",
    "TestEnqueue",
    "TestFairness",
    "TestFences",
    "TestFilters",
    "TestFind",
    "TestFingerprints",
    "TestFlagged",
    "TestGroups",
    "TestHandles",
    "TestIdempotencyKeys",
    "TestKeptRecords",
    "TestLead",
    "TestLevels",
    "TestLife",
    "TestLostReplies",
    "TestNews",
    "TestNobodyElse",
    "TestOnce",
    "TestOrder",
    "TestPages",
    "TestPause",
    "TestPayloads",
    "TestPromote",
    "TestPrune",
    "TestRates",
    "TestRecords",
    "TestRefusals",
    "TestReplay",
    "TestRescue",
    "TestSessions",
    "TestShares",
    "TestSuccessors",
    "TestTransactions",
    "TestUsage",
    "TestVerdicts",
    "TestWaitingForLimits",
    "TestWakes",
]
