"""Single steps of the twins: each verb of a store, at random, in any order."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, ClassVar, TypeAlias

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
)
from msgspec.structs import replace

from ..._model.filter import Action, By, CancelTasks, Dimension, Discard, Expire, Filter, Page, Replay
from ..._model.lease import Claim, Claimed, Heartbeat, Lease
from ..._model.options import DeclaredType
from ..._model.queue import Ordering, QueueSettings, Retention, Window
from ..._model.record import ARCHIVE_NAME, Archive, Session, Worker
from ..._model.state import State
from ..._model.task import NewTask, Progress, TaskId
from ..._model.verdict import Settlement
from ..._policy.failure import failure_of
from ..._store.protocol import Store
from ..._stores.memory import MemoryStore
from ..clock import START
from .pair import Factory, Pair, Refusal
from .steps import BOOM, ENDINGS, OPERATOR, a_task, complete, retry, snooze

LEASE = timedelta(seconds=10)
EVERY = 1000
SESSIONS = ("s1", "s2", "s3")
QUEUES = ("a", "b")
FIRST_MINUTE = Window(opens=0, closes=1)
OVER_MIDNIGHT = Window(opens=2, closes=1, zone="Asia/Kathmandu")


Types: TypeAlias = tuple[str, ...] | None
sessions = st.sampled_from(SESSIONS)
type_sets = st.sampled_from([None, None, ("x",), ("y", "mail.send"), ()])
queue_sets = st.sampled_from([("a",), ("b",), ("a", "b"), ("b", "a")])
endings = st.sampled_from(
    [
        *ENDINGS,
        "complete with a successor",
        "complete with a unique successor",
        "complete with progress",
        "retry later",
        "retry with progress",
        "snooze for longer",
        "complete with notes",
        "retry with notes",
    ]
)
seconds = st.sampled_from([0, 0.0004, 1, 3, 10, 60])
MICROSECOND = timedelta(microseconds=1)
delays = st.sampled_from([None, timedelta(0), timedelta(seconds=1), timedelta(seconds=5)])
new_tasks = st.fixed_dictionaries(
    {"queue": st.sampled_from(QUEUES), "priority": st.sampled_from([0, 0, 2, -2])},
    optional={
        "type": st.sampled_from(["x", "y"]),
        "tenant": st.sampled_from(["", "t"]),
        "delay": delays,
        "expires_in": st.sampled_from(
            [timedelta(microseconds=1), timedelta(seconds=1), timedelta(seconds=8)]
        ),
        "idempotency_key": st.sampled_from(["k1", "k2"]),
        "idempotency_digest": st.sampled_from(["", "other"]),
        "idempotency_for": st.sampled_from([None, timedelta(seconds=20)]),
        "fingerprint": st.sampled_from(["f1", "f2"]),
        "unique_for": st.sampled_from([None, timedelta(seconds=20)]),
    },
)
filters = st.builds(
    Filter,
    states=st.none() | st.lists(st.sampled_from(State), max_size=3, unique=True).map(tuple),
    queues=st.none() | queue_sets,
    types=st.none() | st.just(("x",)),
    tenants=st.none() | st.just(("t",)),
    idempotency_key=st.none() | st.just("k1"),
    chained=st.booleans(),
    error=st.none() | st.just("boo"),
    failures=st.none() | st.sampled_from([("",), (failure_of("x", BOOM),), ("", failure_of("y", BOOM))]),
    expires_before=st.none() | st.sampled_from([START + timedelta(seconds=5), START + timedelta(days=1)]),
)
actions: st.SearchStrategy[Action] = st.sampled_from(
    [
        CancelTasks(by=OPERATOR),
        CancelTasks(by=By(who="bob")),
        Replay(by=OPERATOR),
        Replay(by=OPERATOR, payload=b"{}", fingerprint="f2"),
        Replay(by=OPERATOR, run_at=START + timedelta(seconds=5), interval=timedelta(seconds=3)),
        Discard(by=OPERATOR),
        Expire(),
    ]
)
terms = st.sampled_from([None, timedelta(0), timedelta(seconds=20)])
retentions = st.builds(Retention, completed=terms, cancelled=terms, dead=terms)


class RandomSteps(RuleBasedStateMachine):
    """Single steps, and helpers for the scenarios. Workers are three sessions.

    Aimed steps run in lanes: queues that no other step uses.
    """

    factory: ClassVar[Factory] = staticmethod(lambda clock: MemoryStore(clock=clock))
    leases: Bundle[Lease] = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair(type(self).factory)
        self.ids: list[TaskId] = []
        self.lanes = 0
        self.claims = dict.fromkeys(SESSIONS, 0)
        self.held: dict[str, dict[TaskId, Lease]] = {session: {} for session in SESSIONS}

    def teardown(self) -> None:
        """Close the stores of this example."""
        self.pair.close()

    @invariant()
    def everything_is_equal(self) -> None:
        """Compare after every step."""
        self.pair.compare()

    # -- helpers ---------------------------------------------------------------------------------------

    def _wish(self, **fields: Any) -> NewTask:
        number = len(self.ids) + 1
        self.ids.append(f"{number:08x}-0000-7000-8000-{number:012x}")
        return a_task(id=self.ids[-1], **fields)

    def _enqueue(self, *batch: NewTask) -> None:
        self.pair.both(lambda store: store.enqueue(batch))

    def _lane(self, number: int = 1, **fields: Any) -> tuple[str, list[NewTask]]:
        """Fill a new queue with tasks, each waiting for the one before."""
        self.lanes += 1
        lane = f"lane-{self.lanes}"
        batch: list[NewTask] = []
        for _ in range(number):
            batch.append(self._wish(queue=lane, after=tuple(new.id for new in batch[-1:]), **fields))
        self._enqueue(*batch)
        return lane, batch

    def _start(self, number: int = 1, **fields: Any) -> tuple[str, list[NewTask], Lease]:
        """Fill a new queue as `_lane` does, and let worker s1 claim the first task."""
        lane, batch = self._lane(number, **fields)
        self._open("s1")
        (lease,) = self._claim("s1", 1, lane)
        return lane, batch, lease

    def _open(self, session: str) -> None:
        self._beat(session, tuple(self.held[session].values()), opening=True)

    def _beat(self, session: str, held: Sequence[Lease], **changes: Any) -> None:
        fields = {"session": session, "worker": Worker(name=f"w-{session}"), "lease_for": LEASE}
        beat = Heartbeat(**{**fields, "held": tuple(held), **changes})
        self.pair.both(lambda store: store.heartbeat(beat))

    def _ask(self, session: str, limit: int, *queues: str, types: Types = None) -> Claim:
        self.claims[session] += 1
        number = self.claims[session]
        return Claim(session=session, queues=queues, limit=limit, number=number, types=types)

    def _claim(self, session: str, limit: int, *queues: str, types: Types = None) -> list[Lease]:
        claim = self._ask(session, limit, *queues, types=types)
        return self._learn(session, self.pair.both(lambda store: store.claim(claim)))

    def _learn(self, session: str, result: Iterable[Claimed] | Refusal) -> list[Lease]:
        got = [] if isinstance(result, Refusal) else [claimed.lease for claimed in result]
        self.held[session].update({lease.task_id: lease for lease in got})
        return got

    def _rescue(self, session: str) -> list[Lease]:
        async def rescue(store: Store) -> list[Claimed]:
            return sorted(await store.rescue(session, EVERY), key=lambda one: one.task.id)

        return self._learn(session, self.pair.both(rescue))

    def _settlement(self, lease: Lease, ending: str) -> Settlement:
        for held in self.held.values():
            if held.get(lease.task_id) == lease:
                del held[lease.task_id]
        match ending:
            case "complete with a successor":
                return complete(lease, b"1", self._wish(queue="a", root=lease.task_id))
            case "complete with a unique successor":
                unique = {"fingerprint": "f1", "unique_for": timedelta(seconds=20)}
                return complete(lease, b"1", self._wish(queue="a", root=lease.task_id, **unique))
            case "retry later":
                return retry(lease, timedelta(seconds=3))
            case "snooze for longer":
                return snooze(lease, timedelta(seconds=3))
            case "complete with notes":
                return replace(complete(lease), notes=b'{"code":200}')
            case "retry with notes":
                return replace(retry(lease), notes=b'{"code":503}')
            case "complete with progress" | "retry with progress":
                return replace(ENDINGS[ending.split(maxsplit=1)[0]](lease), progress=Progress(fraction=1.0))
            case _:
                return ENDINGS[ending](lease)

    def _settle(self, lease: Lease, *several: str) -> None:
        for ending in several:
            settlement = self._settlement(lease, ending)
            self.pair.both(lambda store, one=settlement: store.settle([one]))  # type: ignore[misc]  # bound now

    def _apply(self, action: Action, *ids: TaskId) -> None:
        self.pair.both(lambda store: store.apply(action, Filter(ids=ids), EVERY))

    # -- steps at random -------------------------------------------------------------------------------

    @initialize(target=leases)
    def begin(self) -> Lease:
        """Enqueue a task and claim it."""
        _, _, lease = self._start()
        return lease

    @rule(batch=st.lists(new_tasks, min_size=1, max_size=4), behind=st.integers(0, 50), chained=st.booleans())
    def enqueue(self, batch: list[dict[str, Any]], behind: int, *, chained: bool) -> None:
        """Enqueue tasks; the last may wait for an older one, each may wait for the one before."""
        after = (self.ids[-behind],) if 0 < behind <= len(self.ids) else ()
        made: list[NewTask] = []
        for fields in batch:
            before = tuple(new.id for new in made[-1:]) if chained else ()
            made.append(self._wish(**fields, after=before))
        made[-1] = replace(made[-1], after=(*made[-1].after, *after))
        self._enqueue(*made)

    @rule(numbers=st.lists(st.integers(0, 50), min_size=1, max_size=3))
    def enqueue_again(self, numbers: list[int]) -> None:
        """Repeat the ids of existing, deleted or refused tasks."""
        self._enqueue(*(a_task(id=self.ids[n % len(self.ids)], queue="b") for n in numbers))

    @rule(session=sessions, known=st.booleans(), through=st.booleans(), opening=st.booleans())
    def beat(self, session: str, *, known: bool, through: bool, opening: bool) -> None:
        """Send a heartbeat, perhaps from a worker that has forgotten its leases."""
        held = tuple(self.held[session].values()) if known else ()
        self._beat(session, held, opening=opening, through=self.claims[session] if through else 0)

    @rule(target=leases, session=sessions, queues=queue_sets, limit=st.integers(1, 4), types=type_sets)
    def claim(
        self, session: str, queues: tuple[str, ...], limit: int, types: Types
    ) -> MultipleResults[Lease]:
        return multiple(*self._claim(session, limit, *queues, types=types))

    @rule(lease=leases, ending=endings)
    def settle(self, lease: Lease, ending: str) -> None:
        """Settle with a lease that may be stale."""
        self._settle(lease, ending)

    @rule(
        target=leases,
        some=st.lists(leases, max_size=4),
        ending=endings,
        session=sessions,
        queues=queue_sets,
        types=type_sets,
    )
    def settle_and_claim(
        self, some: list[Lease], ending: str, session: str, queues: tuple[str, ...], types: Types
    ) -> MultipleResults[Lease]:
        """Settle several, perhaps one of them twice, and claim in the same call."""
        batch = [self._settlement(lease, ending) for lease in some]
        claim = self._ask(session, 2, *queues, types=types)
        settled = self.pair.both(lambda store: store.settle(batch, claim))
        return multiple(*self._learn(session, settled if isinstance(settled, Refusal) else settled.claimed))

    @rule(lease=leases, key=st.sampled_from(["charge", "mail"]))
    def once(self, lease: Lease, key: str) -> None:
        """Mark a key under a lease that may be stale."""
        self.pair.both(lambda store: store.once(lease, key))

    @rule(by=seconds)
    def advance(self, by: float) -> None:
        self.pair.clock.advance(by)

    @rule(limit=st.integers(1, 3))
    def promote(self, limit: int) -> None:
        self.pair.both(lambda store: store.promote(limit))

    @rule(target=leases, session=sessions)
    def rescue(self, session: str) -> MultipleResults[Lease]:
        """Rescue all at once: the order is not guaranteed."""
        return multiple(*self._rescue(session))

    @rule(name=st.sampled_from(["x", "y"]), retention=st.none() | retentions, alias=st.booleans())
    def declare(self, name: str, retention: Retention | None, *, alias: bool) -> None:
        """Publish a task type, also as a new name of the other one."""
        aliases = ("x" if name == "y" else "y",) if alias else ()
        declared = DeclaredType(name=name, retention=retention, aliases=aliases)
        self.pair.both(lambda store: store.put(declared))

    @rule(name=st.sampled_from(["x", "y"]))
    def retract(self, name: str) -> None:
        """Remove a task type from the store."""
        self.pair.both(lambda store: store.remove(DeclaredType, name))

    @rule(age=st.none() | seconds)
    def archive(self, age: float | None) -> None:
        """Turn archiving off, or note that history was archived up to this long ago."""
        if age is None:
            self.pair.both(lambda store: store.remove(Archive, ARCHIVE_NAME))
        else:
            archive = Archive(until=self.pair.clock.now() - timedelta(seconds=age))
            self.pair.both(lambda store: store.put(archive))

    @rule(retention=retentions)
    def prune(self, retention: Retention) -> None:
        """Prune all at once, for the same reason."""
        self.pair.both(lambda store: store.prune(retention, EVERY))

    @rule(limit=st.sampled_from([1, EVERY]))
    def expire(self, limit: int) -> None:
        """Cancel what has expired, as the keeper does."""
        until = self.pair.clock.now() + timedelta(microseconds=1)
        self.pair.both(lambda store: store.apply(Expire(), Filter(expires_before=until), limit))

    @rule(action=actions, where=filters, limit=st.sampled_from([1, 2, EVERY]))
    def apply(self, action: Action, where: Filter, limit: int) -> None:
        """Apply an operator's action to many tasks."""
        self.pair.both(lambda store: store.apply(action, where, limit))

    @rule(
        name=st.sampled_from(QUEUES),
        paused=st.booleans(),
        retention=st.none() | retentions,
        ageing=st.sampled_from([None, timedelta(seconds=1), timedelta(minutes=1)]),
        windows=st.sampled_from([(), (), (FIRST_MINUTE,), (FIRST_MINUTE, OVER_MIDNIGHT)]),
    )
    def put(
        self,
        name: str,
        retention: Retention | None,
        ageing: timedelta | None,
        windows: tuple[Window, ...],
        *,
        paused: bool,
    ) -> None:
        """Pause or resume a queue, or change its retention, its ageing or its windows."""
        settings = QueueSettings(
            name=name, paused=paused, retention=retention, ordering=Ordering(ageing=ageing), windows=windows
        )
        self.pair.both(lambda store: store.put(settings))

    @rule(name=st.sampled_from(QUEUES), paused=st.booleans(), expected=st.sampled_from([None, True, False]))
    def put_if_unchanged(self, name: str, *, paused: bool, expected: bool | None) -> None:
        """Pause or resume a queue if its settings are as expected: absent, or only paused or not."""
        before = None if expected is None else QueueSettings(name=name, paused=expected)
        after = QueueSettings(name=name, paused=paused)
        self.pair.both(lambda store: store.put(after, OPERATOR, before))

    @rule(kind_and_name=st.sampled_from([(QueueSettings, "a"), (Session, "s1"), (Session, "s2")]))
    def remove(self, kind_and_name: tuple[Any, str]) -> None:
        """Remove settings, or a session that may hold leases."""
        self.pair.both(lambda store: store.remove(*kind_and_name))

    @rule(holder=st.sampled_from(["k1", "k2"]), term=st.sampled_from([timedelta(0), LEASE]))
    def lead(self, holder: str, term: timedelta) -> None:
        """Two keepers compete for the lead."""
        self.pair.both(lambda store: store.lead(holder, term))

    @rule(where=filters, limit=st.integers(1, 5), at=st.integers(0, 50), newest_first=st.booleans())
    def find(self, where: Filter, limit: int, at: int, *, newest_first: bool) -> None:
        """Read a page, and count."""
        page = Page(
            limit=limit, cursor=self.ids[at % len(self.ids)] if at else None, newest_first=newest_first
        )
        self.pair.both(lambda store: store.find(where, page))
        self.pair.both(lambda store: store.count(where, (Dimension.TYPE, Dimension.STATE)))
