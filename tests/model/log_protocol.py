"""A model of a store that a stream replicates: who owns it, what its log says, what is acknowledged.

The stream is a log of entries. Whoever wants to own the store replays the log and appends a TAKE; from then
on it appends its commits, several in flight, and acknowledges those that stand. Readers replay the log by a
rule that says which entries count and which are void.

The network: a publish may be lost, delayed for any time and delivered again. So the messages that were ever
published are a set, and any of them may arrive whenever. The stream compares the last sequence number that a
publish expects, but that check is made by its leader before the entry is replicated; it may fail.
Replies are not modelled: what became of a publish is read from the log, or not known.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from tests.model.checker import Step
from tests.model.log_rules import Base, ChainRule, Entry, History, Kind, Read, Reign, Replay


class Message(NamedTuple):
    entry: Entry
    expected: int  # the last sequence number of the stream


class World(NamedTuple):
    log: tuple[Entry, ...] = ()
    first: int = 1  # what is before it was deleted
    bases: frozenset[Base] = frozenset()
    messages: frozenset[Message] = frozenset()
    reigns: tuple[Reign, ...] = ()
    failures: int = 0  # how often the stream's check may still fail


class Bounds(NamedTuple):
    """How much may happen."""

    reigns: int = 2
    appends: int = 2  # of each reign
    depth: int = 2  # appends in flight
    failures: int = 0
    kinds: tuple[Kind, ...] = (Kind.COMMIT,)


class LogModel:
    """Reigns over one log, by a rule."""

    def __init__(self, rule: ChainRule, bounds: Bounds) -> None:
        self.rule, self.bounds = rule, bounds
        self._replay = lru_cache(maxsize=None)(self._replay_log)

    def start(self) -> World:
        return World(failures=self.bounds.failures)

    # -- readers -----------------------------------------------------------------------------------------

    def replays(self, world: World) -> list[Replay]:
        """What readers make of the log: from its beginning, and from every snapshot that counts."""
        return self._replay(world.log, world.first, world.bases)

    def _replay_log(self, log: tuple[Entry, ...], first: int, bases: frozenset[Base]) -> list[Replay]:
        found = [self._through(Replay(), log, 1, None)] if first == 1 else []
        found += [
            self._through(self.rule.resumed(entry.base), log, entry.base.place + 1, entry)
            for entry in log[first - 1 :]
            if entry.base is not None and entry.base in bases and entry.base.place >= first - 1
        ]
        return [replay for replay in found if replay is not None]

    def _through(
        self, replay: Replay, log: tuple[Entry, ...], place: int, needed: Entry | None
    ) -> Replay | None:
        """Replay the log from a place on; None if the entry that is needed turns out to be void."""
        counted = needed is None
        for at, entry in enumerate(log[place - 1 :], place):
            if self.rule.takes(entry, at):
                replay = Replay(at, 0, replay.history, self.rule.parts_after_take(replay))
            elif self.rule.follows(entry, at, replay):
                counted = counted or entry == needed
                replay = self._apply(entry, replay)
        return replay if counted else None

    def _apply(self, entry: Entry, replay: Replay) -> Replay:
        parts, history = replay.parts, replay.history
        if entry.kind in {Kind.PART, Kind.COMMIT}:
            parts += ((entry.reign, entry.n),)
        if entry.kind is Kind.COMMIT:
            history, parts = (*history, parts), ()
        return Replay(replay.epoch, entry.n, history, parts)

    # -- steps -------------------------------------------------------------------------------------------

    def steps(self, world: World) -> Iterator[Step[World]]:
        for message in sorted(world.messages, key=_order):
            yield from self._arrive(world, message)
        if len(world.reigns) < self.bounds.reigns:
            number = len(world.reigns)
            yield self._take(world._replace(reigns=(*world.reigns, Reign(0, ()))), number)
        for number, reign in enumerate(world.reigns):
            if not reign.fenced:
                yield from self._append(world, number, reign)
                yield from self._look(world, number, reign)
            if reign.may_delete and reign.snapshot is not None:
                yield self._delete(world, number, reign, reign.snapshot)

    def _arrive(self, world: World, message: Message) -> Iterator[Step[World]]:
        place = len(world.log) + 1
        if message.expected == place - 1:
            after = self._without_stale(world._replace(log=(*world.log, message.entry)))
            yield Step(f"the stream stores {message.entry}, at {place}", after, call=("store", message))
        elif world.failures:
            log = (*world.log, message.entry)
            after = self._without_stale(world._replace(log=log, failures=world.failures - 1))
            text = f"the stream stores {message.entry}, at {place}, though it was for {message.expected + 1}"
            yield Step(text, after, is_fault=True, call=("store", message))

    def _without_stale(self, world: World) -> World:
        """Forget messages that no stream whose check works will store any more."""
        if world.failures:
            return world
        last = len(world.log)
        return world._replace(messages=frozenset(m for m in world.messages if m.expected >= last))

    def _publish(self, world: World, entry: Entry, place: int) -> World:
        message = Message(self.rule.addressed(entry, place), place - 1)
        return self._without_stale(world._replace(messages=world.messages | {message}))

    def _take(self, world: World, number: int) -> Step[World]:
        """Replay the log to its end and try to own the store."""
        epoch = len(world.log) + 1
        reign = Reign(epoch, self.replays(world)[-1].history)
        after = self._publish(_with(world, number, reign), Entry(Kind.TAKE, number, epoch, 0), epoch)
        text = f"reign {number} has replayed the log and publishes TAKE for {epoch}"
        return Step(text, after, call=("take", number))

    def _append(self, world: World, number: int, reign: Reign) -> Iterator[Step[World]]:
        in_flight = len(reign.appended) + 1 - len(reign.places)
        if not self.rule.may_append(reign) or in_flight >= self.bounds.depth:
            return
        n = len(reign.appended) + 1
        place = (reign.places[-1] if reign.places else reign.epoch - 1) + in_flight + 1
        for kind in self._kinds(reign):
            changed, bases = reign._replace(appended=(*reign.appended, kind)), world.bases
            if kind is Kind.READ:
                at_once = (n,) if self.rule.answers_reads_at_once() else ()
                reads = (*reign.reads, Read(n, _acknowledged(world)))
                changed = changed._replace(reads=reads, acknowledged=reign.acknowledged + at_once)
            if kind is Kind.SNAPSHOT:
                base = Base(reign.places[-1], reign.epoch, n - 1, reign.executed(number, n - 1))
                changed = changed._replace(snapshot=base, may_delete=self.rule.deletes_before_it_stands())
                bases |= {base}
            after = _with(world._replace(bases=bases), number, changed)
            after = self._publish(after, _entry(number, changed, n), place)
            text = f"reign {number} publishes {kind} {n} for {place}"
            yield Step(text, after, call=("append", number, kind))

    def _kinds(self, reign: Reign) -> Iterator[Kind]:
        """What it may append next."""
        left = self.bounds.appends - len(reign.appended)
        if reign.appended and reign.appended[-1] is Kind.PART:
            yield Kind.COMMIT
            return
        for kind in self.bounds.kinds if left > 0 else ():
            if kind is Kind.PART and left < 2:
                continue
            if kind is Kind.SNAPSHOT and (kind in reign.appended or not self.rule.may_snapshot(reign)):
                continue
            yield kind

    def _look(self, world: World, number: int, reign: Reign) -> Iterator[Step[World]]:
        """Find out what became of the oldest append that is not known to stand."""
        n = len(reign.places)
        if n > len(reign.appended):
            return
        mine = _entry(number, reign, n)
        place = reign.places[-1] + 1 if reign.places else reign.epoch
        while place <= len(world.log):
            found = world.log[place - 1]
            if place >= world.first and _same(found, mine):
                yield self._stand(world, number, reign, place, found)
                return
            if place < world.first or n == 0 or self.rule.fences(found, place):
                yield self._lose(world, number, reign, place)
                return
            place += 1
        again = self._publish(world, mine, place)
        if again != world:
            text = f"reign {number} finds nothing at {place} and publishes {mine.kind} {n} again"
            yield Step(text, again, call=("look", number))
        elif n < len(reign.appended):
            yield from self._acknowledge_early(world, number, reign, n + 1)

    def _acknowledge_early(self, world: World, number: int, reign: Reign, n: int) -> Iterator[Step[World]]:
        mine = _entry(number, reign, n)
        if n not in reign.acknowledged and self.rule.stored_without_predecessor(world.log, mine):
            changed = reign._replace(acknowledged=(*reign.acknowledged, n))
            yield Step(f"reign {number} acknowledges {mine.kind} {n}", _with(world, number, changed))

    def _stand(self, world: World, number: int, reign: Reign, place: int, found: Entry) -> Step[World]:
        changed = reign._replace(places=(*reign.places, place))
        if found.kind in {Kind.COMMIT, Kind.READ} and found.n not in reign.acknowledged:
            changed = changed._replace(acknowledged=(*reign.acknowledged, found.n))
        if found.kind is Kind.SNAPSHOT:
            changed = changed._replace(may_delete=True)
        done = "owns the store" if found.kind is Kind.TAKE else f"acknowledges {found.kind} {found.n}"
        text = f"reign {number} finds it at {place} and {done}"
        return Step(text, _with(world, number, changed), call=("look", number))

    def _lose(self, world: World, number: int, reign: Reign, place: int) -> Step[World]:
        if not reign.places:  # it never owned the store: it follows the log again
            return self._take(world, number)._replace(call=("look", number))
        after = _with(world, number, reign._replace(fenced=True))
        return Step(f"reign {number} is fenced by {place}", after, call=("look", number))

    def _delete(self, world: World, number: int, reign: Reign, base: Base) -> Step[World]:
        """Delete what a snapshot replaces. May come late, from an owner that was fenced meanwhile."""
        after = world._replace(
            first=max(world.first, base.place + 1),
            bases=frozenset(kept for kept in world.bases if kept.place >= base.place),
        )
        text = f"reign {number} deletes the log through {base.place}, and older snapshots"
        return Step(text, _with(after, number, reign._replace(may_delete=False)), call=("delete", number))

    # -- what must hold ----------------------------------------------------------------------------------

    def bad_step(self, before: World, step: Step[World]) -> str | None:
        return None

    def bad_state(self, world: World) -> str | None:
        replays = self.replays(world)
        if not replays:
            return "the log cannot be replayed"
        if any(replay.history != replays[0].history for replay in replays):
            return f"readers disagree: {[replay.history for replay in replays]}"
        return self._misplaced(world, replays[0]) or self._unkept(world, replays[0].history)

    def _misplaced(self, world: World, replay: Replay) -> str | None:
        """Every replay is what an owner has executed, up to some commit."""
        if not replay.epoch:
            return None
        number = world.log[replay.epoch - 1].reign
        executed = world.reigns[number].executed(number, len(world.reigns[number].appended))
        if executed[: len(replay.history)] == replay.history:
            return None
        return f"a replay applies {_words(replay.history)}; its owner executed {_words(executed)}"

    def _unkept(self, world: World, history: History) -> str | None:
        """What was acknowledged is in every later replay, and was executed on the same state."""
        for number, reign in enumerate(world.reigns):
            for n in reign.acknowledged:
                executed = reign.executed(number, n)
                if history[: len(executed)] != executed and reign.appended[n - 1] is Kind.COMMIT:
                    return (
                        f"reign {number} acknowledged {_words(executed)}, but a replay has {_words(history)}"
                    )
            for read in reign.reads:
                if read.n in reign.acknowledged and not set(read.seen) <= set(reign.executed(number, read.n)):
                    return f"reign {number} answered a read without {_words(read.seen)}, acknowledged before"
        return None

    def has_ended(self, world: World) -> bool:
        """Whether whoever owns the store, by the log, has appended and acknowledged all it could."""
        epoch = self.replays(world)[0].epoch
        if not epoch:
            return False
        owner = world.reigns[world.log[epoch - 1].reign]
        return len(owner.places) > len(owner.appended) >= self.bounds.appends


def _with(world: World, number: int, reign: Reign) -> World:
    reigns = list(world.reigns)
    reigns[number] = reign
    return world._replace(reigns=tuple(reigns))


def _order(message: Message) -> tuple[int, ...]:
    """The same in every run, unlike that of a set."""
    entry = message.entry
    return message.expected, entry.reign, entry.epoch, entry.n


def _entry(number: int, reign: Reign, n: int) -> Entry:
    kind = Kind.TAKE if n == 0 else reign.appended[n - 1]
    base = reign.snapshot if kind is Kind.SNAPSHOT else None
    return Entry(kind, number, reign.epoch, n, base=base)


def _same(one: Entry, other: Entry) -> bool:
    return (one.reign, one.epoch, one.n) == (other.reign, other.epoch, other.n)


def _acknowledged(world: World) -> History:
    return tuple(
        commit
        for number, reign in enumerate(world.reigns)
        for n in sorted(reign.acknowledged)
        if reign.appended[n - 1] is Kind.COMMIT
        for commit in [tuple(reign.commits(number, n))[-1]]
    )


def _words(history: History) -> str:
    """The commits by reign and number: "0.1 0.2 1.1"."""
    return " ".join("+".join(f"{reign}.{n}" for reign, n in commit) for commit in history) or "nothing"
