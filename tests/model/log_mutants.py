"""Rules of the log with one mistake each. The checker must find every one of them."""

from tests.model.log_protocol import Bounds
from tests.model.log_rules import Base, ChainRule, CommitId, Entry, Kind, Reign, Replay


class FirstRule(ChainRule):
    """An entry counts if it has the current epoch and is at the place that it names, whatever its number."""

    name = "the first rule"

    def follows(self, entry: Entry, place: int, replay: Replay) -> bool:
        return entry.kind is not Kind.TAKE and entry.epoch == replay.epoch and entry.place == place

    def addressed(self, entry: Entry, place: int) -> Entry:
        return entry if entry.kind is Kind.TAKE else entry._replace(place=place)


class Gaps(ChainRule):
    """An entry counts if its number is higher, not only if it is the next."""

    name = "gaps in the chain"

    def follows(self, entry: Entry, place: int, replay: Replay) -> bool:
        return entry.kind is not Kind.TAKE and entry.epoch == replay.epoch and entry.n > replay.n


class AnyEpoch(ChainRule):
    """The number alone counts."""

    name = "entries of any epoch"

    def follows(self, entry: Entry, place: int, replay: Replay) -> bool:
        return entry.kind is not Kind.TAKE and entry.n == replay.n + 1


class TakeAnywhere(ChainRule):
    """A TAKE counts wherever it is stored, so its writer need not have seen all before it."""

    name = "a TAKE at any place"

    def takes(self, entry: Entry, place: int) -> bool:
        return entry.kind is Kind.TAKE


class EarlyAppend(ChainRule):
    """An owner appends before its own TAKE stands."""

    name = "appends before the TAKE stands"

    def may_append(self, reign: Reign) -> bool:
        return not reign.fenced


class EarlyAcknowledgement(ChainRule):
    """An entry is acknowledged when it is stored, whatever became of the one before it."""

    name = "acknowledged as soon as it is stored"

    def stored_without_predecessor(self, log: tuple[Entry, ...], mine: Entry) -> bool:
        return mine in log


class TakeIgnored(ChainRule):
    """An owner looks for its entry beyond another one's TAKE."""

    name = "an owner that skips a TAKE"

    def fences(self, entry: Entry, place: int) -> bool:
        return False


class PartsKept(ChainRule):
    """A TAKE leaves the parts of an unfinished commit for the next commit."""

    name = "parts that survive a TAKE"

    def parts_after_take(self, replay: Replay) -> CommitId:
        return replay.parts


class UnguardedRead(ChainRule):
    """A read is answered without an entry that stands."""

    name = "reads without an entry"

    def answers_reads_at_once(self) -> bool:
        return True


class EarlySnapshot(ChainRule):
    """A snapshot is made while appends are in flight."""

    name = "a snapshot of what is in flight"

    def may_snapshot(self, reign: Reign) -> bool:
        return bool(reign.places)


class EarlyDeletion(ChainRule):
    """The log is deleted before the entry about the snapshot stands."""

    name = "deletion before the snapshot counts"

    def deletes_before_it_stands(self) -> bool:
        return True


class ForgetfulSnapshot(ChainRule):
    """A reader that starts from a snapshot does not know epoch and number at its place."""

    name = "a snapshot without epoch and number"

    def resumed(self, base: Base) -> Replay:
        return Replay(history=base.history)


PLAIN = Bounds()
FAILING_CHECK = Bounds(failures=1)
PARTS = Bounds(kinds=(Kind.PART,))
READS = Bounds(kinds=(Kind.COMMIT, Kind.READ))
SNAPSHOTS = Bounds(kinds=(Kind.COMMIT, Kind.SNAPSHOT))

MUTANTS: list[tuple[ChainRule, Bounds]] = [
    (FirstRule(), PLAIN),
    (Gaps(), PLAIN),
    (AnyEpoch(), FAILING_CHECK),
    (TakeAnywhere(), FAILING_CHECK),
    (EarlyAppend(), PLAIN),
    (EarlyAcknowledgement(), PLAIN),
    (TakeIgnored(), PLAIN),
    (PartsKept(), PARTS),
    (UnguardedRead(), READS),
    (EarlySnapshot(), SNAPSHOTS),
    (EarlyDeletion(), SNAPSHOTS),
    (ForgetfulSnapshot(), SNAPSHOTS),
]
