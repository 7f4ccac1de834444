"""Entries of the audit log: what they say, and what they leave out."""

from datetime import timedelta

import msgspec
from msgspec.structs import replace

from tests.unit.samples import NOW, running
from windlass._model.alert import Alert
from windlass._model.filter import By, Discard
from windlass._model.limit import Limit
from windlass._model.queue import Fairness, QueueSettings, Retention
from windlass._model.record import Routes, Session, ShardMap
from windlass._model.schedule import Schedule
from windlass._model.task import Error
from windlass._stores.rules.audit import (
    MAX_DETAIL,
    MAX_MESSAGE,
    MAX_PAYLOAD,
    audited,
    audited_prune,
    audited_put,
    audited_removal,
)

ADA = By(who="ada", why="because")


def test_an_entry_names_the_record_and_shows_its_fields() -> None:
    entry = audited_put(None, Limit(name="calls", rate=0.5, by="tenant"), ADA, NOW)

    assert (entry.who, entry.why, entry.at) == ("ada", "because", NOW)
    assert (entry.action, entry.subject, entry.detail) == (
        "create",
        "limit calls",
        '{"by":"tenant","rate":0.5}',
    )


def test_durations_are_seconds_also_in_nested_values() -> None:
    settings = QueueSettings(name="mail", retention=Retention(completed=timedelta(hours=1), dead=None))

    assert audited_put(None, settings, ADA, NOW).detail == (
        '{"retention":[null,{"completed":3600.0,"cancelled":604800.0,"dead":null}]}'
    )
    assert audited_prune(Retention(), ADA, NOW).detail == (
        '{"completed":604800.0,"cancelled":604800.0,"dead":1209600.0}'
    )


def test_secrets_are_left_out() -> None:
    schedule = Schedule(name="s", type="t", payload=b'{"card":"s3cret"}')
    alert = Alert(name="a", webhook="https://us3r@hooks.example:8443/p4th?k=qu3ry")

    assert "s3cret" not in audited_put(None, schedule, ADA, NOW).detail
    assert '"webhook":"hooks.example:8443"' in audited_put(None, alert, ADA, NOW).detail


def test_a_change_of_what_is_hidden_is_named_without_its_values() -> None:
    schedule = Schedule(name="s", type="t", payload=b'{"card":"s3cret"}')

    entry = audited_put(replace(schedule, payload=b"{}"), schedule, ADA, NOW)

    assert (entry.action, entry.detail) == ("set", '{"payload":null}')


def test_a_discard_keeps_a_bounded_masked_payload_and_the_failure() -> None:
    task = running(
        payload=b'{"card":"s3cret","text":"%s"}' % (b"x" * 9_000),
        secret=("card",),
        attempt=8,
        error=Error(type="ValueError", message="m" * 9_000),
    )

    detail = msgspec.json.decode(audited(Discard(by=ADA), task, NOW).detail)

    assert detail["payload"].startswith('{"card":"[secret]","text":"xxx')
    assert (len(detail["payload"]), len(detail["error"]["message"])) == (MAX_PAYLOAD, MAX_MESSAGE)
    assert (detail["attempts"], detail["type"]) == (8, task.type)


def test_a_long_record_is_cut() -> None:
    settings = QueueSettings(
        name="q", fairness=Fairness.ROUND_ROBIN, weights={f"t{n}": 2 for n in range(999)}
    )

    detail = audited_put(None, settings, ADA, NOW).detail

    assert (len(detail), detail[-1]) == (MAX_DETAIL, "…")


def test_a_removal_shows_only_what_was_removed() -> None:
    entry = audited_removal(Session, "s1", ADA, NOW)

    assert (entry.action, entry.subject, entry.detail) == ("remove", "session s1", "")


def test_a_change_of_shards_shows_the_shards_and_routes_alone() -> None:
    before = ShardMap(id="x", version=1, home="a", shards=("a", "b"), routes=Routes(open=("a", "b")))
    after = replace(before, version=2, routes=Routes(open=("a",)), former=(before.routes,), effective_at=NOW)

    assert msgspec.json.decode(audited_put(before, after, ADA, NOW).detail) == {
        "routes": [{"open": ["a", "b"], "queues": {}}, {"open": ["a"], "queues": {}}]
    }
