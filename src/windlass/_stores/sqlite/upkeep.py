"""The verbs of the keeper: lead, promote and prune; and records."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TypeAlias

from msgspec import UNSET, Struct, UnsetType

from ..._model.filter import By
from ..._model.limit import Limit
from ..._model.queue import QueueSettings, Retention
from ..._model.record import ARCHIVE_NAME, KINDS, Archive, Record, Session, StoredRecord
from ..._model.state import ENDED, State
from ..._model.transition import Pruned, pruned_counts
from ..._policy.order.limits import PermitUsage, Subject, split_key, tokens_at
from ..._store.protocol import Promoted
from ..records import check_expected, read_archive, reader
from ..rules.audit import audited_prune, audited_put, audited_removal
from ..rules.cancellation import pruned
from ..rules.retention import RetentionRules, archived
from ..rules.successors import abandon
from .claim import relayout
from .rows import Row, as_json, instant, listed, moment
from .rule_player import declared_types, delete, run, write_audit
from .transaction import Transaction

KEYS_AT_ONCE = 1000
"""Keys that one transaction deletes, so that a day's worth of them does not block other writers for long."""

NEEDED_AT_ONCE = 5000
"""Tasks of a kind that a prune looks at and keeps, as others need them."""

BUCKETS_AT_ONCE = 1000
KEPT_AFTER_LIMIT = timedelta(days=1)
"""Time to keep the buckets of a removed limit, which may be added again."""

_ENDS = sorted(ENDED)


def lead(tx: Transaction, holder: str, lease_for: timedelta) -> bool:
    """Take, renew or give up the lead; return whether `holder` leads."""
    # A lead that lasts longer than any request was granted before the clock was set back.
    longest = instant(tx.now + lease_for)
    for leader, until in tx.rows("leader"):
        if leader != holder and (not lease_for or tx.at < until <= longest):
            return False
    if not lease_for:
        tx.run("resign")
        return False
    tx.run("lead", {"holder": holder, "until": longest})
    return True


def promote(tx: Transaction, limit: int) -> Promoted:
    """Make due tasks ready, earliest first."""
    due = tx.rows("due", {"now": tx.at, "limit": max(limit, 0)})
    if due:
        rules = tx.queue_rules
        tx.run("promote", {"rowids": listed(rowid for rowid, *_ in due)})
        if laned := [rowid for rowid, queue, *_ in due if not rules.is_fifo(queue)]:
            found = tx.rows("due_laned", {"rowids": listed(laned)})
            rows = [
                (*rules.lane_and_key(Subject(*about), priority), rowid) for *about, rowid, priority in found
            ]
            tx.run_many("set_lane", rows)
        boosts = [(rules.boost(queue, priority), boost, rowid) for rowid, queue, priority, boost in due]
        changed = [{"boost": now, "rowid": rowid} for now, before, rowid in boosts if now != before]
        tx.run_many("set_boost", changed)
        tx.wakes.ready.update(queue for _, queue, *_ in due)
    next_at = tx.value("next_due")
    return Promoted(number=len(due), next_at=None if next_at is None else moment(next_at))


Kind: TypeAlias = tuple[str, str, State]
Place: TypeAlias = tuple[int, int]
"""The instant at which a task ended, and its rowid: many may have ended at one instant."""

_START: Place = (-1, -1)


class PruneRound(Struct, frozen=True):
    """How far prunes have looked at ended tasks. When all were looked at, the next round begins."""

    reached: Mapping[Kind, Place] = {}  # of kinds with more: the last task that was looked at
    finished: frozenset[Kind] = frozenset()

    @property
    def has_begun(self) -> bool:
        return bool(self.reached)


def prune(
    tx: Transaction, default: Retention, limit: int, by: By | None, this_round: PruneRound
) -> tuple[Pruned, PruneRound]:
    """Delete ended tasks that are past their retention; return what was deleted, and how far it has looked.

    If that is nothing, others may be left until the round has ended.
    """
    if by is not None:
        write_audit(tx, [audited_prune(default, by, tx.now)])
    gone, next_round = _past_retention(tx, default, limit, this_round)
    numbers: Counter[tuple[str, str]] = Counter()
    for queue, state, task_id, tenant, idempotency_key, *_ in gone:
        numbers[queue, state] += 1
        run(tx, abandon(tx, task_id, pruned()))
        delete(tx, task_id, tenant, idempotency_key)
    return Pruned(counts=pruned_counts(numbers), transitions=tuple(tx.transitions)), next_round


def prune_keys(tx: Transaction) -> bool:
    """Delete some expired idempotency keys; return whether there may be more."""
    return tx.run("prune_keys", {"now": tx.at, "limit": KEYS_AT_ONCE}) == KEYS_AT_ONCE


def prune_buckets(tx: Transaction, after: str) -> str | None:
    """Delete redundant buckets from a page of them; return the key to continue after, None at the end."""
    found = tx.rows("some_buckets", {"after": after, "limit": BUCKETS_AT_ONCE})
    limits = tx.queue_rules.limits_by_name
    gone = [row[0] for row in found if _says_nothing(tx, limits.get(split_key(row[0])[0]), row)]
    if gone:
        tx.run("forget_buckets", {"keys": listed(gone)})
    return found[-1][0] if len(found) == BUCKETS_AT_ONCE else None


def _says_nothing(tx: Transaction, limit: Limit | None, bucket: Row) -> bool:
    """Whether the bucket is full, like one that was never used, or its limit was removed long ago."""
    _, tokens, at = bucket
    if limit is None or not limit.is_metered:
        return moment(at) <= tx.now - KEPT_AFTER_LIMIT
    return tokens_at(limit, PermitUsage(0, tokens, moment(at)), tx.now) >= limit.capacity


def _past_retention(
    tx: Transaction, default: Retention, limit: int, this_round: PruneRound
) -> tuple[list[Row], PruneRound]:
    rules = RetentionRules(default, tx.queue_rules.settings.values(), declared_types(tx))
    stored = tx.value("get_record", {"kind": KINDS[Archive], "name": ARCHIVE_NAME})
    archive = None if stored is None else read_archive(stored)
    gone: list[Row] = []
    reached: dict[Kind, Place] = {}  # without kinds that have no tasks any more, so that the round ends
    finished = set(this_round.finished)
    for queue, type_name in tx.rows("ended_types"):
        kept = rules.of(queue, type_name)
        for state in _ENDS:
            kind = (queue, type_name, state)
            horizon, after = archived(kept.horizon(state, tx.now), archive), this_round.reached.get(kind)
            if horizon is None or kind in finished:
                continue
            if (room := limit - len(gone)) > 0:
                rows, after = _expired(tx, kind, horizon, room, after or _START)
                gone += ((queue, state.value, *row) for row in rows)
                if after is None:
                    finished.add(kind)
            if after is not None:
                reached[kind] = after
    return gone, PruneRound(reached, frozenset(finished)) if reached else PruneRound()


def _expired(
    tx: Transaction, kind: Kind, horizon: datetime, limit: int, after: Place
) -> tuple[list[Row], Place | None]:
    """Return expired tasks of a kind that nobody needs, from those that one prune looks at behind a place.

    Also return the place of the last one it has looked at; None if that were all.
    """
    queue, type_name, state = kind
    terms = {"queue": queue, "type": type_name, "state": state.value, "before": instant(horizon)}
    terms |= {"finished_at": after[0], "rowid": after[1], "look": limit + NEEDED_AT_ONCE}
    found = tx.rows("expired", {**terms, "limit": limit})
    if len(found) == limit:
        *_, finished_at, rowid = found[-1]
        return found, (finished_at, rowid)
    edge = tx.rows("expired_edge", terms)
    return found, edge[0] if edge else None


# -- records ---------------------------------------------------------------------------------------


def put(
    tx: Transaction,
    record: QueueSettings | StoredRecord,
    by: By | None,
    expected: Record | UnsetType | None,
) -> bool:
    """Store a record, replacing the old one; return whether a relayout is unfinished. Raises Conflict."""
    if by is not None or expected is not UNSET:
        before = _stored(tx, type(record), record.name)
        check_expected(record, expected, before)
        if by is not None:
            write_audit(tx, [audited_put(before, record, by, tx.now)])
    name, body = record.name, as_json(record)
    if isinstance(record, QueueSettings):
        settings = tx.queue_rules.settings.get(name)
        tx.run("put_queue", {"name": name, "paused": int(record.paused), "settings": body})
        return relayout.after_settings(tx, name, settings, record)
    limit = tx.queue_rules.limits_by_name.get(name) if isinstance(record, Limit) else None
    tx.run("put_record", {"kind": KINDS[type(record)], "name": name, "body": body})
    return isinstance(record, Limit) and relayout.after_limit(tx, limit, record)


def _stored(tx: Transaction, kind: type[Record], name: str) -> Record | None:
    if kind is QueueSettings:
        return tx.queue_rules.settings.get(name)
    body = tx.value("get_record", {"kind": KINDS[kind], "name": name})
    return None if body is None else reader(kind)(body)


def remove(tx: Transaction, kind: type[Record], name: str, by: By | None) -> tuple[bool, bool]:
    """Delete a record; return whether it existed, and whether a relayout is unfinished."""
    more = False
    if kind is Session:
        removed = tx.run("remove_session", {"name": name}) > 0
    elif kind is QueueSettings:
        settings = tx.queue_rules.settings.get(name)
        removed = tx.run("remove_queue", {"name": name}) > 0
        more = relayout.after_settings(tx, name, settings, None)
    else:
        limit = tx.queue_rules.limits_by_name.get(name) if kind is Limit else None
        removed = tx.run("remove_record", {"kind": KINDS[kind], "name": name}) > 0
        if removed and kind is Limit:
            more = relayout.after_limit(tx, limit, None)
    if removed and by is not None:
        write_audit(tx, [audited_removal(kind, name, by, tx.now)])
    return removed, more
