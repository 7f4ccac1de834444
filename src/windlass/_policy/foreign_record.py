"""Check records that another program made, by the rules of the functions that make them."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import asdict

from .._model.alert import Alert, AlertNotice, AlertState
from .._model.key import ApiKey, Login
from .._model.limit import Limit, Quota
from .._model.options import DeclaredType
from .._model.queue import QueueSettings
from .._model.record import (
    ARCHIVE_NAME,
    KINDS,
    MAX_SHARDS,
    SHARD_MAP_NAME,
    Archive,
    Declaration,
    DisabledEndpoint,
    HistoryBucket,
    Record,
    ShardMap,
)
from .._model.schedule import Schedule, ScheduleTiming, Tick
from .._model.task import EARLIEST
from ..errors import InvalidOption
from . import api_key
from .alerts import MAX_UNSENT, AlertOptions, new_alert
from .endpoint import check_endpoint
from .history.buckets import check_bucket
from .input.chain import Step
from .input.foreign_task import check_id, check_step, check_steps
from .input.new_task import new_step
from .input.options import checked_name, checked_names, checked_text
from .input.quote import quoted
from .order.limit_options import LimitOptions, new_limit
from .order.queue_options import QueueChanges, changed_queue
from .quota import new_quota
from .schedule import new_schedule

LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""The latest instant in a record: durations can be added to it."""

MAX_WEIGHTS = 10_000
MAX_ALIASES = 1_000
_MAX_BACKOFF = 100  # numbers
_MAX_TEXT = 200
_MAX_PATH = 4_096
_MAX_ROUTES = 17  # the present ones, and former ones
_MAX_BODY = 4 << 20  # of a declaration
_NO_TASK = "00000000-0000-7000-8000-000000000000"
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_DECLARED = ("queue", *(KINDS[kind] for kind in (Limit, Alert, Schedule)))


def check_record(record: Record) -> None:
    """Raise InvalidOption or InvalidPayload for a record that no client makes."""
    check = _CHECKS.get(type(record))
    if check is not None:  # others are only written by stores
        check(record)


def _queue(queue: QueueSettings) -> None:
    checked_name(queue.name, "queue")
    if len(queue.weights) > MAX_WEIGHTS:
        raise InvalidOption(f"a queue has at most {MAX_WEIGHTS:,} weights, got {len(queue.weights):,}")
    changes = QueueChanges(
        fairness=queue.fairness,
        weights={**queue.weights},
        shares=dict(queue.ordering.shares.items()),
        ageing=queue.ordering.ageing,
        retention=queue.retention,
        stripes=queue.stripes,
        windows=queue.windows,
    )
    changed_queue(QueueSettings(name=queue.name), changes)


def _limit(limit: Limit) -> None:
    options = asdict(limit)
    new_limit(options.pop("name"), LimitOptions(**options))  # type: ignore[typeddict-item]


def _quota(quota: Quota) -> None:
    new_quota(quota.name, tasks=quota.tasks, bytes=quota.bytes)


def _alert(alert: Alert) -> None:
    options = asdict(alert)
    new_alert(options.pop("name"), **AlertOptions(**options))  # type: ignore[typeddict-item]


def _schedule(schedule: Schedule) -> None:
    step = Step(
        id=_NO_TASK,
        type=schedule.type,
        payload=Raw(schedule.payload),
        queue=schedule.queue,
        tenant=schedule.tenant,
        priority=schedule.priority,
        max_attempts=schedule.max_attempts,
        timeout=schedule.timeout,
        expires=schedule.expires,
        secret=schedule.secret,
        unique=schedule.unique,
        unique_for=schedule.unique_for,
    )
    check_step(step)
    check_steps(schedule.next)
    timing = ScheduleTiming(
        zone=schedule.zone,
        missed=schedule.missed,
        at_most=schedule.at_most,
        overlap=schedule.overlap,
        jitter=schedule.jitter,
    )
    made = new_schedule(schedule.name, step, schedule.cron or schedule.every or "", timing)
    if (made.cron, made.every) != (schedule.cron, schedule.every):
        raise InvalidOption("a schedule has a cron expression or an interval, not both")
    _instants(schedule.since)


def _key(key: ApiKey) -> None:
    api_key.check_stored(key)
    _instants(key.created_at, key.expires_at, key.revoked_at, key.rotated_at, key.last_used_at)
    _instants(*(former.expires_at for former in key.former))


def _login(login: Login) -> None:
    _instants(login.created_at, login.expires_at)
    api_key.check_login(login)


def _type(declared: DeclaredType) -> None:
    checked_name(declared.name, "task type")
    check_step(new_step(declared.name, b"{}", declared.defaults, {}, id=_NO_TASK))
    if len(declared.aliases) > MAX_ALIASES:
        raise InvalidOption(f"a task type has at most {MAX_ALIASES:,} aliases, got {len(declared.aliases):,}")
    for alias in declared.aliases:
        checked_name(alias, "alias")
    if len(declared.backoff) + len(declared.delays) > _MAX_BACKOFF:
        raise InvalidOption(f"the backoff of a task type has at most {_MAX_BACKOFF} numbers")
    for name in checked_names(declared.backoff, "backoff"):
        checked_text(name, "the name of a number of a backoff", _MAX_TEXT)


def _tick(tick: Tick) -> None:
    checked_name(tick.name, "schedule")
    _instants(tick.at, tick.fired_at)
    if tick.task_id is not None:
        check_id(tick.task_id)


def _alarm(state: AlertState) -> None:
    checked_name(state.name, "alert")
    checked_text(state.last, "the id of a notice", _MAX_TEXT)
    _instants(state.raised_at, state.below_since, state.told_at)
    if state.number < 0:
        raise InvalidOption(f"number must be at least 0, got {quoted(state.number)}")
    if len(state.unsent) > MAX_UNSENT:
        raise InvalidOption(f"an alert has at most {MAX_UNSENT} unsent notices, got {len(state.unsent):,}")
    for notice in state.unsent:
        _notice(notice)


def _notice(notice: AlertNotice) -> None:
    checked_text(notice.id, "the id of a notice", _MAX_TEXT)
    _instants(notice.at, notice.raised_at, notice.due_at)
    if min(notice.number, notice.tries) < 0 or len(notice.letters) > MAX_UNSENT:
        raise InvalidOption(f"the notice {quoted(notice.id)} of an alert is out of bounds")
    for letter in notice.letters:
        check_id(letter.id)
        for text in (letter.type, letter.queue, letter.error):
            checked_text(text, "what a notice says of a dead letter", _MAX_TEXT)


def _archive(archive: Archive) -> None:
    if archive.name != ARCHIVE_NAME:
        raise InvalidOption(f"the archive is called {ARCHIVE_NAME}, not {quoted(archive.name)}")
    checked_text(archive.directory, "the directory of the archive", _MAX_PATH)
    _instants(archive.until)


def _declaration(declaration: Declaration) -> None:
    kind, _, name = declaration.name.partition("/")
    if kind not in _DECLARED:
        raise InvalidOption(f"{quoted(declaration.name)} is not the name of a declaration")
    checked_name(name, kind)
    body = declaration.body
    if len(body) > _MAX_BODY or not (_DIGEST.fullmatch(body) or _is_object(body)):
        raise InvalidOption(f"the body of the declaration {quoted(declaration.name)} is not one")


def _endpoint(endpoint: DisabledEndpoint) -> None:
    check_endpoint(endpoint)
    _instants(endpoint.at)


def _shards(shard_map: ShardMap) -> None:
    checked_text(shard_map.id, "the id of a map of shards", _MAX_TEXT)
    _instants(shard_map.effective_at)
    every = (shard_map.routes, *shard_map.former)
    over = [route.over for routes in every for route in routes.queues.values()]
    lists = [shard_map.shards, *over, *(routes.open for routes in every)]
    if (
        shard_map.name != SHARD_MAP_NAME
        or shard_map.version < 1
        or shard_map.home not in shard_map.shards
        or shard_map.on not in ("", *shard_map.shards)
        or len(every) > _MAX_ROUTES
        or not all(1 <= len(names) <= MAX_SHARDS for names in lists)
    ):
        raise InvalidOption("the map of shards is out of bounds")
    for name in (name for names in lists for name in names):
        checked_name(name, "shard")
    for queue in (queue for routes in every for queue in routes.queues):
        checked_name(queue, "queue")


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


def _instants(*given: datetime | None) -> None:
    for at in given:
        if at is not None and not EARLIEST <= at <= LATEST:
            raise InvalidOption(f"an instant of a record must be from 1970 to {LATEST.year}, got {at}")


_CHECKS: dict[Any, Callable[[Any], None]] = {
    QueueSettings: _queue,
    Limit: _limit,
    Quota: _quota,
    Alert: _alert,
    Schedule: _schedule,
    ApiKey: _key,
    Login: _login,
    DeclaredType: _type,
    Tick: _tick,
    AlertState: _alarm,
    Archive: _archive,
    Declaration: _declaration,
    DisabledEndpoint: _endpoint,
    HistoryBucket: check_bucket,
    ShardMap: _shards,
}
