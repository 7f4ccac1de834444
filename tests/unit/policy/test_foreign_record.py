"""A record that another program made is checked by the rules of what our client makes."""

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from tests.foreign_input import RECORDS
from tests.unit.samples import INVALID, NOW, SCHEDULE, step
from windlass._ids import new_id
from windlass._model.alert import Alert, AlertNotice, AlertState, DeadLetter, Turn
from windlass._model.key import ApiKey, FormerSecret, Login, Scope
from windlass._model.limit import Limit, Quota
from windlass._model.options import DeclaredType, Defaults
from windlass._model.queue import Fairness, Ordering, QueueSettings, Window
from windlass._model.record import (
    Archive,
    Declaration,
    HistoryBucket,
    QueueRoute,
    Record,
    Routes,
    Session,
    ShardMap,
    Worker,
)
from windlass._model.schedule import Tick
from windlass._policy import api_key
from windlass._policy.endpoint import disabled_endpoint
from windlass._policy.foreign_record import MAX_ALIASES, MAX_WEIGHTS, check_record
from windlass._policy.input.chain import encode_steps
from windlass._store.messages import RECORD_TYPES, decode_record
from windlass.errors import InvalidOption

KIND_AND_NUMBER = [(kind, number) for kind, (_, attacks) in RECORDS.items() for number in range(len(attacks))]


def test_every_kind_is_attacked() -> None:
    assert RECORDS.keys() == RECORD_TYPES.keys()


@pytest.mark.parametrize(("kind", "number"), KIND_AND_NUMBER)
def test_a_record_that_no_client_makes(kind: str, number: int) -> None:
    record, attacks = RECORDS[kind]
    if kind in ("session", "audit", "usage"):  # stores refuse them, whatever they are
        return
    with pytest.raises(INVALID):
        check_record(decode_record(kind, msgspec.json.encode({**record, **attacks[number]})))


LETTER = DeadLetter(id=new_id(), type="t", queue="q", error="E")
NOTICE = AlertNotice(id="raised-1", turn=Turn.RAISED, number=1, at=NOW, raised_at=NOW, letters=(LETTER,))
KEY = ApiKey(name="k" * 12, label="web", hash="0" * 64, scopes=(Scope.READ,), created_at=NOW)
FULL: list[Record] = [
    QueueSettings(
        name="q", ordering=Ordering(ageing=timedelta(minutes=1)), windows=(Window(opens=0, closes=60),)
    ),
    QueueSettings(name="q", fairness=Fairness.ROUND_ROBIN, weights={"acme": 2, "": 3}),
    Limit(name="l", rate=0.5, by="tenant"),
    Quota(name="acme", tasks=1, bytes=5),
    Alert(name="a", type="t", window=timedelta(hours=1), webhook="https://hooks.example/x"),
    SCHEDULE,
    replace(SCHEDULE, cron=None, every=timedelta(hours=1), next=encode_steps((step(),)), unique=True),
    KEY,
    replace(KEY, tenant="acme", queues=("q",), rate=2.0, expires_at=NOW),
    Login(name="0" * 64, key=KEY.name, secret=KEY.hash, created_at=NOW, expires_at=NOW),
    DeclaredType(name="t", defaults=Defaults(secret=("card",)), aliases=("old",), backoff={"base": 1.0}),
    Tick(name="s", at=NOW),
    Tick(name="s", at=NOW, fired_at=NOW, task_id=new_id()),
    AlertState(name="a", raised_at=NOW, number=3, last="x", unsent=(NOTICE,)),
    Archive(directory="/var/archive", until=NOW),
    Declaration(name="queue/q", body='{"stripes":2}'),
    Declaration(name="alert/a", body="0" * 64),
    disabled_endpoint("https://example.org/hook", "acme", NOW, new_id()),
    HistoryBucket(name="10s/2026-11-16T08:30:00Z", measured=True),
    ShardMap(
        id="m",
        version=1,
        home="a",
        shards=("a", "b"),
        routes=Routes(open=("a",), queues={"q": QueueRoute(over=("b",))}),
        former=(Routes(open=("a", "b")),),
    ),
    Session(id="s", worker=Worker(name="w"), started_at=NOW, beat_at=NOW, expires_at=NOW),
]


@pytest.mark.parametrize("number", range(len(FULL)))
def test_a_record_of_a_client(number: int) -> None:
    check_record(FULL[number])


def test_records_are_bounded() -> None:
    weights = {f"t{n}": 2 for n in range(MAX_WEIGHTS + 1)}
    with pytest.raises(InvalidOption, match="weights"):
        check_record(QueueSettings(name="q", fairness=Fairness.ROUND_ROBIN, weights=weights))
    with pytest.raises(InvalidOption, match="aliases"):
        check_record(DeclaredType(name="t", aliases=("x",) * (MAX_ALIASES + 1)))


def test_former_secrets_of_a_key_are_hashes_and_few() -> None:
    former = FormerSecret(hash="0" * 64, expires_at=NOW)
    api_key.check_stored(replace(KEY, former=(former,) * api_key.MAX_FORMER))

    with pytest.raises(InvalidOption, match="64 lower-case hex digits"):
        api_key.check_stored(replace(KEY, former=(replace(former, hash="x"),)))
    with pytest.raises(InvalidOption, match="at most 5 former secrets"):
        api_key.check_stored(replace(KEY, former=(former,) * (api_key.MAX_FORMER + 1)))


def test_a_key_without_scopes() -> None:
    with pytest.raises(InvalidOption, match="scope"):
        api_key.check_stored(replace(KEY, scopes=()))
