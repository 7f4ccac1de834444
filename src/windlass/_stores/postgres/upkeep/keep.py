"""What the keeper does: lead, promote, prune; and the settings of queues that it goes by."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Struct

from ...._model.queue import QueueSettings, Retention
from ...._model.record import KINDS, StoredRecord
from ...._model.state import State
from ...._model.task import TaskId
from ...._policy.order.lanes import changes_lanes
from ...rules.successors import abandon
from ..queue_layout import Environment, read_settings
from ..rule_player import delete_dead, run
from ..script import Ask, Script, ask, value
from ..unit_of_work import UnitOfWork

KEYS_AT_ONCE = 1000
"""Keys that one transaction deletes, so that a day's worth of them does not hold up everybody else."""

SPAN = timedelta(days=1)
"""What a partition of the history holds."""

EVER = datetime(1970, 1, 1, tzinfo=UTC)
_ALL_EVERY = timedelta(hours=1)
_encoder = msgspec.json.Encoder()
_IN_HISTORY = (State.CANCELLED, State.COMPLETED)


def lead(clock: datetime | None, holder: str, lease_for: timedelta) -> Ask:
    """Take, keep or give up the lead; a row says that it was taken or kept."""
    return Ask("lead", (clock, holder, lease_for)) if lease_for else Ask("resign", (holder,))


def promote(clock: datetime | None, limit: int) -> Ask:
    """Make due tasks ready, earliest first."""
    return Ask("promote", (clock, max(limit, 0)))


# -- prune -------------------------------------------------------------------------------------------


class Term(Struct, frozen=True):
    """How long tasks that ended so are kept: of these queues, or of all but these."""

    state: State
    kept: timedelta | None
    queues: tuple[str, ...]
    others: bool


def terms(retention: Retention, settings: Sequence[QueueSettings]) -> list[Term]:
    """The keeper's own retention for every queue that has none of its own, and theirs for those that do."""
    own = {one.name: one.retention for one in settings if one.retention is not None}
    whole = [_term(state, retention, tuple(sorted(own)), others=True) for state in State]
    apart = [_term(state, kept, (name,), others=False) for name, kept in own.items() for state in State]
    return [term for term in whole + apart if term is not None]


def _term(state: State, retention: Retention, queues: tuple[str, ...], *, others: bool) -> Term | None:
    kept: Mapping[State, timedelta | None] = {
        State.COMPLETED: retention.completed,
        State.CANCELLED: retention.cancelled,
        State.DEAD: retention.dead,
    }
    return Term(state, kept[state], queues, others) if state in kept else None


def longest(every: Sequence[Term]) -> timedelta | None:
    """For how long the history keeps anything; None: for ever."""
    kept = [term.kept for term in every if term.state in _IN_HISTORY]
    return None if None in kept else max(one for one in kept if one is not None)


def by_row(term: Term, whole: timedelta | None) -> bool:
    """Whether these tasks go one by one. Those that are kept for about as long as the history's days go with
    them: a day that is dropped whole costs nothing, and nothing has to be cleaned up after it."""
    if term.kept is None:
        return False
    return term.state is State.DEAD or whole is None or term.kept < 2 * SPAN or term.kept + 2 * SPAN < whole


def before(now: datetime, kept: timedelta) -> datetime | None:
    """What ended before this may go; None for a time before the calendar's."""
    try:
        return now - kept
    except OverflowError:
        return None


class Horizons:
    """How far each term was pruned, so that what stays on is not gone through every time."""

    def __init__(self) -> None:
        self._reached: dict[Term, datetime] = {}
        self._all_at = EVER

    def since(self, term: Term, now: datetime) -> datetime:
        """From when on there may be something to prune; now and then everything is looked at."""
        if not self._all_at <= now < self._all_at + _ALL_EVERY:
            self._reached.clear()
            self._all_at = now
        return self._reached.get(term, EVER)

    def reached(self, term: Term, horizon: datetime) -> None:
        """Nothing before this is left."""
        self._reached[term] = horizon


class Pruned(Struct, frozen=True):
    """How many went, and the instant before which none of the term is left; None if some may be."""

    number: int
    horizon: datetime | None = None


def prune_rows(env: Environment, term: Term, now: datetime, limit: int, since: datetime) -> Script[Pruned]:
    """Delete up to so many tasks of a term that are past it, of those that ended since."""
    horizon = None if term.kept is None else before(now, term.kept)
    if horizon is None:
        return Pruned(0)
    asked = (term.state.value, horizon, list(term.queues), term.others, limit)
    if term.state is State.DEAD:
        rows = yield from ask("expired_dead", *asked)
    else:
        yield from ask("look_by_block")
        rows = yield from ask("expired", *asked, since)
    ids = [row[0] for row in rows]
    if ids and term.state is State.DEAD:
        yield from _prune_dead(env, ids, now)
    elif ids:
        yield from ask("forget_ended", ids)
        yield from ask("forget_about", ids)
    if len(ids) == limit or (yield from value("awaited_past", horizon)):
        return Pruned(len(ids))
    return Pruned(len(ids), horizon)


def _prune_dead(env: Environment, ids: Sequence[TaskId], now: datetime) -> Script[None]:
    unit = UnitOfWork(now)
    yield from unit.load(ids)
    for task_id in ids:
        yield from run(env, unit, abandon(unit, task_id, "died and was pruned"))
    yield from unit.flush()
    yield from delete_dead(ids)


def prune_keys(clock: datetime | None) -> Ask:
    """Delete some of the keys that have expired; a row for each."""
    return Ask("prune_keys", (clock, KEYS_AT_ONCE))


# -- records ---------------------------------------------------------------------------------------


def put_record(record: StoredRecord) -> Script[None]:
    """Keep a record in place of the one before."""
    yield from ask("put_record", KINDS[type(record)], record.name, _encoder.encode(record).decode())


# -- queues ------------------------------------------------------------------------------------------


def all_settings() -> Ask:
    """The settings of every queue that has any."""
    return Ask("all_queues")


def put_queue(clock: datetime | None, settings: QueueSettings) -> Script[bool]:
    """Keep a queue's settings in place of the ones before; says whether its tasks change lanes."""
    before = yield from value("queue_settings", settings.name)
    text = _encoder.encode(settings).decode()
    yield from ask(
        "put_queue", settings.name, settings.paused, settings.stripes, text, settings.is_laned, clock
    )
    yield from ask("wake", [settings.name])
    moved = changes_lanes(None if before is None else read_settings(before), settings)
    if moved:
        yield from ask("mark_moving", [settings.name])
    return moved


def remove_queue(clock: datetime | None, name: str) -> Script[bool]:
    """Forget a queue's settings; says whether there were any. It may have been paused."""
    before = yield from value("queue_settings", name)
    removed = yield from value("remove_queue", name, clock)
    if before is not None and changes_lanes(read_settings(before), None):
        yield from ask("mark_moving", [name])
    yield from ask("wake", [name])
    return removed is not None
