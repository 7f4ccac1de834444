"""Keyrings: where keys come from, what they encrypt, and that no message shows one."""

import base64
from pathlib import Path

import pytest

from windlass._encryption import keys as module
from windlass._encryption.keys import Keyring, Undecryptable, new_key
from windlass._policy.input.fingerprint import fingerprint
from windlass._policy.input.keys import request_digest
from windlass.errors import InvalidOption

ONE, TWO = b"1" * 32, b"2" * 32
TEXT = ",".join(f"{name}:{base64.b64encode(key).decode()}" for name, key in (("k2", TWO), ("k1", ONE)))
PLACE = b"here"


def test_the_first_key_encrypts_and_all_decrypt() -> None:
    old, both = Keyring([("k1", ONE)]), Keyring.parse(TEXT)

    assert both.ids == ("k2", "k1")
    assert both.encrypt(b'"x"', PLACE).startswith("~windlass-encrypted:1:k2:")
    assert both.decrypt(old.encrypt(b'"x"', PLACE), PLACE) == b'"x"'


def test_equal_values_are_not_encrypted_equally() -> None:
    ring = Keyring([("k1", ONE)])

    assert ring.encrypt(b"1", PLACE) != ring.encrypt(b"1", PLACE)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-3] + ("AA=" if text[-3:] != "AA=" else "BB="),
        lambda text: text.replace(":k1:", ":k2:"),
        lambda text: text.replace(":1:", ":2:"),
        lambda text: text[:40],
        lambda text: text[:-8],
        lambda text: text + "!",
        lambda text: "~windlass-encrypted:",
    ],
    ids=["changed", "unknown key", "unknown version", "short", "cut", "not base64", "empty"],
)
def test_a_changed_value_does_not_decrypt(change) -> None:
    ring = Keyring([("k1", ONE)])

    with pytest.raises(Undecryptable):
        ring.decrypt(change(ring.encrypt(b'"a secret of some length"', PLACE)), PLACE)


def test_a_value_does_not_decrypt_elsewhere() -> None:
    ring = Keyring([("k1", ONE)])

    with pytest.raises(Undecryptable):
        ring.decrypt(ring.encrypt(b"1", PLACE), b"there")


def test_digests_need_the_last_key_and_outlast_a_rotation() -> None:
    old, both = Keyring([("k1", ONE)]), Keyring.parse(TEXT)
    digest = request_digest("pay", b'{"pin":"0000"}')

    assert old.keyed(digest) == both.keyed(digest) != digest
    assert Keyring([("k2", TWO)]).keyed(digest) != both.keyed(digest)


def test_a_keyed_fingerprint_keeps_its_fields_and_other_text_stays() -> None:
    ring = Keyring([("k1", ONE)])
    made = fingerprint(("pin",), "pay", b'{"pin":1}', 0, "")

    assert ring.keyed(made)[64:] == made[64:] == '["pin"]'
    assert ring.keyed(made)[:64] != made[:64]
    assert ring.keyed("schedule:nightly") == "schedule:nightly"
    assert ring.keyed("") == ""


def test_keys_come_from_a_private_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# newest first\n" + TEXT.replace(",", "\n") + "\n")
    file.chmod(0o600)

    assert Keyring.read(file).ids == ("k2", "k1")
    assert Keyring.found(None, str(file)).ids == ("k2", "k1")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_key_file_of_other_users_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "keys"
    file.write_text(TEXT)
    file.chmod(mode)

    with pytest.raises(InvalidOption, match=f"mode {mode:o}.*chmod 600"):
        Keyring.read(file)


def test_a_missing_or_binary_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="No such file"):
        Keyring.read(tmp_path / "keys")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "binary").chmod(0o600)
    with pytest.raises(InvalidOption, match="not UTF-8"):
        Keyring.read(tmp_path / "binary")


def test_keys_are_found_in_a_text_or_a_file() -> None:
    assert Keyring.found(None, "") is None
    assert Keyring.found("", None) is None
    assert Keyring.found(TEXT, None).ids == ("k2", "k1")
    with pytest.raises(InvalidOption, match="exclude each other"):
        Keyring.found(TEXT, "keys")


SECRET = base64.b64encode(b"s3cr3t" * 4).decode()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (SECRET, "no colon"),
        (f"k1:{SECRET}", "must be 32 bytes"),
        (f"k1:{SECRET}*", "not valid base64"),
        (f"a b:{base64.b64encode(ONE).decode()}", "the id of an encryption key"),
        (f"{TEXT},k1:{base64.b64encode(TWO).decode()}", "two different"),
        (" , \n", "no encryption key"),
    ],
)
def test_a_malformed_key_is_refused_without_being_shown(text: str, why: str) -> None:
    with pytest.raises(InvalidOption, match=why) as refused:
        Keyring.parse(text)

    assert SECRET not in str(refused.value)


def test_a_key_may_be_repeated_to_be_the_last() -> None:
    first, second = TEXT.split(",")

    ring = Keyring.parse(f"{second},{first},{second}")

    assert ring.ids == ("k1", "k2")
    assert ring.keyed("0" * 64) == Keyring([("k1", ONE)]).keyed("0" * 64)


def test_a_new_key_makes_a_keyring() -> None:
    assert Keyring.parse(new_key("2026-11")).ids == ("2026-11",)
    assert new_key("a") != new_key("a")
    with pytest.raises(InvalidOption, match="the id"):
        new_key("a:b")


def test_a_keyring_shows_no_key() -> None:
    assert repr(Keyring.parse(TEXT)) == "<keyring k2, k1>"


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(module, "import_module", missing)

    with pytest.raises(InvalidOption, match=r"windlass\[encryption\]"):
        Keyring([("k1", ONE)])
