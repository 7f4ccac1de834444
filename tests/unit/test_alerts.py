"""The signature of webhook messages: right ones pass, everything else does not, whatever it is."""

import hmac
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.alerts import checked_secret, sign, verify_signature
from windlass.errors import InvalidOption

SECRET, OTHER = "0123456789abcdef", "fedcba9876543210"
BODY = b'{"id": "a"}'
AT = 1_790_000_000


def test_the_signature_is_what_the_docs_say() -> None:
    expected = hmac.new(SECRET.encode(), b"1790000000." + BODY, sha256).hexdigest()

    assert sign(SECRET, BODY, at=AT) == f"t=1790000000,v1={expected}"


def test_what_was_signed_is_verified() -> None:
    header = sign(SECRET, BODY, at=AT)

    assert verify_signature(SECRET, header, BODY, now=AT)
    assert verify_signature(SECRET, f"v0=x, {header} ,v1=00", BODY, now=AT)


def test_another_secret_body_or_time_is_not() -> None:
    header = sign(SECRET, BODY, at=AT)

    assert not verify_signature(OTHER, header, BODY, now=AT)
    assert not verify_signature(SECRET, header, BODY + b" ", now=AT)
    assert not verify_signature(SECRET, header.replace("t=179", "t=178"), BODY, now=AT - 10_000_000)


def test_an_old_message_is_not_taken_again() -> None:
    header = sign(SECRET, BODY, at=AT)

    assert verify_signature(SECRET, header, BODY, now=AT + 300)
    assert not verify_signature(SECRET, header, BODY, now=AT + 301)
    assert not verify_signature(SECRET, header, BODY, now=AT - 301)
    assert not verify_signature(SECRET, header, BODY, tolerance=timedelta(seconds=5), now=AT + 6)
    assert not verify_signature(SECRET, header, BODY)


def test_while_a_secret_is_being_changed_both_are_taken() -> None:
    for secret in (SECRET, OTHER):
        assert verify_signature([OTHER, SECRET], sign(secret, BODY, at=AT), BODY, now=AT)
    assert not verify_signature([OTHER], sign(SECRET, BODY, at=AT), BODY, now=AT)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "t=",
        "v1=00",
        f"t={AT}",
        f"t={AT},v1=",
        f"t={AT},t={AT},v1=00",
        f"t=-{AT},v1=00",
        "t=١٢٣,v1=00",
        f"t={'9' * 13},v1=00",
        f"t={AT},v1=ä",
        "x" * 5_000,
        b"t=1,v1=00",
    ],
)
def test_a_header_that_is_none_is_refused(header: Any) -> None:
    assert not verify_signature(SECRET, header, BODY, now=AT)


@given(header=st.text(), body=st.binary())
def test_no_header_makes_it_fail(header: str, body: bytes) -> None:
    assert not verify_signature(SECRET, header, body, now=AT)


@pytest.mark.parametrize("secret", [None, "", [], "short", ["", SECRET], 17, b"0123456789abcdef"])
def test_a_secret_must_be_one(secret: Any) -> None:
    with pytest.raises(InvalidOption) as refused:
        verify_signature(secret, sign(SECRET, BODY, at=AT), BODY, now=AT)

    assert "short" not in str(refused.value)


def test_a_secret_does_not_show_itself() -> None:
    assert SECRET not in repr([checked_secret(SECRET)])
