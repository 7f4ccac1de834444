"""The conformance suite: what every store guarantees, as tests that any store can run.

To test your own store, put this into `tests/test_my_store.py`, with pytest-asyncio in auto mode:

    import pytest
    from my_package import MyStore
    from windlass.testing.clock import ManualClock
    from windlass.testing.conformance import *  # all test classes

    @pytest.fixture
    def clock():
        return ManualClock()

    @pytest.fixture
    async def store(clock, tmp_path):
        store = MyStore(tmp_path / "tasks", clock=clock)
        await store.open()
        yield store
        await store.close()

The fixture yields an empty, open store that uses the fixture `clock`. To leave a test out, subclass the
class that contains it and set the test to None, where a reader can see it. `windlass.testing.twins` goes
further: it compares a store with the memory store, step by step, in random sequences of verbs.
"""

from .apply import (
    TestAudit,
    TestCancel,
    TestDiscard,
    TestFilters,
    TestReplay,
    TestReveal,
    TestRewrite,
    TestTrigger,
)
from .cancellation import TestCascade, TestWhoCancelled
from .chains import TestChainsInGroups, TestGroups, TestSuccessors, TestSuccessorsOnFailure
from .enqueue import TestEnqueue, TestIdempotencyKeys
from .expiry import TestExpire, TestNeverStarts
from .handles import TestCapabilities, TestCheck, TestHandles
from .lifecycle import TestEnded, TestLifecycle
from .order.fairness import TestFairness, TestLevels, TestShares
from .order.limits import TestCaps, TestLimitChanges, TestOthersUnaffected
from .order.ranks import TestAgeing
from .order.rates import TestLimitWakes, TestRates, TestUsage
from .order.windows import TestWindows
from .payloads import TestPayloads, TestSizes
from .read import TestAttempts, TestCount, TestFind, TestPages
from .records import TestAuditedRecords, TestExpectedRecords, TestRecords, TestStoredRecords
from .replies import TestReplies
from .unique import TestConcurrentDuplicates, TestFingerprints, TestUniquePeriods, TestUniqueSuccessors
from .upkeep.history import TestHistory
from .upkeep.joins import TestJoins
from .upkeep.lead import TestLead
from .upkeep.promote import TestPromote, TestSpreadReplay
from .upkeep.prune import TestPrune
from .work.claim import TestClaim, TestDue, TestOrder, TestPause
from .work.claim_types import TestClaimByType
from .work.damage import TestDamage
from .work.failures import TestFailures
from .work.fences import TestFences
from .work.heartbeat import TestHeartbeatReplies, TestLostReplies, TestSessions
from .work.once import TestOnce
from .work.rescue import TestRescue
from .work.settle import TestBatches, TestCancelRequested, TestVerdicts
from .work.transactions import TestTransactions
from .work.wakes import TestManyQueues, TestWakes

__all__ = [
    "TestAgeing",
    "TestAttempts",
    "TestAudit",
    "TestAuditedRecords",
    "TestBatches",
    "TestCancel",
    "TestCaps",
    "TestCascade",
    "TestChainsInGroups",
    "TestLimitChanges",
    "TestCheck",
    "TestClaim",
    "TestClaimByType",
    "TestConcurrentDuplicates",
    "TestCount",
    "TestDamage",
    "TestDiscard",
    "TestDue",
    "TestEnded",
    "TestEnqueue",
    "TestExpire",
    "TestNeverStarts",
    "TestExpectedRecords",
    "TestFailures",
    "TestFairness",
    "TestFences",
    "TestFilters",
    "TestFind",
    "TestFingerprints",
    "TestCancelRequested",
    "TestGroups",
    "TestHandles",
    "TestHistory",
    "TestIdempotencyKeys",
    "TestStoredRecords",
    "TestJoins",
    "TestLead",
    "TestLevels",
    "TestLifecycle",
    "TestLostReplies",
    "TestManyQueues",
    "TestHeartbeatReplies",
    "TestOthersUnaffected",
    "TestOnce",
    "TestOrder",
    "TestPages",
    "TestPause",
    "TestPayloads",
    "TestPromote",
    "TestPrune",
    "TestRates",
    "TestRecords",
    "TestCapabilities",
    "TestReplay",
    "TestReveal",
    "TestRewrite",
    "TestTrigger",
    "TestReplies",
    "TestRescue",
    "TestSessions",
    "TestShares",
    "TestSizes",
    "TestSpreadReplay",
    "TestSuccessors",
    "TestSuccessorsOnFailure",
    "TestTransactions",
    "TestUniquePeriods",
    "TestUniqueSuccessors",
    "TestUsage",
    "TestVerdicts",
    "TestLimitWakes",
    "TestWakes",
    "TestWhoCancelled",
    "TestWindows",
]
