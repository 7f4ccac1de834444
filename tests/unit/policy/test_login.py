"""Logins: valid until they, their key or its secret end; their number is bounded."""

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from tests.contents import contents
from tests.unit.samples import HOUR, NOW
from windlass._model.key import ApiKey, Login, Role, Scope
from windlass._policy import api_key
from windlass._policy.api_key import (
    LOGIN_LIFETIME,
    MAX_LOGINS,
    hash_secret,
    is_signed_in,
    login_name,
    new_login,
    superfluous_logins,
)

TICK = timedelta(microseconds=1)
KEY = ApiKey(name="k" * 12, label="ann", hash=hash_secret("one"), scopes=(Scope.READ,), created_at=NOW - HOUR)
LOGIN = new_login("value", KEY, hash_secret("one"), NOW)


def test_the_store_does_not_know_what_the_browser_has() -> None:
    assert LOGIN.name == login_name("value") != login_name("other")
    assert "value" not in contents(LOGIN)
    assert LOGIN.id == LOGIN.name[:12]
    api_key.check_login(LOGIN)


@pytest.mark.parametrize(
    ("key", "at", "valid"),
    [
        (KEY, NOW, True),
        (KEY, NOW + LOGIN_LIFETIME - TICK, True),
        (KEY, NOW + LOGIN_LIFETIME, False),
        (None, NOW, False),
        (replace(KEY, name="x" * 12), NOW, False),
        (replace(KEY, expires_at=NOW + HOUR), NOW + HOUR - TICK, True),
        (replace(KEY, expires_at=NOW + HOUR), NOW + HOUR, False),
        (api_key.revoked(KEY, NOW), NOW, False),
        (api_key.rotated(KEY, "two", NOW, HOUR), NOW + HOUR - TICK, True),
        (api_key.rotated(KEY, "two", NOW, HOUR), NOW + HOUR, False),
        (api_key.rotated(KEY, "two", NOW, timedelta(0)), NOW, False),
    ],
)
def test_it_ends_with_the_key_and_with_its_secret(key: ApiKey | None, at: datetime, *, valid: bool) -> None:
    assert is_signed_in(LOGIN, key, at) is valid


def aged(number: int, age: timedelta) -> Login:
    return replace(LOGIN, name=f"{number:064x}", created_at=NOW - age, expires_at=NOW - age + LOGIN_LIFETIME)


def test_expired_ones_and_the_oldest_go() -> None:
    fresh = [aged(number, TICK * number) for number in range(MAX_LOGINS)]
    assert [*superfluous_logins(fresh, NOW)] == []
    expired = aged(5_000, LOGIN_LIFETIME)
    assert [*superfluous_logins([expired, *fresh], NOW)] == [expired]
    more = [aged(6_000, HOUR), aged(7_000, 2 * HOUR)]
    assert [*superfluous_logins([expired, *fresh, *more], NOW)] == [expired, more[1], more[0]]
    assert [*superfluous_logins([], NOW)] == []


def test_roles_are_sets_of_scopes() -> None:
    assert Role.READ.scopes == (Scope.READ,)
    assert {*Role.READ.scopes} < {*Role.OPERATE.scopes}
    assert Scope.ADMIN not in Role.OPERATE.scopes
    assert Role.ADMIN.scopes == (Scope.ADMIN,)  # which includes every other
