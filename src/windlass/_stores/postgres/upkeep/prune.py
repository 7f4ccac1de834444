"""Prune: delete ended tasks and expired keys that retention no longer covers.

Daily partitions of the history are dropped whole as far as possible, which costs nothing and leaves nothing
to vacuum. Row by row go dead tasks, tasks that are kept for much shorter than the history's longest
retention, and those in the default partition, which is never dropped.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

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
from ..script import Query, Script, fetch, value
from ..statements import statement
from ..unit_of_work import UnitOfWork
from . import partitions

KEYS_AT_ONCE = 1000
"""Keys that one transaction deletes, so that a day's worth of them does not block others for long."""

MOST_LEFT = 10_000
"""Tasks whose ids are remembered when a prune has left them. If there are more, it scans for them again."""

_DAY = timedelta(days=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SINCE, _AMONG = "h.finished_at >= $3", "h.id = ANY ($3::uuid[])"  # what a prune looks at
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


class Reached(Struct, frozen=True):
    """How far a rule was applied: to all tasks that ended before an instant, but for those that were left.

    Others need these, or have locked them.
    """

    before: datetime = _EPOCH
    left: tuple[TaskId, ...] = ()


class PrunedRows(Struct, frozen=True):
    """How far a rule is applied now, the queues of the tasks deleted, and successors cancelled with them."""

    reached: Reached
    queues: Sequence[str] = ()
    transitions: Sequence[TaskTransition] = ()


class Pruner:
    """Prunes for one store, and remembers how far, so that what is kept longer is not scanned every time.

    The whole history is scanned when a process first prunes, and by rules that are new. Once an hour a day
    is scanned again, for tasks that were not committed yet. Tasks that were left are looked up by their ids.
    """

    def __init__(self) -> None:
        self._reached: dict[KeepRule, Reached] = {}
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
                reached = self._reached.get(rule, Reached())
                prune = partial(_prune_rows, database.env, rule, archive, now, room, reached)
                done = await database.play(prune)
                self._reached[rule] = done.reached
                numbers.update((queue, rule.state) for queue in done.queues)
                transitions += done.transitions
        keys = Query("prune_keys", (database.env.clock, KEYS_AT_ONCE))
        while len(await database.fetch(keys)) == KEYS_AT_ONCE:
            continue
        return Pruned(counts=pruned_counts(numbers), transitions=tuple(transitions))

    def _step_back(self, rules: Sequence[KeepRule], now: datetime) -> None:
        """Forget how far other rules were applied, and the last day of all, once an hour."""
        if now < self._stepped_back_at:  # The clock was set back.
            self._reached.clear()
        is_due = not self._stepped_back_at <= now < self._stepped_back_at + _STEP_BACK_EVERY
        step = _DAY if is_due else timedelta(0)
        self._reached = {
            rule: replace(reached, before=max(reached.before - step, _EPOCH))
            for rule in rules
            if (reached := self._reached.get(rule)) is not None
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
    env: Environment, rule: KeepRule, archive: Archive | None, now: datetime, limit: int, reached: Reached
) -> Script[PrunedRows]:
    """Delete up to `limit` tasks that a rule no longer keeps, of those that it was not applied to yet."""
    horizon = None if rule.keep_for is None else archived(_horizon(now, rule.keep_for), archive)
    if horizon is None:
        return PrunedRows(reached)
    if rule.state is State.DEAD:
        return (yield from _prune_dead(env, rule, horizon, now, limit, reached))
    queues: list[str] = []
    left: list[TaskId] = []
    looks: list[tuple[str, object]] = [(_SINCE, reached.before)]
    if reached.left:
        looks.insert(0, (_AMONG, reached.left))
    for looked_at, start in looks:
        if looked_at == _SINCE:
            yield from fetch("allow_scans")
        slots = {"table": rule.table, "looked_at": looked_at}
        parameters, room = _parameters(rule, horizon, start), limit - len(queues)
        rows = yield Query("expired", (*parameters, room), statement("expired", env.schema, **slots))
        queues += yield from delete_ended([row[0] for row in rows])
        if len(rows) == room:
            return PrunedRows(reached, queues)
        find_left = statement("left_expired", env.schema, **slots)
        left += [row[0] for row in (yield Query("left_expired", (*parameters, MOST_LEFT + 1), find_left))]
    if len(left) > MOST_LEFT:
        return PrunedRows(reached, queues)
    return PrunedRows(Reached(horizon, tuple(dict.fromkeys(left))), queues)


def _prune_dead(
    env: Environment, rule: KeepRule, horizon: datetime, now: datetime, limit: int, reached: Reached
) -> Script[PrunedRows]:
    parameters = _parameters(rule, horizon, reached.before)
    rows = yield from fetch("expired_dead", *parameters, limit)
    ids, queues = [row[0] for row in rows], [row[1] for row in rows]
    unit = UnitOfWork(now, env.layout)
    if ids:
        yield from unit.load(ids)
        for task_id in ids:
            yield from run(env, unit, abandon(unit, task_id, pruned()))
        yield from unit.flush()
        yield from delete_dead(ids)
    if len(ids) < limit:  # Not beyond the first that others have locked: an index finds it again.
        reached = Reached((yield from value("first_left_dead", *parameters)) or horizon)
    return PrunedRows(reached, queues, unit.transitions)


def _parameters(rule: KeepRule, horizon: datetime, start: object) -> tuple[Any, ...]:
    """Return the parameters that tell what of the tasks looked at from a start on is to be pruned."""
    queues, types = list(rule.queues), list(rule.types)
    return rule.state.value, horizon, start, queues, rule.in_queues, types, rule.in_types
