"""Prune: delete ended tasks and expired keys that retention no longer covers.

Daily partitions of the history are dropped whole as far as possible, which costs nothing and leaves nothing
to vacuum. Row by row go dead tasks, and tasks that are kept for much shorter than the history's longest
retention.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial

from msgspec import Struct

from ...._model.queue import QueueSettings, Retention
from ...._model.state import State
from ...._model.step import Pruned, Step, pruned_counts
from ...._model.task import TaskId
from ...rules.successors import abandon
from ..database import Database
from ..queue_layout import Environment, read_settings
from ..rows import HISTORY
from ..rule_player import delete_dead, run
from ..script import Query, Script, fetch, value
from ..unit_of_work import UnitOfWork
from . import partitions

KEYS_AT_ONCE = 1000
"""Keys that one transaction deletes, so that a day's worth of them does not block others for long."""

_DAY = timedelta(days=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FULL_SCAN_EVERY = timedelta(hours=1)


class KeepRule(Struct, frozen=True):
    """How long ended tasks are kept (None: for ever): those of these queues, or of all others."""

    state: State
    keep_for: timedelta | None
    queues: tuple[str, ...]
    others: bool


class PrunedRows(Struct, frozen=True):
    """The queues of the tasks deleted, the successors cancelled with them, and how far a rule was applied.

    `horizon` is the instant before which no task is left; None if some may be.
    """

    queues: Sequence[str] = ()
    steps: Sequence[Step] = ()
    horizon: datetime | None = None


class Pruner:
    """Prunes for one store, and remembers how far, so that what is kept is not scanned every time."""

    def __init__(self) -> None:
        self._horizons: dict[KeepRule, datetime] = {}
        self._full_scan_at = _EPOCH

    async def prune(self, database: Database, retention: Retention, now: datetime, limit: int) -> Pruned:
        """Delete up to `limit` tasks besides whole days, and all expired keys; return what was deleted."""
        settings = [read_settings(row[0]) for row in await database.fetch(Query("all_queues"))]
        rules = keep_rules(retention, settings)
        longest = _longest(rules)
        numbers = await _drop_days(database, now, longest)
        steps: list[Step] = []
        for rule in rules:
            room = limit - numbers.total()
            if room > 0 and _goes_by_row(rule, longest):
                prune = partial(_prune_rows, database.env, rule, now, room, self._since(rule, now))
                done = await database.play(prune)
                if done.horizon is not None:
                    self._horizons[rule] = done.horizon
                numbers.update((queue, rule.state) for queue in done.queues)
                steps += done.steps
        keys = Query("prune_keys", (database.env.clock, KEYS_AT_ONCE))
        while len(await database.fetch(keys)) == KEYS_AT_ONCE:
            continue
        return Pruned(counts=pruned_counts(numbers), steps=tuple(steps))

    def _since(self, rule: KeepRule, now: datetime) -> datetime:
        """Return from when on there may be tasks to prune; everything is scanned once an hour."""
        if not self._full_scan_at <= now < self._full_scan_at + _FULL_SCAN_EVERY:
            self._horizons.clear()
            self._full_scan_at = now
        return self._horizons.get(rule, _EPOCH)


# -- retention ---------------------------------------------------------------------------------------


def keep_rules(retention: Retention, settings: Sequence[QueueSettings]) -> list[KeepRule]:
    """Return the rules for queues with a retention of their own, after those for all others."""
    own = {one.name: one.retention for one in settings if one.retention is not None}
    every = [(retention, tuple(sorted(own)), True), *((kept, (name,), False) for name, kept in own.items())]
    return [
        KeepRule(state, keep_for, queues, others)
        for kept, queues, others in every
        for state, keep_for in (
            (State.COMPLETED, kept.completed),
            (State.CANCELLED, kept.cancelled),
            (State.DEAD, kept.dead),
        )
    ]


def _longest(rules: Sequence[KeepRule]) -> timedelta | None:
    """Return how long the history keeps anything; None: for ever."""
    periods = [rule.keep_for for rule in rules if rule.state in HISTORY]
    return None if None in periods else max(period for period in periods if period is not None)


def _goes_by_row(rule: KeepRule, longest: timedelta | None) -> bool:
    """Whether tasks are deleted row by row and not with their day."""
    if rule.keep_for is None or rule.state is State.DEAD or longest is None:
        return rule.keep_for is not None
    return rule.keep_for < 2 * _DAY or rule.keep_for + 2 * _DAY < longest


def _horizon(now: datetime, keep_for: timedelta) -> datetime | None:
    """Return the instant before which tasks may be deleted; None if it is before the year 1."""
    try:
        return now - keep_for
    except OverflowError:
        return None


# -- deletion ----------------------------------------------------------------------------------------


async def _drop_days(
    database: Database, now: datetime, longest: timedelta | None
) -> Counter[tuple[str, State]]:
    with database.connections.translated_errors():
        await partitions.prepare(database.connections, now)
        horizon = None if longest is None or longest < 2 * _DAY else _horizon(now, longest)
        return (
            Counter()
            if horizon is None
            else await partitions.drop_before(database.connections, horizon.date())
        )


def _prune_rows(
    env: Environment, rule: KeepRule, now: datetime, limit: int, since: datetime
) -> Script[PrunedRows]:
    """Delete up to `limit` tasks that a rule no longer keeps, of those that ended since."""
    horizon = None if rule.keep_for is None else _horizon(now, rule.keep_for)
    if horizon is None:
        return PrunedRows()
    parameters = (rule.state.value, horizon, list(rule.queues), rule.others, limit)
    if rule.state is State.DEAD:
        rows = yield from fetch("expired_dead", *parameters)
    else:
        yield from fetch("allow_scans")
        rows = yield from fetch("expired", *parameters, since)
    ids, queues = [row[0] for row in rows], [row[1] for row in rows]
    steps: Sequence[Step] = ()
    if ids and rule.state is State.DEAD:
        steps = yield from _prune_dead(env, ids, now)
    elif ids:
        yield from fetch("delete_ended", ids)
        yield from fetch("delete_attempts_and_keys", ids)
    if len(ids) == limit or (yield from value("any_awaited_before", horizon)):
        return PrunedRows(queues, steps)
    return PrunedRows(queues, steps, horizon)


def _prune_dead(env: Environment, ids: Sequence[TaskId], now: datetime) -> Script[Sequence[Step]]:
    unit = UnitOfWork(now)
    yield from unit.load(ids)
    for task_id in ids:
        yield from run(env, unit, abandon(unit, task_id, "died and was pruned"))
    yield from unit.flush()
    yield from delete_dead(ids)
    return unit.steps
