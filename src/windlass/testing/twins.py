"""Twins: apply the same steps to a store and the memory store, on the same clock, and compare them.

Random steps alone seldom reach rare states, so some rules are whole scenarios: "stall, be rescued, settle
late" is one step. Stale leases are kept on purpose and settled again and again.

    def test_my_store_is_a_twin_of_memory(tmp_path):
        numbers = itertools.count()
        run_twins(lambda clock: MyStore(tmp_path / f"{next(numbers)}", clock=clock))
"""

from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import MultipleResults, multiple, rule, run_state_machine_as_test

from .._model.filter import CancelTasks, Discard, Replay
from .._model.lease import Lease
from .._model.limit import Limit
from .._model.options import DeclaredType
from .._model.queue import QueueSettings, Retention
from .conformance.pair import Factory
from .conformance.random_steps import (
    EVERY,
    LEASE,
    RandomSteps,
    Types,
    endings,
    new_tasks,
    queue_sets,
    retentions,
    sessions,
    type_sets,
)
from .conformance.steps import OPERATOR, complete

limits = st.fixed_dictionaries(
    {"running": st.sampled_from([0, 1, 2])},
    optional={
        "by": st.sampled_from(["tenant", "to"]),
        "rate": st.just(1.0),
        "burst": st.sampled_from([1, 3]),
    },
).map(lambda fields: fields if "rate" in fields else {k: v for k, v in fields.items() if k != "burst"})


class Twins(RandomSteps):
    """Scenarios of several verbs, mixed with the single steps."""

    leases = RandomSteps.leases

    @rule(
        target=leases,
        way=st.sampled_from(["never claimed", "release", "snooze", "retry"]),
        limited=st.booleans(),
        first=st.booleans(),
    )
    def expire_before_or_after_the_start(
        self, way: str, *, limited: bool, first: bool
    ) -> MultipleResults[Lease]:
        """Claim after the expiry, before or after the keeper came; with a successor, in order or counted."""
        fields = {"expires_in": timedelta(seconds=5)}
        lane, (new, _) = self._lane(2, **fields)
        if limited:
            self.pair.both(lambda store: store.put(Limit(name=lane, queue=lane, running=1), OPERATOR))
        self._open("s1")
        leases = []
        if way != "never claimed":
            leases = self._claim("s1", 1, lane)
            self._settle(leases[0], way)
        self.pair.clock.advance(6)
        self._open("s1")
        if first:
            self.expire(EVERY)
        leases += self._claim("s1", 2, lane)
        self.expire(EVERY)
        self._apply(Replay(by=OPERATOR), new.id)
        return multiple(*leases, *self._claim("s1", 2, lane))

    @rule(target=leases, ending=endings, first=st.none() | endings)
    def stall_be_rescued_settle_late(self, ending: str, first: str | None) -> MultipleResults[Lease]:
        """The rescuer may settle first, and the task may then be running again."""
        lane, (new,), stale = self._start()
        self.pair.clock.advance(LEASE)
        self._open("s2")
        rescued = self._rescue("s2")
        if first is not None:
            self._settle(next(lease for lease in rescued if lease.task_id == new.id), first)
            rescued += self._claim("s2", 1, lane)
        self._settle(stale, ending, ending)
        return multiple(stale, *rescued)

    @rule(target=leases, way=st.sampled_from(["snooze", "release", "retry", "bury"]), ending=endings)
    def come_back_and_settle_with_the_old_lease(self, way: str, ending: str) -> MultipleResults[Lease]:
        """After a snooze or replay the attempt has the same number, but another fence."""
        lane, (new,), stale = self._start()
        self._settle(stale, way)
        self._apply(Replay(by=OPERATOR), new.id)
        again = self._claim("s1", 1, lane)
        self._settle(stale, ending, ending)
        return multiple(stale, *again)

    @rule(target=leases, way=st.sampled_from(["snooze", "retry", "bury", "complete"]), stale=st.booleans())
    def mark_come_back_and_mark_again(self, way: str, *, stale: bool) -> MultipleResults[Lease]:
        """Only the first lease is first, also after a replay; a stale one is refused."""
        lane, (new,), first = self._start()
        self.pair.both(lambda store: store.once(first, "mail"))
        self._settle(first, way)
        self._apply(Replay(by=OPERATOR), new.id)
        again = self._claim("s1", 1, lane)
        for lease in [first] * stale + again:
            for key in ("mail", "charge"):
                self.pair.both(lambda store, one=lease, what=key: store.once(one, what))  # type: ignore[misc]  # bound now
        return multiple(first, *again)

    @rule(target=leases, ending=endings, given_up=st.booleans(), flagged=st.booleans())
    def lose_the_reply_to_a_claim(
        self, ending: str, *, given_up: bool, flagged: bool
    ) -> MultipleResults[Lease]:
        """Released if the worker has abandoned the reply; left alone if it may still arrive."""
        lane, (new,) = self._lane()
        self._open("s1")
        known = tuple(self.held["s1"].values())
        (stale,) = self._claim("s1", 1, lane)
        if flagged:
            self._apply(CancelTasks(by=OPERATOR), new.id)
        self._beat("s1", known, through=self.claims["s1"] - (not given_up))
        again = self._claim("s1", 1, lane)
        self._settle(stale, ending)
        return multiple(stale, *again)

    @rule(ending=endings, waiting=st.booleans())
    def cancel_while_running(self, ending: str, *, waiting: bool) -> None:
        """The request to stop is reported, and turns a postponement into a cancellation."""
        _, (new, *_), lease = self._start(3 if waiting else 1)
        self._apply(CancelTasks(by=OPERATOR), new.id)
        self._open("s1")
        self._settle(lease, ending, ending)

    @rule(target=leases, fate=st.sampled_from(["replay", "discard", "prune", "cancel a successor"]))
    def kill_a_predecessor(self, fate: str) -> MultipleResults[Lease]:
        """Its successors wait for a replay; if none is possible, they are cancelled."""
        lane, (first, second, _), lease = self._start(3)
        self._settle(lease, "bury")
        if fate == "discard":
            self._apply(Discard(by=OPERATOR), first.id)
        elif fate == "prune":
            self.pair.clock.advance(1)
            self.pair.both(lambda store: store.prune(Retention(dead=timedelta(0)), EVERY))
        else:
            self._apply(CancelTasks(by=OPERATOR), *([second.id] if fate != "replay" else []))
            self._apply(Replay(by=OPERATOR), first.id, second.id)
        return multiple(lease, *self._claim_through(lane))

    def _claim_through(self, lane: str) -> list[Lease]:
        """Run the remaining tasks of the lane one by one."""
        got: list[Lease] = []
        while claimed := self._claim("s1", 1, lane):
            got += claimed
            self._settle(claimed[0], "complete")
        return got

    @rule(at=st.integers(0, 3), fault=st.sampled_from(["predecessor", "key", "fingerprint"]))
    def refuse_a_batch(self, at: int, fault: str) -> None:
        """One invalid task among valid ones: no task and no key is stored."""
        self.lanes += 1
        lane = f"lane-{self.lanes}"
        self._enqueue(self._wish(queue=lane, idempotency_key=lane, fingerprint=lane))
        bad: dict[str, dict[str, Any]] = {
            "predecessor": {"after": ("nobody",)},
            "key": {"idempotency_key": lane, "idempotency_digest": "other"},
            "fingerprint": {"fingerprint": lane},
        }
        batch = [self._wish(queue=lane, idempotency_key=f"{lane}-{n}") for n in range(3)]
        self._enqueue(*batch[:at], self._wish(queue=lane, **bad[fault]), *batch[at:])
        self._enqueue(self._wish(queue=lane, idempotency_key=f"{lane}-0", idempotency_digest="new"))

    @rule(
        target=leases,
        batch=st.lists(new_tasks, min_size=2, max_size=6),
        session=sessions,
        queues=queue_sets,
        limits=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    )
    def enqueue_and_claim_at_once(
        self, batch: list[dict[str, Any]], session: str, queues: tuple[str, ...], limits: list[int]
    ) -> MultipleResults[Lease]:
        """Many tasks of many ranks, to compare the order."""
        self._open(session)
        plain = ("queue", "priority", "type", "delay")
        self._enqueue(*(self._wish(**{name: one[name] for name in plain if name in one}) for one in batch))
        return multiple(*(lease for limit in limits for lease in self._claim(session, limit, *queues)))

    @rule(after=st.lists(st.integers(1, 20), min_size=2, max_size=5), limit=st.integers(1, 3))
    def schedule_and_promote(self, after: list[int], limit: int) -> None:
        """Due in another order than they were enqueued."""
        self._enqueue(*(self._wish(queue="a", delay=timedelta(seconds=delay)) for delay in after))
        self.pair.clock.advance(10)
        for _ in range(2):
            self.pair.both(lambda store: store.promote(limit))

    @rule(target=leases, first=endings, second=endings, late=st.booleans())
    def gather(self, first: str, second: str, *, late: bool) -> MultipleResults[Lease]:
        """A task that waits for two others, one of which may have ended before."""
        lane, (one,) = self._lane()
        two = self._wish(queue=lane)
        self._enqueue(two)
        self._open("s1")
        leases = self._claim("s1", 2, lane)
        if late:
            self._settle(leases[0], first)
        self._enqueue(self._wish(queue=lane, after=(one.id, two.id)))
        self._settle(leases[0], first)
        leases += self._claim("s1", 1, lane)
        self._settle(leases[1], second)
        return multiple(*leases, *self._claim_through(lane))

    @rule(target=leases, chain=st.lists(endings, max_size=3), other=endings, late=st.booleans())
    def gather_a_chain(self, chain: list[str], other: str, *, late: bool) -> MultipleResults[Lease]:
        """A task waits for another and for the end of a chain, whose steps come one by one."""
        lane, (one,) = self._lane()
        two = self._wish(queue=lane)
        last = self._wish(queue=lane, after=(one.id, two.id))
        self._enqueue(two, last)
        self._open("s1")
        step, alone = leases = self._claim("s1", 2, lane)
        if late:
            self._settle(alone, other)
        for ending in chain:
            following = self._wish(queue=f"{lane}-chain", before=(last.id,), root=one.id)
            settlement = complete(step, b"1", following)
            self.pair.both(lambda store, done=settlement: store.settle([done]))  # type: ignore[misc]  # bound now
            claimed = self._claim("s1", 1, f"{lane}-chain")
            leases += claimed
            if not claimed:
                break
            (step,) = claimed
            self._settle(step, *([ending] if ending != "complete" else []))
        self._settle(step, "complete")
        self._settle(alone, other)
        return multiple(*leases, *self._claim_through(lane))

    @rule(
        ending=endings,
        terms=st.tuples(*[st.sampled_from([None, timedelta(seconds=5), timedelta(seconds=20)])] * 2),
        wait=st.sampled_from([0, 5, 20]),
        own=st.none() | retentions,
        of_type=st.none() | retentions,
        common=retentions,
    )
    def end_be_pruned_and_come_again(
        self,
        ending: str,
        terms: tuple[timedelta | None, timedelta | None],
        wait: int,
        own: Retention | None,
        of_type: Retention | None,
        common: Retention,
    ) -> None:
        """Reuse a key and a fingerprint after the task ended, and after its record was pruned."""
        key = f"key-{self.lanes}"
        term, period = terms
        unique: dict[str, Any] = {"fingerprint": key, "unique_for": period}
        lane, (new,), lease = self._start(type=key, idempotency_key=key, idempotency_for=term, **unique)
        self.pair.both(lambda store: store.put(QueueSettings(name=lane, retention=own)))
        self.pair.both(lambda store: store.put(DeclaredType(name=key, retention=of_type)))
        self._settle(lease, ending)
        self.pair.clock.advance(wait)
        self.pair.both(lambda store: store.prune(common, EVERY))
        self._enqueue(self._wish(queue=lane, idempotency_key=key, **unique))
        self._enqueue(self._wish(queue=lane, **unique))
        self._enqueue(self._wish(queue=lane, fingerprint=key))
        self._apply(Replay(by=OPERATOR, payload=b"{}", fingerprint=f"{key}-edited"), new.id)
        self._enqueue(self._wish(queue=lane, fingerprint=f"{key}-edited"))

    @rule(
        target=leases,
        limit=limits,
        owned=st.lists(
            st.tuples(st.sampled_from(["", "t", "u"]), st.sampled_from(["x", "y"])), min_size=2, max_size=8
        ),
        asks=st.lists(st.tuples(st.integers(1, 5), type_sets), min_size=1, max_size=4),
        ending=endings,
        wait=st.sampled_from([0, 0.5, 3]),
        late=st.booleans(),
    )
    def start_under_a_limit(
        self,
        limit: dict[str, Any],
        owned: list[tuple[str, str]],
        asks: list[tuple[int, Types]],
        ending: str,
        wait: float,
        *,
        late: bool,
    ) -> MultipleResults[Lease]:
        """Some tasks start and some must wait; the limit is set before, or while some are running."""
        self.lanes += 1
        lane = f"lane-{self.lanes}"
        meant = Limit(name=lane, queue=lane, **limit)
        self._enqueue(*(self._wish(queue=lane, tenant=tenant, type=of) for tenant, of in owned))
        self._open("s1")
        leases = self._claim("s1", 2, lane) if late else []
        self.pair.both(lambda store: store.put(meant, OPERATOR))
        for number, types in asks:
            got = self._claim("s1", number, lane, types=types)
            leases += got
            for lease in got[:1]:
                self._settle(lease, ending)
            self.pair.clock.advance(wait)
            self._open("s1")
        self.pair.both(lambda store: store.remove(Limit, lane, OPERATOR))
        return multiple(*leases, *self._claim("s1", EVERY, lane))


def twin_machine(factory: Factory) -> type[Twins]:
    """Return a hypothesis state machine that compares this store with memory."""
    return type("Twins", (Twins,), {"factory": staticmethod(factory)})


def run_twins(factory: Factory, *, examples: int = 100, steps: int = 40) -> None:
    """Take `steps` steps with each of `examples` new pairs of stores; raise where they differ."""
    run_state_machine_as_test(
        twin_machine(factory),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
