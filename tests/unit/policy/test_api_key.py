"""API keys: one format, only the right secret is valid, and only until it expires."""

import hmac
import re
from datetime import datetime, timedelta
from itertools import combinations
from math import log2
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.pretty import pretty_repr

from tests.contents import contents
from tests.unit.samples import HOUR, NOW
from windlass._model.key import ApiKey, FormerSecret, Scope
from windlass._policy import api_key
from windlass._policy.api_key import (
    PresentedKey,
    Rejection,
    allows,
    hash_secret,
    new_key,
    parse_key,
    rejection,
)
from windlass.errors import InvalidOption, Refused

LEAST = 42
LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
SHAPE = re.compile(f"wl_[{LETTERS}]{{12}}_[{LETTERS}]{{43}}")
TICK = timedelta(microseconds=1)

entropy = st.binary(min_size=LEAST, max_size=48)
sent_keys = entropy.map(new_key)


def kept(sent: PresentedKey, **changes: object) -> ApiKey:
    key = ApiKey(
        name=sent.id, label="web", hash=hash_secret(sent.secret), scopes=(Scope.READ,), created_at=NOW - HOUR
    )
    return replace(key, **changes)


def is_valid(sent: PresentedKey | None, key: ApiKey | None, now: datetime) -> bool:
    return rejection(sent, key, now) is None


@given(random=entropy)
def test_a_key_has_its_shape_and_reads_back(random: bytes) -> None:
    sent = new_key(random)

    assert SHAPE.fullmatch(sent.text)
    assert parse_key(sent.text) == sent


def test_a_secret_has_256_bits() -> None:
    assert len(set(LETTERS)) ** 43 >= 1 << 256
    assert len(new_key(bytes(LEAST)).secret) == 43


def test_the_least_entropy_favours_no_secret_over_another() -> None:
    per_key = (1 << 8 * LEAST) // 62 ** (12 + 43)  # inputs that become the same key, or one more

    likeliest = (per_key + 1) * 62**12
    assert 8 * LEAST - log2(likeliest) >= 256


@given(random=entropy, data=st.data())
def test_every_bit_of_the_entropy_counts(random: bytes, data: st.DataObject) -> None:
    bit = data.draw(st.integers(0, 8 * len(random) - 1))
    other = (int.from_bytes(random, "big") ^ 1 << bit).to_bytes(len(random), "big")

    assert new_key(other) != new_key(random)


def test_every_letter_of_a_key_comes_from_the_entropy() -> None:
    ends = [new_key(number.to_bytes(LEAST, "big")) for number in (0, 62**55 - 1)]

    assert [one.text for one in ends] == [f"wl_{'0' * 12}_{'0' * 43}", f"wl_{'z' * 12}_{'z' * 43}"]


@given(random=st.binary(max_size=LEAST - 1))
def test_too_little_entropy_makes_no_key(random: bytes) -> None:
    with pytest.raises(ValueError, match=f"at least 42 random bytes, got {len(random)}"):
        new_key(random)


@given(text=st.text() | st.from_regex(r"wl_[0-9A-Za-z]{11,13}_[0-9A-Za-z]{42,44}", fullmatch=True))
def test_what_has_another_shape_is_no_key(text: str) -> None:
    found = parse_key(text)

    assert (found is not None) == bool(SHAPE.fullmatch(text))
    assert found is None or found.text == text


GOOD = new_key(bytes(range(LEAST)))


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "wl", "wl__", "wl_" + "0" * 55, GOOD.id, GOOD.secret),
        *(f" {GOOD.text}", f"{GOOD.text} ", f"{GOOD.text}\n", f"{GOOD.text}\0", f"{GOOD.text}{GOOD.text}"),
        *(GOOD.text.replace("wl", "WL"), GOOD.text.replace("_", "-"), GOOD.text[:-1], GOOD.text + "0"),
        *(GOOD.text[:-1] + letter for letter in ("é", "\u0663", "\u212a", "_", "\u017f", "\ud800")),
    ],
)
def test_what_is_nearly_a_key_is_none(text: str) -> None:
    assert parse_key(text) is None


@given(sent=sent_keys, other=sent_keys)
def test_only_the_right_secret_fits(sent: PresentedKey, other: PresentedKey) -> None:
    assert is_valid(sent, kept(sent), NOW)
    assert is_valid(other, kept(sent), NOW) == (other.secret == sent.secret)


@given(sent=sent_keys, place=st.integers(0, 42), letter=st.sampled_from(LETTERS))
def test_a_secret_that_is_wrong_in_one_letter_does_not_fit(
    sent: PresentedKey, place: int, letter: str
) -> None:
    near = PresentedKey(sent.id, sent.secret[:place] + letter + sent.secret[place + 1 :])

    assert is_valid(near, kept(sent), NOW) == (near == sent)


def test_a_key_is_good_until_the_instant_it_expires() -> None:
    key = kept(GOOD, expires_at=NOW)

    assert is_valid(GOOD, key, NOW - TICK)
    assert not is_valid(GOOD, key, NOW)
    assert not is_valid(GOOD, key, NOW + TICK)


def test_hashes_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One comparison for each hash that is stored, also after a match; and one if there is no such key."""
    compared: list[tuple[bytes, bytes]] = []

    class Watched:
        @staticmethod
        def compare_digest(one: bytes, other: bytes) -> bool:
            compared.append((one, other))
            return hmac.compare_digest(one, other)

    monkeypatch.setattr(api_key, "hmac", Watched)
    sent, *others = (new_key(bytes([number] * LEAST)) for number in range(1, 4))
    former = tuple(FormerSecret(hash=hash_secret(one.secret), expires_at=NOW + HOUR) for one in others)
    key = kept(sent, former=former)
    for secret, is_good in ((sent.secret, True), (others[1].secret, True), ("0" * 43, False)):
        compared.clear()
        assert is_valid(PresentedKey(sent.id, secret), key, NOW) is is_good
        assert [other.decode() for _, other in compared] == [key.hash, *(one.hash for one in former)]
    for nobody in (None, sent):
        compared.clear()
        assert not is_valid(nobody, None, NOW)
        assert len(compared) == 1


def test_nothing_fits_nothing() -> None:
    assert not is_valid(None, None, NOW)
    assert not is_valid(GOOD, None, NOW)
    assert not is_valid(None, kept(GOOD), NOW)


def test_nothing_sent_does_not_fit_the_hash_of_nothing() -> None:
    assert not is_valid(None, kept(GOOD, hash=hash_secret("")), NOW)
    assert not is_valid(GOOD, kept(GOOD, hash=api_key._NOBODY), NOW)


@pytest.mark.parametrize("stored", ["", "é", GOOD.secret, hash_secret(GOOD.secret).upper(), "0" * 64])
def test_a_stored_hash_that_is_none_fits_nothing(stored: str) -> None:
    assert not is_valid(GOOD, kept(GOOD, hash=stored), NOW)


def test_the_secret_is_neither_shown_nor_kept() -> None:
    for text in (repr(GOOD), str(GOOD), f"{GOOD}", repr([GOOD]), contents(kept(GOOD)), pretty_repr(GOOD)):
        assert GOOD.secret not in text
    assert GOOD.id in repr(GOOD)


@pytest.mark.parametrize("name", api_key.RATES)
@pytest.mark.parametrize("value", [1_000, 2500.5, 1_000_000, None])
def test_a_rate(name: str, value: float | None) -> None:
    assert api_key.checked_rates({name: value}) == {name: value}


@pytest.mark.parametrize("name", api_key.RATES)
@pytest.mark.parametrize("value", [0, -1, 0.0001, 1e11, float("nan"), float("inf"), True, "5"])
def test_what_is_no_rate(name: str, value: Any) -> None:
    with pytest.raises(InvalidOption, match=f"^{name} must be from"):
        api_key.checked_rates({name: value})


def test_an_unknown_rate() -> None:
    with pytest.raises(InvalidOption, match="unknown option 'tasks_rate' of a key; did you mean 'task_rate'"):
        api_key.checked_rates({"tasks_rate": 1})


OTHERS = [scope for scope in Scope if scope is not Scope.OBSERVE]


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("held", OTHERS)
def test_a_scope_allows_itself_and_admin_everything(held: Scope, scope: Scope) -> None:
    assert allows(kept(GOOD, scopes=(held,)), scope) == (held in (scope, Scope.ADMIN))


@pytest.mark.parametrize("scope", Scope)
def test_several_scopes_allow_each_of_them_and_none_allows_nothing(scope: Scope) -> None:
    assert not allows(kept(GOOD, scopes=()), scope)
    for held in combinations(OTHERS, 2):
        assert allows(kept(GOOD, scopes=held), scope) == (scope in held or Scope.ADMIN in held)


@pytest.mark.parametrize("other", OTHERS)
def test_observe_reads_without_payloads_and_goes_with_operate_only(other: Scope) -> None:
    """A key that has it beside another scope, as nobody can make one, sees no more for that."""
    key = kept(GOOD, scopes=(Scope.OBSERVE, other))
    allowed = {scope for scope in Scope if allows(key, scope)}
    assert allowed == {Scope.OBSERVE, Scope.READ} | ({other} & {Scope.OPERATE})
    assert not api_key.sees_payloads(key)
    assert api_key.sees_payloads(kept(GOOD, scopes=(other,)))
    if other is not Scope.OPERATE:
        with pytest.raises(InvalidOption, match="observe goes with operate only"):
            api_key.checked_scopes(key.scopes)
    else:
        assert api_key.checked_scopes(["operate", "observe"]) == (Scope.OPERATE, Scope.OBSERVE)


NEW = new_key(bytes(range(1, LEAST + 1)))
THIRD = new_key(bytes(range(2, LEAST + 2)))


def test_why_a_key_is_rejected() -> None:
    expired, revoked = kept(GOOD, expires_at=NOW), api_key.revoked(kept(GOOD), NOW)

    assert rejection(GOOD, expired, NOW) is Rejection.EXPIRED
    assert rejection(NEW, expired, NOW) is Rejection.UNKNOWN  # of another secret nothing is told
    assert rejection(GOOD, revoked, NOW) is Rejection.REVOKED
    assert rejection(GOOD, None, NOW) is rejection(None, None, NOW) is Rejection.UNKNOWN


def test_a_revoked_key_is_rejected_by_former_versions_too() -> None:
    """They do not know `revoked_at`, so the hash must not fit."""
    key = api_key.revoked(api_key.rotated(kept(GOOD), NEW.secret, NOW, HOUR), NOW)

    assert key.former == ()
    assert rejection(NEW, replace(key, revoked_at=None), NOW) is Rejection.UNKNOWN
    assert not api_key.is_active(key, NOW)


def test_both_secrets_are_valid_until_the_overlap_ends() -> None:
    key = api_key.rotated(kept(GOOD, tenant="acme"), NEW.secret, NOW, HOUR)

    assert (key.rotated_at, key.former_expires_at, key.tenant) == (NOW, NOW + HOUR, "acme")
    assert [is_valid(one, key, NOW + HOUR - TICK) for one in (GOOD, NEW, THIRD)] == [True, True, False]
    assert [is_valid(one, key, NOW + HOUR) for one in (GOOD, NEW)] == [False, True]


def test_a_former_secret_ends_with_its_key() -> None:
    key = api_key.rotated(kept(GOOD, expires_at=NOW + TICK), NEW.secret, NOW, HOUR)

    assert is_valid(GOOD, key, NOW)
    assert rejection(GOOD, key, NOW + TICK) is rejection(NEW, key, NOW + TICK) is Rejection.EXPIRED


def test_a_rotation_whose_reply_was_lost_can_be_repeated() -> None:
    """The holder still has the first secret, and keeps it for the whole overlap."""
    lost = api_key.rotated(kept(GOOD), NEW.secret, NOW, HOUR)
    key = api_key.rotated(lost, THIRD.secret, NOW + TICK, HOUR)

    assert [is_valid(one, key, NOW + HOUR - TICK) for one in (GOOD, NEW, THIRD)] == [True, True, True]
    assert [is_valid(one, key, NOW + HOUR) for one in (GOOD, NEW, THIRD)] == [False, True, True]


def test_a_shorter_overlap_ends_every_former_secret_sooner() -> None:
    first = api_key.rotated(kept(GOOD), NEW.secret, NOW, HOUR)
    key, cut = (api_key.rotated(first, THIRD.secret, NOW, overlap) for overlap in (TICK, timedelta(0)))

    assert [is_valid(one, key, NOW) for one in (GOOD, NEW, THIRD)] == [True, True, True]
    assert [is_valid(one, key, NOW + TICK) for one in (GOOD, NEW, THIRD)] == [False, False, True]
    assert cut.former == ()
    assert [is_valid(one, cut, NOW) for one in (GOOD, NEW, THIRD)] == [False, False, True]


def test_former_secrets_are_bounded_in_number_and_forgotten_when_they_end() -> None:
    key = kept(GOOD)
    for _ in range(api_key.MAX_FORMER):
        key = api_key.rotated(key, NEW.secret, NOW, HOUR)

    with pytest.raises(Refused, match="already has 5 former secrets"):
        api_key.rotated(key, THIRD.secret, NOW, HOUR)
    assert len(api_key.rotated(key, THIRD.secret, NOW + HOUR, HOUR).former) == 1


@pytest.mark.parametrize(
    ("changes", "state"), [({"revoked_at": NOW}, "revoked"), ({"expires_at": NOW}, "expired")]
)
def test_a_key_that_has_ended_is_not_rotated(changes: dict[str, Any], state: str) -> None:
    with pytest.raises(Refused, match=f"is {state}; create another"):
        api_key.rotated(kept(GOOD, **changes), NEW.secret, NOW, HOUR)


def test_a_key_is_obsolete_long_after_it_ended() -> None:
    long_after = NOW + api_key.KEEP_FOR
    assert not api_key.is_obsolete(kept(GOOD), long_after + HOUR)
    for changes in ({"revoked_at": NOW}, {"expires_at": NOW}):
        assert not api_key.is_obsolete(kept(GOOD, **changes), long_after)
        assert api_key.is_obsolete(kept(GOOD, **changes), long_after + TICK)


@given(one=st.text(), other=st.text())
def test_an_idempotency_key_has_one_id_and_tells_no_secret(one: str, other: str) -> None:
    assert (api_key.id_from(one) == api_key.id_from(other)) is (one == other)
    assert re.fullmatch(f"[{LETTERS}]{{12}}", api_key.id_from(one))


def test_the_same_request_makes_equal_keys_but_for_secret_and_time() -> None:
    first = kept(GOOD, expires_at=NOW)
    later = kept(
        NEW, created_at=first.created_at + HOUR, expires_at=NOW + HOUR, last_used_at=NOW, revoked_at=NOW
    )

    assert api_key.is_same_request(first, later)
    for change in ({"label": "x"}, {"scopes": ()}, {"tenant": "x"}, {"queues": ("x",)}, {"rate": 1.0}):
        assert not api_key.is_same_request(first, replace(later, **change))
    assert not api_key.is_same_request(first, replace(later, expires_at=None))
    assert not api_key.is_same_request(first, replace(later, expires_at=NOW))


@pytest.mark.parametrize(
    ("scopes", "message"),
    [
        (["raed"], "there is no scope 'raed'; the scopes are: enqueue, read,"),
        ([], "a key needs at least one scope; the scopes are: enqueue, read,"),
        (["observe", "read"], "the scope observe goes with operate only: with read"),
    ],
)
def test_scopes_that_no_key_can_have_are_refused_with_those_that_there_are(
    scopes: list[str], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message):
        api_key.checked_scopes(scopes)
