"""Replay many tasks: at once, or one after another while their queues are open."""

from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from ..._model.filter import Filter, Replay
from ..._model.queue import QueueSettings, Window
from ..._model.state import REPLAYABLE, State
from ..._model.task import MAX_DELAY
from ..._policy.input.quote import counted, quoted
from ..._policy.input.replay import check_pace, interval_between, slots_until
from ..._policy.order.windows import opening
from ..._store.protocol import Store, all_records
from ...errors import Refused
from .batches import BATCH, apply_in_batches


class Pace(Struct, frozen=True):
    """How fast to replay: so many tasks a second, or all of them over a duration; neither: at once."""

    per_second: float | None = None
    spread: timedelta | float | str | None = None

    @property
    def is_given(self) -> bool:
        return self.per_second is not None or self.spread is not None


async def replay_in_batches(
    store: Store, action: Replay, where: Filter, limit: int | None, pace: Pace
) -> int:
    """Replay everything that matches, at most `limit` tasks; return how many.

    Cancelled tasks are replayed only if the filter names them, by their ids or by their state: somebody
    decided that they should not run, so a filter for a type or a queue does not mean them.

    At a pace, tasks of a queue with windows are due only while it is open: what would be due later goes on at
    the same pace from its next opening. The numbers that a duration is divided by are counted first, and may
    be estimates. Raises Refused, and replays nothing, if some of the tasks are in a paused queue.
    """
    check_pace(pace.per_second, pace.spread)
    if where.ids is None and where.states is None:
        where = replace(where, states=(State.DEAD,))
    await store.open()
    now = await store.now()
    if where.finished_before is None:
        # A task that dies again meanwhile is not replayed twice.
        where = replace(where, finished_before=now + timedelta(microseconds=1))
    if not pace.is_given:
        return await apply_in_batches(store, action, where, limit)
    total = await _count_replayable(store, where)
    if limit is not None:
        total = min(total, limit)
    interval = interval_between(total, pace.per_second, pace.spread)
    queues = await _queues_with_settings(store, where)
    await _refuse_paused(store, where, queues)
    done, rest = 0, total
    for queue, windows in [(one.name, one.windows) for one in queues if one.windows and interval]:
        its = replace(where, queues=(queue,))
        if number := await _count_replayable(store, its):
            paced = replace(action, run_at=now, interval=_share(interval, number, total))
            done += await _replay_while_open(store, paced, its, _room(limit, done), windows)
            rest -= number
    paced = replace(action, run_at=now, interval=_share(interval, rest, total))
    return done + await _replay_on(store, paced, where, _room(limit, done))


def _share(interval: timedelta, number: int, total: int) -> timedelta:
    """Return the interval of a part of the tasks, so that all parts together keep the pace."""
    return min(interval * (max(total, 1) / min(max(number, 1), max(total, 1))), MAX_DELAY)


def _room(limit: int | None, done: int) -> int | None:
    return None if limit is None else limit - done


async def _queues_with_settings(store: Store, where: Filter) -> list[QueueSettings]:
    settings = await all_records(store, QueueSettings)
    return [one for one in settings if where.queues is None or one.name in where.queues]


async def _refuse_paused(store: Store, where: Filter, queues: list[QueueSettings]) -> None:
    """Refuse tasks of a paused queue: nobody knows when it is resumed, and then all would start at once."""
    for queue in queues:
        if queue.paused and (number := await _count_replayable(store, replace(where, queues=(queue.name,)))):
            name = quoted(queue.name)
            raise Refused(
                f"queue {name} is paused: {counted(number, 'task')} replayed over time would start at once "
                f"when it is resumed. Resume queue {name} first, replay tasks of other queues only, or "
                f"replay all at once"
            )


async def _replay_on(
    store: Store, action: Replay, where: Filter, limit: int | None, slots: int | None = None
) -> int:
    """Replay in batches, each from where the one before stopped; at most `limit` tasks, or `slots`."""
    assert action.run_at is not None
    done, most = 0, min((one for one in (limit, slots) if one is not None), default=None)
    while most is None or done < most:
        room = BATCH if most is None else min(BATCH, most - done)
        batch = replace(action, run_at=action.due_at(done, action.run_at))
        number = len((await store.apply(batch, where, room)).ids)
        done += number
        if number < room:
            break
    return done


async def _replay_while_open(
    store: Store, action: Replay, where: Filter, limit: int | None, windows: tuple[Window, ...]
) -> int:
    """Replay the tasks of a queue with windows, opening by opening."""
    assert action.run_at is not None
    done, at, latest = 0, action.run_at, action.run_at + MAX_DELAY
    while limit is None or done < limit:
        slots: int | None = None  # ten years ahead: whatever is left
        if at < latest:
            span = opening(windows, at)
            at = max(at, span.opens_at)
            slots = slots_until(at, span.closes_at, action.interval)
        paced = replace(action, run_at=at)
        number = await _replay_on(store, paced, where, _room(limit, done), slots)
        done += number
        if slots is None or number < slots:
            break
        at = at + number * action.interval
    return done


async def _count_replayable(store: Store, where: Filter) -> int:
    states = tuple(state for state in REPLAYABLE if where.states is None or state in where.states)
    return sum(count.number for count in await store.count(replace(where, states=states), ()))
