"""What the keeper does: lead, promote, prune; and the settings of queues that it goes by."""

from datetime import timedelta

import msgspec

from ..._model.queue import QueueSettings, Retention
from ..._model.record import KINDS, Kept, Record
from ..._model.state import ENDED
from ..._store import Promoted
from .endings import abandon, forget
from .rows import Row, instant, moment
from .statements import listed
from .transaction import Transaction

KEYS_AT_ONCE = 1000
"""Keys that one transaction deletes, so that a day's worth of them does not hold up everybody else."""

_ENDS = sorted(ENDED)
_encoder = msgspec.json.Encoder()
_settings = msgspec.json.Decoder(QueueSettings)


def lead(tx: Transaction, holder: str, lease_for: timedelta) -> bool:
    """Take, keep or give up the lead."""
    # A lead for longer than anybody asks for was granted before the clock was set back.
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
        tx.run("promote", {"rowids": listed(rowid for rowid, _ in due)})
        tx.news.ready.update(queue for _, queue in due)
    next_at = tx.value("next_due")
    return Promoted(number=len(due), next_at=None if next_at is None else moment(next_at))


def prune(tx: Transaction, retention: Retention, limit: int) -> int:
    """Delete what retention no longer covers."""
    gone = _past_retention(tx, retention, limit)
    for task_id, tenant, idempotency_key in gone:
        abandon(tx, task_id, "died and was pruned")
        forget(tx, task_id, tenant, idempotency_key)
    return len(gone)


def prune_keys(tx: Transaction) -> bool:
    """Delete some of the keys that have expired; says whether there may be more."""
    return tx.run("prune_keys", {"now": tx.at, "limit": KEYS_AT_ONCE}) == KEYS_AT_ONCE


def _past_retention(tx: Transaction, retention: Retention, limit: int) -> list[Row]:
    own = {settings.name: settings.retention for settings in _all_settings(tx)}
    gone: list[Row] = []
    for (queue,) in tx.rows("ended_queues"):
        kept = own.get(queue) or retention
        for state in _ENDS:
            room = limit - len(gone)
            horizon = kept.horizon(state, tx.now)
            if horizon is not None and room > 0:
                before = instant(horizon)
                terms = {"queue": queue, "state": state.value, "before": before, "limit": room}
                gone += tx.rows("expired", terms)
    return gone


def _all_settings(tx: Transaction) -> list[QueueSettings]:
    return [_settings.decode(row[0]) for row in tx.rows("all_queues")]


# -- records ---------------------------------------------------------------------------------------


def put_record(tx: Transaction, record: Kept) -> None:
    """Keep a record in place of the one before."""
    body = _encoder.encode(record).decode()
    tx.run("put_record", {"kind": KINDS[type(record)], "name": record.name, "body": body})


def remove_record(tx: Transaction, kind: type[Record], name: str) -> bool:
    """Forget a record; says whether there was one."""
    return tx.run("remove_record", {"kind": KINDS[kind], "name": name}) > 0


# -- queues ------------------------------------------------------------------------------------------


def put_queue(tx: Transaction, settings: QueueSettings) -> None:
    """Keep a queue's settings in place of the ones before; it may give tasks again."""
    text = _encoder.encode(settings).decode()
    tx.run("put_queue", {"name": settings.name, "paused": int(settings.paused), "settings": text})
    tx.news.ready.add(settings.name)


def remove_queue(tx: Transaction, name: str) -> bool:
    """Forget a queue's settings; says whether there were any. It may have been paused."""
    tx.news.ready.add(name)
    return tx.run("remove_queue", {"name": name}) > 0
