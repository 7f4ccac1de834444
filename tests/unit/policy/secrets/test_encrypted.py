"""Encrypted values in JSON: found, refused from callers, shown; and the outcome of tasks with them."""

import pytest

from tests.unit.samples import running
from windlass._model.attempt import is_recorded
from windlass._model.lease import Lease
from windlass._model.outcome import Failed, Locked
from windlass._model.verdict import Bury, Postpone, Reason, Settlement
from windlass._policy.backoff import Backoff
from windlass._policy.secrets.encrypted import SHOWN, key_ids, refuse_marked, without_encrypted
from windlass._policy.verdict import decide, has_encrypted, undecrypted
from windlass.errors import InvalidPayload

ENCRYPTED = b'{"pin":"~windlass-encrypted:1:k1:abc","more":[{"a":"~windlass-encrypted:1:2026-11:x"}],"id":7}'


def test_the_ids_of_keys_are_found_once_each_and_sorted() -> None:
    assert key_ids(ENCRYPTED, None, ENCRYPTED, b'{"a":"windlass"}') == ("2026-11", "k1")


def test_a_caller_cannot_pass_what_looks_like_an_encrypted_value() -> None:
    refuse_marked(None, b'{"text":"about ~windlass-encrypted: values"}')

    with pytest.raises(InvalidPayload, match="marks encrypted values"):
        refuse_marked(None, ENCRYPTED)


def test_encrypted_values_are_shown_as_such() -> None:
    value = {
        "pin": "~windlass-encrypted:1:k1:abc",
        "list": [1, {"a": "~windlass-encrypted:1:k2:d"}],
        "b": "c",
    }

    assert without_encrypted(value) == {"pin": SHOWN, "list": [1, {"a": SHOWN}], "b": "c"}


def test_a_worker_without_a_key_hands_the_task_back_however_often() -> None:
    task = running(attempt=3, max_attempts=3)
    outcome = undecrypted(("k1",), ENCRYPTED)
    assert outcome == Locked(("2026-11",))

    verdict = decide(task, outcome, Backoff(), 0.5)

    assert isinstance(verdict, Postpone)
    assert verdict.reason is Reason.SNOOZE
    assert verdict.unhandled_since is None
    assert "2026-11" in verdict.error.message
    assert not is_recorded(Settlement(lease=Lease("t1", 1), verdict=verdict, outcome="locked"))


def test_encrypted_values_of_a_task_are_in_its_payload_or_its_steps() -> None:
    assert has_encrypted(running(payload=ENCRYPTED))
    assert has_encrypted(running(next=b'[{"payload":' + ENCRYPTED + b"}]"))
    assert not has_encrypted(running())
    assert not has_encrypted(running(payload=b'{"home":"~ann"}'))
    assert not has_encrypted(running(payload=b'{"home":"~ann"}', next=b"[]"))


def test_a_value_that_a_known_key_does_not_decrypt_buries_the_task() -> None:
    outcome = undecrypted(("2026-11", "k1"), ENCRYPTED)

    assert isinstance(outcome, Failed)
    assert isinstance(decide(running(), outcome, Backoff(), 0.5), Bury)
