"""Entries of the audit log: what they say, and what they leave out."""

from datetime import timedelta

from tests.unit.samples import NOW
from windlass._model.alert import Alert
from windlass._model.filter import By
from windlass._model.limit import Limit
from windlass._model.queue import Fairness, QueueSettings, Retention
from windlass._model.record import Session
from windlass._model.schedule import Schedule
from windlass._stores.rules.audit import MAX_DETAIL, audited_prune, audited_put, audited_removal

ADA = By(who="ada", why="because")


def test_an_entry_names_the_record_and_shows_its_fields() -> None:
    entry = audited_put(Limit(name="calls", rate=0.5, by="tenant"), ADA, NOW)

    assert (entry.who, entry.why, entry.at) == ("ada", "because", NOW)
    assert (entry.action, entry.subject, entry.detail) == ("put", "limit calls", '{"by":"tenant","rate":0.5}')


def test_durations_are_seconds_also_in_nested_values() -> None:
    settings = QueueSettings(name="mail", retention=Retention(completed=timedelta(hours=1), dead=None))

    assert '"retention":{"completed":3600.0,"cancelled":604800.0,"dead":null}' in (
        audited_put(settings, ADA, NOW).detail
    )
    assert audited_prune(Retention(), ADA, NOW).detail == (
        '{"completed":604800.0,"cancelled":604800.0,"dead":1209600.0}'
    )


def test_secrets_are_left_out() -> None:
    schedule = Schedule(name="s", type="t", payload=b'{"card":"s3cret"}')
    alert = Alert(name="a", webhook="https://us3r@hooks.example:8443/p4th?k=qu3ry")

    assert "s3cret" not in audited_put(schedule, ADA, NOW).detail
    assert '"webhook":"hooks.example:8443"' in audited_put(alert, ADA, NOW).detail


def test_a_long_record_is_cut() -> None:
    settings = QueueSettings(
        name="q", fairness=Fairness.ROUND_ROBIN, weights={f"t{n}": 2 for n in range(999)}
    )

    detail = audited_put(settings, ADA, NOW).detail

    assert (len(detail), detail[-1]) == (MAX_DETAIL, "…")


def test_a_removal_shows_only_what_was_removed() -> None:
    entry = audited_removal(Session, "s1", ADA, NOW)

    assert (entry.action, entry.subject, entry.detail) == ("remove", "session s1", "")
