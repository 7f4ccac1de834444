"""Prune: delete ended tasks and expired keys that retention no longer covers.

Daily partitions of the history are dropped whole as far as possible, which costs nothing and leaves nothing
to vacuum. Row by row go dead tasks, tasks that are kept for much shorter than the history's longest
retention, and those in the default partition, which is never dropped.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from ...._model.options import DeclaredType
from ...._model.queue import Retention
from ...._model.record import ARCHIVE_NAME, KINDS, Archive
from ...._model.state import ENDED, State
from ...._model.task import TaskId
from ...._model.transition import Pruned, TaskTransition, pruned_counts
from ...records import read_archive, readable, reader
from ...rules.cancellation import pruned
from ...rules.retention import RetentionRules, archived
from ...rules.successors import abandon
from ..database import Database
from ..queue_layout import Environment, read_settings
from ..rows import HISTORY
from ..rule_player import delete_dead, delete_ended, run
from ..script import Query, Script, fetch
from ..statements import statement
from ..unit_of_work import UnitOfWork
from . import partitions

KEYS_AT_ONCE = 1000
"""Keys that one transaction deletes, so that a day's worth of them does not block others for long."""

_DAY = timedelta(days=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STEP_BACK_EVERY = timedelta(hours=1)
_TYPES = KINDS[DeclaredType]
_read_type = reader(DeclaredType)


class KeepRule(Struct, frozen=True):
    """How long ended tasks are kept (None: for ever).

    Those of these queues, or of all others; and of these types, or of all others. `table`: where rows of the
    history are deleted one by one; the others go with their day.
    """

    state: State
    keep_for: timedelta | None
    queues: tuple[str, ...] = ()
    in_queues: bool = False
    types: tuple[str, ...] = ()
    in_types: bool = False
    table: str = "history"


class PrunedRows(Struct, frozen=True):
    """The queues of the tasks deleted, the successors cancelled with them, and how far a rule was applied.

    `horizon` is the instant before which no task is left; None if some may be.
    """

    queues: Sequence[str] = ()
    transitions: Sequence[TaskTransition] = ()
    horizon: datetime | None = None


class Pruner:
    """Prunes for one store, and remembers how far, so that what is kept longer is not scanned every time.

    The whole history is scanned when a process first prunes, and by rules that are new. Once an hour a day
    is scanned again, for tasks that were locked or not committed yet.
    """

    def __init__(self) -> None:
        self._horizons: dict[KeepRule, datetime] = {}
        self._stepped_back_at = _EPOCH

    async def prune(self, database: Database, default: Retention, now: datetime, limit: int) -> Pruned:
        """Delete up to `limit` tasks besides whole days, and all expired keys; return what was deleted."""
        queues = await database.fetch(Query("all_queues"))
        settings = readable(read_settings, (row[0] for row in queues))
        declared = await database.fetch(Query("all_records", (_TYPES,)))
        types = readable(_read_type, (row[0] for row in declared))
        kept = keep_rules(RetentionRules(default, settings, types))
        longest = _longest(kept)
        rules = [
            rule if _goes_by_row(rule, longest) else replace(rule, table=partitions.REST) for rule in kept
        ]
        self._step_back(rules, now)
        archive = await _archive(database)
        numbers = await _drop_days(database, now, longest, archive)
        transitions: list[TaskTransition] = []
        for rule in rules:
            room = limit - numbers.total()
            if room > 0 and rule.keep_for is not None:
                since = self._horizons.get(rule, _EPOCH)
                prune = partial(_prune_rows, database.env, rule, archive, now, room, since)
                done = await database.play(prune)
                if done.horizon is not None:
                    self._horizons[rule] = done.horizon
                numbers.update((queue, rule.state) for queue in done.queues)
                transitions += done.transitions
        keys = Query("prune_keys", (database.env.clock, KEYS_AT_ONCE))
        while len(await database.fetch(keys)) == KEYS_AT_ONCE:
            continue
        return Pruned(counts=pruned_counts(numbers), transitions=tuple(transitions))

    def _step_back(self, rules: Sequence[KeepRule], now: datetime) -> None:
        """Forget other rules' horizons, and how far the last day was pruned, once an hour."""
        if now < self._stepped_back_at:  # The clock was set back.
            self._horizons.clear()
        is_due = not self._stepped_back_at <= now < self._stepped_back_at + _STEP_BACK_EVERY
        step = _DAY if is_due else timedelta(0)
        self._horizons = {
            rule: max(self._horizons[rule] - step, _EPOCH) for rule in rules if rule in self._horizons
        }
        if is_due:
            self._stepped_back_at = now


# -- retention ---------------------------------------------------------------------------------------


def keep_rules(retention: RetentionRules) -> list[KeepRule]:
    """Return disjoint rules that cover every task: one for each state, time and source of the time."""
    queues, types = tuple(sorted(retention.queues)), tuple(sorted(retention.types))
    rules: list[KeepRule] = []
    for state in sorted(ENDED):
        default = retention.default.period(state)
        rules.append(KeepRule(state, default, queues=queues, types=types))
        for keep_for, names in _by_period(retention.types, state).items():
            rules.append(KeepRule(state, keep_for, queues=queues, types=names, in_types=True))
        for keep_for, names in _by_period(retention.queues, state).items():
            rules.append(KeepRule(state, keep_for, queues=names, in_queues=True))
    return rules


def _by_period(own: Mapping[str, Retention], state: State) -> dict[timedelta | None, tuple[str, ...]]:
    """Group names by how long their tasks are kept after they end in this state."""
    names: dict[timedelta | None, list[str]] = {}
    for name in sorted(own):
        names.setdefault(own[name].period(state), []).append(name)
    return {keep_for: tuple(found) for keep_for, found in names.items()}


def _longest(rules: Sequence[KeepRule]) -> timedelta | None:
    """Return how long the history keeps anything; None: for ever."""
    periods = [rule.keep_for for rule in rules if rule.state in HISTORY]
    return None if None in periods else max(period for period in periods if period is not None)


def _goes_by_row(rule: KeepRule, longest: timedelta | None) -> bool:
    """Whether tasks are deleted row by row and not with their day."""
    if rule.state is State.DEAD or longest is None or rule.keep_for is None:
        return True
    return rule.keep_for < 2 * _DAY or rule.keep_for + 2 * _DAY < longest


def _horizon(now: datetime, keep_for: timedelta) -> datetime | None:
    """Return the instant before which tasks may be deleted; None if it is before the year 1."""
    try:
        return now - keep_for
    except OverflowError:
        return None


# -- deletion ----------------------------------------------------------------------------------------


async def _archive(database: Database) -> Archive | None:
    """Return how far history was archived; None if archiving is off."""
    rows = await database.fetch(Query("get_record", (KINDS[Archive], ARCHIVE_NAME)))
    return read_archive(rows[0][0]) if rows else None


async def _drop_days(
    database: Database, now: datetime, longest: timedelta | None, archive: Archive | None
) -> Counter[tuple[str, State]]:
    with database.connections.translated_errors():
        await partitions.prepare(database.connections, now)
        horizon = None if longest is None or longest < 2 * _DAY else archived(_horizon(now, longest), archive)
        return (
            Counter()
            if horizon is None
            else await partitions.drop_before(database.connections, horizon.date())
        )


def _prune_rows(
    env: Environment, rule: KeepRule, archive: Archive | None, now: datetime, limit: int, since: datetime
) -> Script[PrunedRows]:
    """Delete up to `limit` tasks that a rule no longer keeps, of those that ended since."""
    horizon = None if rule.keep_for is None else archived(_horizon(now, rule.keep_for), archive)
    if horizon is None:
        return PrunedRows()
    in_queues, in_types = (list(rule.queues), rule.in_queues), (list(rule.types), rule.in_types)
    parameters = (rule.state.value, horizon, since, *in_queues, *in_types)
    transitions: Sequence[TaskTransition] = ()
    if rule.state is State.DEAD:
        first_left = Query("first_left_dead", parameters)
        rows = yield from fetch("expired_dead", *parameters, limit)
        ids, queues = [row[0] for row in rows], [row[1] for row in rows]
        if ids:
            transitions = yield from _prune_dead(env, ids, now)
    else:
        yield from fetch("allow_scans")
        first_left = Query("first_left", parameters, statement("first_left", env.schema, table=rule.table))
        expired = statement("expired", env.schema, table=rule.table)
        rows = yield Query("expired", (*parameters, limit), expired)
        ids = [row[0] for row in rows]
        queues = yield from delete_ended(ids)
    if len(ids) == limit:
        return PrunedRows(queues, transitions)
    # Not before the oldest that is left, or it would not be looked for when nobody needs it any more.
    ((left,),) = (yield first_left) or ((None,),)
    return PrunedRows(queues, transitions, left or horizon)


def _prune_dead(env: Environment, ids: Sequence[TaskId], now: datetime) -> Script[Sequence[TaskTransition]]:
    unit = UnitOfWork(now, env.layout)
    yield from unit.load(ids)
    for task_id in ids:
        yield from run(env, unit, abandon(unit, task_id, pruned()))
    yield from unit.flush()
    yield from delete_dead(ids)
    return unit.transitions
