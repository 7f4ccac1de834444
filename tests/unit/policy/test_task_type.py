"""What is published of a task type, and how a keeper retries by it."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from windlass import Backoff, InvalidOption, Refused, Retention
from windlass._model.options import DeclaredType, Defaults
from windlass._policy.backoff import Delay
from windlass._policy.secrets.patterns import checked_patterns
from windlass._policy.task_type import (
    changes,
    check_encrypted,
    declared_type,
    keeps_secrets,
    stored_backoff,
)


def declared(backoff: Delay, max_attempts: int = 8) -> DeclaredType:
    defaults = Defaults(max_attempts=max_attempts)
    return declared_type("pay", defaults, backoff, aliases=(), retention=None)


@pytest.mark.parametrize(
    "backoff", [Backoff(), Backoff(base=3600, jitter=0), Backoff.QUICK, Backoff.PATIENT, Backoff.ADDITIVE]
)
def test_a_stored_backoff_gives_the_same_delays(backoff: Backoff) -> None:
    stored = stored_backoff(declared(backoff))

    for attempt in (1, 2, 7, 500):
        for draw in (0.0, 0.3, 0.999):
            assert stored(attempt, draw) == backoff(attempt, draw)


def test_of_a_custom_backoff_the_first_delays_are_stored_and_the_last_repeats() -> None:
    made = declared(lambda attempt, _: timedelta(seconds=attempt**2), max_attempts=5)

    assert made.delays == (1.0, 4.0, 9.0, 16.0)
    assert [stored_backoff(made)(n, 0.5).total_seconds() for n in (1, 2, 4, 5, 99)] == [1, 4, 16, 16, 16]
    assert len(declared(lambda *_: timedelta(0), max_attempts=10_000).delays) == 16


@pytest.mark.parametrize("record", [None, DeclaredType(name="pay"), declared(lambda *_: timedelta(9), 1)])
def test_without_a_stored_backoff_the_default_applies(record: DeclaredType | None) -> None:
    assert stored_backoff(record)(3, 0.5) == Backoff()(3, 0.5)


@pytest.mark.parametrize("number", [-1.0, float("nan"), float("inf"), 1e12])
def test_numbers_that_are_no_delays_are_refused(number: float) -> None:
    with pytest.raises(InvalidOption, match="the backoff of task type 'pay'"):
        DeclaredType(name="pay", delays=(1.0, number))
    with pytest.raises(InvalidOption, match="the backoff of task type 'pay'"):
        DeclaredType(name="pay", backoff={"base": number})


def test_numbers_that_are_no_backoff_leave_the_default() -> None:
    record = DeclaredType(name="pay", backoff={"base": 5.0, "factor": 0.5})

    assert stored_backoff(record)(3, 0.5) == Backoff()(3, 0.5)


def test_a_number_that_this_version_does_not_know_is_ignored() -> None:
    newer = DeclaredType(name="pay", backoff={"base": 5.0, "jitter": 0.0, "surprise": 1.0})

    assert stored_backoff(newer)(1, 0.5) == timedelta(seconds=5)


def test_changes_name_the_fields_that_differ() -> None:
    before = declared(Backoff())
    after = replace(before, defaults=Defaults(queue="mail"), retention=Retention(dead=None))

    assert [change.partition(" ")[0] for change in changes(before, after)] == ["queue", "retention"]
    assert changes(before, before) == []


def test_a_program_without_keys_may_not_enqueue_secrets_of_an_encrypted_type() -> None:
    plain, encrypted = DeclaredType(name="pay"), DeclaredType(name="pay", encrypted=True)

    check_encrypted(None, ("card",))
    check_encrypted(plain, ("card",))
    check_encrypted(encrypted, ())
    check_encrypted(encrypted, checked_patterns([r"\d{16}"]))
    with pytest.raises(Refused, match="no encryption keys"):
        check_encrypted(encrypted, ("card",))


def named(name: str, *aliases: str, secret: tuple[str, ...] = (), encrypted: bool = False) -> DeclaredType:
    return DeclaredType(name=name, aliases=aliases, defaults=Defaults(secret=secret), encrypted=encrypted)


PAY = named("pay", "charge", secret=("card",))


@pytest.mark.parametrize(
    "changed",
    [
        PAY,
        named("pay", "debit", "charge", secret=("cvc", "card"), encrypted=True),
        named("charge", secret=("card",)),
        named("charge", "pay", secret=("card",)),
        named("zzz", "pay"),  # a name takes precedence over an alias
        named("zzz", "zz"),
    ],
)
def test_a_type_that_leaves_every_name_its_secret_fields_keeps_secrets(changed: DeclaredType) -> None:
    assert keeps_secrets([PAY, named("zz")], changed.name, changed)


@pytest.mark.parametrize(
    "changed",
    [
        named("pay", "charge", secret=("cvc",)),
        named("pay", secret=("card",)),
        named("charge"),
        named("zzz", "charge"),
        named("aaa", "charge"),
    ],
)
def test_a_type_that_takes_secret_fields_from_a_name_does_not(changed: DeclaredType) -> None:
    assert not keeps_secrets([PAY], changed.name, changed)


def test_a_removed_type_keeps_secrets_if_it_has_none() -> None:
    assert keeps_secrets([PAY, named("plain", "former")], "plain", None)
    assert keeps_secrets([PAY], "unknown", None)
    assert not keeps_secrets([PAY], "pay", None)
    assert not keeps_secrets([named("marked", encrypted=True)], "marked", None)


def test_of_two_types_that_mask_the_same_name_neither_counts_on_the_other() -> None:
    types = [named("charge", secret=("card",)), PAY]

    for name in ("charge", "pay"):
        assert not keeps_secrets(types, name, None)
    assert not keeps_secrets(types, "pay", named("pay", secret=("card",)))


def test_a_type_that_is_not_marked_as_encrypted_any_more_does_not_keep_secrets() -> None:
    marked = named("pay", "charge", secret=("card",), encrypted=True)

    assert not keeps_secrets([marked], "pay", PAY)
    assert not keeps_secrets([marked], "charge", named("charge", secret=("card",)))
    assert keeps_secrets([PAY], "pay", marked)
