"""Signatures of webhook messages (Standard Webhooks): valid ones pass, all others fail."""

import hmac
from base64 import b64decode, b64encode
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.alerts import checked_secret, sign, verify_signature
from windlass.errors import InvalidOption

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "another-secret-not-in-base64"
BODY = b'{"test": 2432232314}'
ID, AT = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_790_000_000


def signed(secret: str | list[str] = SECRET, **changed: str) -> dict[str, str]:
    """The headers of a message, with these changed."""
    others = {name.replace("_", "-"): value for name, value in changed.items()}
    return {**sign(secret, BODY, message_id=ID, at=AT), **others}


def mac(key: bytes) -> str:
    return b64encode(hmac.new(key, f"{ID}.{AT}.".encode() + BODY, sha256).digest()).decode()


class TestSigning:
    def test_the_vector_of_the_standards_own_libraries_comes_out(self) -> None:
        headers = sign(SECRET, BODY, message_id=ID, at=1_614_265_330)

        assert headers == {
            "webhook-id": ID,
            "webhook-timestamp": "1614265330",
            "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        }

    def test_a_prefixed_secret_is_decoded_and_other_text_is_its_bytes(self) -> None:
        decoded = b64decode(SECRET.removeprefix("whsec_"))

        assert signed(SECRET)["webhook-signature"] == f"v1,{mac(decoded)}"
        assert signed(OTHER)["webhook-signature"] == f"v1,{mac(OTHER.encode())}"

    def test_padding_may_be_left_out(self) -> None:
        padded = f"whsec_{b64encode(bytes(25)).decode()}"

        assert padded.endswith("==")
        assert signed(padded) == signed(padded.rstrip("="))

    @pytest.mark.parametrize("between", [",", " ", ", ", "\n", " ,, "])
    def test_several_secrets_sign_side_by_side(self, between: str) -> None:
        both = f"{signed(SECRET)['webhook-signature']} {signed(OTHER)['webhook-signature']}"

        assert signed(f" {SECRET}{between}{OTHER},")["webhook-signature"] == both
        assert signed([SECRET, OTHER])["webhook-signature"] == both

    @pytest.mark.parametrize("message_id", ["", "a.b", "a b", "a\r\nb", "ä", "a" * 257])
    def test_an_id_fits_a_header_and_holds_no_full_stop(self, message_id: str) -> None:
        with pytest.raises(InvalidOption, match="full stop"):
            sign(SECRET, BODY, message_id=message_id, at=AT)


class TestVerifying:
    def test_what_was_signed_is_verified(self) -> None:
        assert verify_signature(SECRET, signed(), BODY, now=AT)
        assert verify_signature(SECRET, {"Host": "a", **signed()}, BODY, now=AT)

    @pytest.mark.parametrize("written", [str.upper, str.title, str.lower])
    def test_headers_are_found_in_any_case(self, written: Any) -> None:
        headers = {written(name): value for name, value in signed().items()}

        assert verify_signature(SECRET, headers, BODY, now=AT)

    def test_another_secret_id_time_or_body_is_not(self) -> None:
        assert not verify_signature(OTHER, signed(), BODY, now=AT)
        assert not verify_signature(SECRET, signed(webhook_id=f"{ID}x"), BODY, now=AT)
        assert not verify_signature(SECRET, signed(webhook_timestamp=str(AT + 1)), BODY, now=AT)
        assert not verify_signature(SECRET, signed(), BODY + b" ", now=AT)

    def test_a_secret_is_not_taken_for_its_own_text(self) -> None:
        assert not verify_signature(SECRET.removeprefix("whsec_"), signed(), BODY, now=AT)

    def test_an_old_message_is_not_taken_again(self) -> None:
        assert verify_signature(SECRET, signed(), BODY, now=AT + 300)
        assert verify_signature(SECRET, signed(), BODY, now=AT - 300)
        assert not verify_signature(SECRET, signed(), BODY, now=AT + 301)
        assert not verify_signature(SECRET, signed(), BODY, now=AT - 301)
        assert not verify_signature(SECRET, signed(), BODY, tolerance=timedelta(seconds=5), now=AT + 6)
        assert not verify_signature(SECRET, signed(), BODY, tolerance=float("nan"), now=AT)
        assert not verify_signature(SECRET, sign(SECRET, BODY, message_id=ID, at=1), BODY)

    def test_any_of_several_signatures_is_enough(self) -> None:
        right = signed()["webhook-signature"]
        wrong = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="

        for named in (f"{wrong} {right}", f"{right} {wrong}", f"v1a,{wrong[3:]} v2 , x {right}"):
            assert verify_signature(SECRET, signed(webhook_signature=named), BODY, now=AT)
        for named in (wrong, right.replace("v1,", "v2,"), right.replace("v1,", "v1a,"), right[3:]):
            assert not verify_signature(SECRET, signed(webhook_signature=named), BODY, now=AT)

    def test_while_a_secret_is_being_changed_there_is_no_gap(self) -> None:
        for sent in (SECRET, f"{OTHER},{SECRET}"):  # the sender first has the old one, then both
            assert verify_signature(SECRET, signed(sent), BODY, now=AT)
        for sent in (f"{OTHER} {SECRET}", OTHER):  # and once receivers have the new one, that alone
            assert verify_signature(OTHER, signed(sent), BODY, now=AT)
        for taken in (f"{OTHER} {SECRET}", [OTHER, SECRET], (SECRET, OTHER)):
            assert verify_signature(taken, signed(), BODY, now=AT)

    def test_a_full_stop_cannot_be_moved_into_the_id(self) -> None:
        headers = sign(SECRET, b"1790000000.{}", message_id="a", at=AT)
        moved = {**headers, "webhook-id": f"a.{AT}"}

        assert verify_signature(SECRET, headers, b"1790000000.{}", now=AT)
        assert not verify_signature(SECRET, moved, b"{}", now=AT)

    @pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
    def test_a_header_that_is_missing_or_there_twice_is_refused(self, name: str) -> None:
        missing = {key: value for key, value in signed().items() if key != name}
        twice = {**signed(), name.upper(): signed()[name]}

        assert not verify_signature(SECRET, missing, BODY, now=AT)
        assert not verify_signature(SECRET, twice, BODY, now=AT)

    @pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
    @pytest.mark.parametrize(
        "value",
        [
            None,
            "",
            " ",
            ",",
            "v1,",
            "v1,ä",
            "-1",
            "1e9",
            "١٢٣",
            "9" * 13,
            "a.b",
            "x" * 5_000,
            b"1",
            1_790_000_000,
        ],
    )
    def test_a_header_that_is_none_is_refused(self, name: str, value: Any) -> None:
        assert not verify_signature(SECRET, {**signed(), name: value}, BODY, now=AT)

    @given(headers=st.dictionaries(st.sampled_from([*signed(), "x"]), st.text()), body=st.binary())
    def test_no_headers_make_it_fail(self, headers: dict[str, str], body: bytes) -> None:
        assert not verify_signature(SECRET, headers, body, now=AT)

    @given(signature=st.text())
    def test_no_signature_makes_it_fail(self, signature: str) -> None:
        assert not verify_signature(SECRET, signed(webhook_signature=signature), BODY, now=AT)


class TestSecrets:
    @pytest.mark.parametrize(
        ("secret", "said"),
        [
            (None, "must be text"),
            ("", "must be text"),
            (" , ", "must be text"),
            ([], "must be text"),
            (["", SECRET], "must be text"),
            (17, "must be text"),
            (b"0123456789abcdef01234567", "must be text"),
            ("hunter2", "24 to 64 bytes, not 7"),
            (f"{SECRET} hunter2", "24 to 64 bytes, not 7"),
            ("x" * 23, "24 to 64 bytes, not 23"),
            ("x" * 65, "24 to 64 bytes, not 65"),
            (f"whsec_{b64encode(bytes(23)).decode()}", "24 to 64 bytes, not 23"),
            ("whsec_", "24 to 64 bytes, not 0"),
            ("whsec_hunter2-hunter2-hunter2-hunter2-x", "whsec_ and base64"),
            ("whsec_hunter2=hunter2=hunter2=hunter2=x", "whsec_ and base64"),
            ("hunter2\udcff" * 4, "in UTF-8"),
            (f"whsk_{'hunter2' * 6}", "ed25519"),
            (f"whpk_{'hunter2' * 6}", "ed25519"),
        ],
    )
    def test_a_secret_must_be_one_and_is_not_repeated(self, secret: Any, said: str) -> None:
        with pytest.raises(InvalidOption, match=said) as refused:
            verify_signature(secret, signed(), BODY, now=AT)

        assert "hunter2" not in str(refused.value)
        assert "openssl rand" in str(refused.value)

    @pytest.mark.parametrize("secret", ["x" * 24, "x" * 64, "ä" * 12, SECRET, f"{SECRET},{OTHER}"])
    def test_a_good_one_is_kept_as_it_is_and_does_not_show_itself(self, secret: str) -> None:
        kept = checked_secret(secret)

        assert kept == secret
        assert secret not in repr([kept])

    @pytest.mark.parametrize("secret", [None, "", "hunter2", [SECRET]])
    def test_a_setting_is_one_text(self, secret: Any) -> None:
        with pytest.raises(InvalidOption):
            checked_secret(secret)
