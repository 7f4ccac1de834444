"""The rule of a replicated log: which entries count, and what owners do by it. Mutants replace one method.

An owner's *reign* begins with its TAKE and ends when another one's counts.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    TAKE = "TAKE"
    PART = "PART"  # of a commit too large for one entry; the next one ends it
    COMMIT = "COMMIT"
    READ = "READ"  # an entry without pages, so that a read is answered only by who still owns the store
    SNAPSHOT = "SNAPSHOT"


CommitId = tuple[tuple[int, int], ...]  # the entries that it consists of, as (reign, n)
History = tuple[CommitId, ...]


class Base(NamedTuple):
    """A copy of the store at a place of the log."""

    place: int
    epoch: int
    n: int
    history: History


class Entry(NamedTuple):
    kind: Kind
    reign: int  # who wrote it
    epoch: int  # the place at which its writer took over
    n: int  # rises by one with each entry of an epoch; 0 is the TAKE
    place: int = 0  # where it is meant to be; only the first rule looks at it
    base: Base | None = None  # of a SNAPSHOT

    def __str__(self) -> str:
        return f"{self.kind} {self.n} of reign {self.reign}, epoch {self.epoch}"


class Read(NamedTuple):
    n: int  # of the entry that must stand first
    seen: History  # what had been acknowledged, by anyone, when it was asked


class Reign(NamedTuple):
    """What a process knows that has tried to own the store."""

    epoch: int
    history: History  # that it replayed before it took over
    appended: tuple[Kind, ...] = ()
    places: tuple[int, ...] = ()  # of its entries that stand, as far as it knows; the TAKE's is first
    acknowledged: tuple[int, ...] = ()
    reads: tuple[Read, ...] = ()
    fenced: bool = False
    snapshot: Base | None = None
    may_delete: bool = False  # what its snapshot replaces

    @property
    def owns(self) -> bool:
        return bool(self.places) and not self.fenced

    def commits(self, number: int, through: int) -> Iterator[CommitId]:
        """The commits that it has executed, through its entry `through`."""
        parts: CommitId = ()
        for n, kind in enumerate(self.appended[:through], 1):
            if kind in {Kind.PART, Kind.COMMIT}:
                parts += ((number, n),)
            if kind is Kind.COMMIT:
                yield parts
                parts = ()

    def executed(self, number: int, through: int) -> History:
        """What the store contains for this process after its entry `through`."""
        return self.history + tuple(self.commits(number, through))


class Replay(NamedTuple):
    """What a reader knows at a place of the log."""

    epoch: int = 0
    n: int = 0
    history: History = ()
    parts: CommitId = ()


class ChainRule:
    """The rule of the log, and what owners do by it. Mutants replace one method."""

    name = "the chain rule"

    def takes(self, entry: Entry, place: int) -> bool:
        """A TAKE counts where its writer meant it to be: then it had seen everything before it."""
        return entry.kind is Kind.TAKE and entry.epoch == place

    def follows(self, entry: Entry, place: int, replay: Replay) -> bool:
        """Any other entry counts if it is the next one of the current epoch."""
        return entry.kind is not Kind.TAKE and entry.epoch == replay.epoch and entry.n == replay.n + 1

    def parts_after_take(self, replay: Replay) -> CommitId:
        """A TAKE drops the parts of a commit that was not finished."""
        return ()

    def addressed(self, entry: Entry, place: int) -> Entry:
        """What is published to get this place."""
        return entry

    def may_append(self, reign: Reign) -> bool:
        return reign.owns

    def fences(self, entry: Entry, place: int) -> bool:
        """Whether an owner that finds this entry where its own should be has lost the store."""
        return self.takes(entry, place)

    def stored_without_predecessor(self, log: tuple[Entry, ...], mine: Entry) -> bool:
        """Whether to acknowledge an entry although the one before it is not known to stand."""
        return False

    def answers_reads_at_once(self) -> bool:
        return False

    def may_snapshot(self, reign: Reign) -> bool:
        """Only with nothing in flight is the owner's file what the log says."""
        return len(reign.places) == len(reign.appended) + 1

    def deletes_before_it_stands(self) -> bool:
        return False

    def resumed(self, base: Base) -> Replay:
        """Where a reader continues that starts from a snapshot."""
        return Replay(base.epoch, base.n, base.history)
