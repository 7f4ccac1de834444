"""Documents with encrypted fields: they come back byte for byte, and only where they belong."""

import json
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.examples import examples
from windlass._encryption.documents import Documents, Place, values_of
from windlass._encryption.keys import Keyring
from windlass._policy.input.chain import Step, decode_steps, encode_steps
from windlass._policy.input.payload import encode_payload
from windlass._policy.secrets.encrypted import MARKER, PREFIX
from windlass._policy.secrets.mask import Mask
from windlass._policy.secrets.values import MAX_SCRUBBED

RING = Keyring([("k1", b"1" * 32)])
DOCUMENTS = Documents(RING)
HERE = Place("pay", "acme")
SECRET = "hunter2-hunter2"

leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
)  # fmt: skip
names = st.sampled_from(["pin", "card", "number", "id", "a b", ""])
values = st.recursive(
    leaves,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(names, below, max_size=4),
    max_leaves=8,
)
payloads = st.dictionaries(names, values, max_size=4)


@examples(200, 3000)
@given(payloads, st.sets(st.sampled_from(["pin", "card.number", "card", "id"])))
def test_a_payload_comes_back_byte_for_byte(payload, secret) -> None:
    data = msgspec.json.encode(payload)

    encrypted = DOCUMENTS.encrypt_payload(data, HERE, (*secret,))

    assert DOCUMENTS.decrypt_payload(encrypted, HERE) == data
    assert (MARKER in encrypted) == (encrypted != data)
    assert DOCUMENTS.encrypt_payload(encrypted, HERE, (*secret,)) == encrypted  # not twice


@examples(200, 3000)
@given(values, st.sets(st.sampled_from(["pin", "card.number"])))
def test_a_result_comes_back_byte_for_byte(value, secret) -> None:
    data = msgspec.json.encode(value)

    assert DOCUMENTS.decrypt_result(DOCUMENTS.encrypt_result(data, HERE, (*secret,)), HERE) == data


def encrypted_fields(payload, *secret):
    encrypted = msgspec.json.decode(DOCUMENTS.encrypt_payload(encode_payload(payload), HERE, secret))
    return {name for name, value in flat(encrypted) if str(value).startswith("~windlass-encrypted:")}


def flat(value, path=""):
    if isinstance(value, dict):
        for name, item in value.items():
            yield from flat(item, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for item in value:
            yield from flat(item, path)
    else:
        yield path, value


@pytest.mark.parametrize(
    ("secret", "fields"),
    [
        ("pin", {"pin", "card.pin", "list.pin"}),
        ("card.pin", {"card.pin"}),
        ("list.pin", {"list.pin"}),
        ("card", {"card"}),
        ("list", {"list"}),
        ("other", set()),
    ],
)
def test_names_and_dotted_paths_choose_what_is_encrypted(secret: str, fields: set[str]) -> None:
    payload = {"pin": 1, "card": {"pin": "2", "id": 3}, "list": [{"pin": None}, 4]}

    assert encrypted_fields(payload, secret) == fields


def test_a_value_moved_to_another_field_type_or_tenant_stays_encrypted() -> None:
    data = b'{"pin":"1111","old":"2222","list":[{"pin":"3"},{"pin":"4"}]}'
    encrypted = DOCUMENTS.encrypt_payload(data, HERE, ("pin", "old"))
    fields = msgspec.json.decode(encrypted)
    swapped = msgspec.json.encode({**fields, "pin": fields["old"], "old": fields["pin"]})
    shuffled = msgspec.json.encode({**fields, "list": fields["list"][::-1]})

    assert DOCUMENTS.decrypt_payload(swapped, HERE).count(MARKER) == 2
    assert DOCUMENTS.decrypt_payload(shuffled, HERE).count(MARKER) == 2
    for place in (Place("other", "acme"), Place("pay", "evil"), Place("payacme", "")):
        assert DOCUMENTS.decrypt_payload(encrypted, place) == encrypted
    assert DOCUMENTS.decrypt_result(encrypted, HERE) == encrypted


def test_what_cannot_be_decrypted_stays_and_the_rest_is_decrypted() -> None:
    other = Documents(Keyring([("k2", b"2" * 32), ("k1", b"1" * 32)]))
    data = other.encrypt_payload(DOCUMENTS.encrypt_payload(b'{"a":1,"b":2}', HERE, ("a",)), HERE, ("a", "b"))

    assert other.decrypt_payload(data, HERE) == b'{"a":1,"b":2}'
    half = msgspec.json.decode(DOCUMENTS.decrypt_payload(data, HERE))
    assert half["a"] == 1
    assert half["b"].startswith("~windlass-encrypted:1:k2:")


@pytest.mark.parametrize(
    "result",
    [
        SECRET,
        f"the password is {SECRET}!",
        [1, [SECRET]],
        {"x": {"note": SECRET}},
        {SECRET: 1},
        {"a": {SECRET: []}},
    ],
)
def test_a_result_that_repeats_a_secret_elsewhere_is_encrypted_there(result) -> None:
    found = values_of(encode_payload({"password": SECRET, "id": 12}), ("password",))
    data = msgspec.json.encode(result)

    encrypted = DOCUMENTS.encrypt_result(data, HERE, ("password",), found)

    assert SECRET.encode() not in encrypted
    assert DOCUMENTS.decrypt_result(encrypted, HERE) == data


ODD = [
    'can"ary"-4111',
    "can'a\"ry-4111",
    "can\\ary-4111",
    "canary\n-4111-4111",
    "canüary-4111",
    "can<ary>-4111",
]


@pytest.mark.parametrize("secret", ODD)
def test_what_a_mask_masks_in_a_result_is_encrypted(secret: str) -> None:
    """However a text quotes the secret: the encryption asks the mask."""
    found = values_of(encode_payload({"card": secret}), ("card",))
    forms = {
        "as it is": secret,
        "repr": repr(secret),
        "repr of a dict": str({"c": secret}),
        "JSON": json.dumps({"c": secret}),
        "JSON in UTF-8": json.dumps({"c": secret}, ensure_ascii=False),
        "JSON in JSON": json.dumps(json.dumps([secret], ensure_ascii=False)),
        "repr of repr": repr(repr([secret])),
        "bytes": repr(json.dumps(secret).encode()),
        "URL": f"https://x/?c={quote(secret)}",
    }
    result = {name: {"text": f"sent {text}!", "n": [1, text]} for name, text in forms.items()}
    data = msgspec.json.encode({**result, "names": [{text: 1} for text in forms.values()], "plain": "4711"})

    encrypted = DOCUMENTS.encrypt_result(data, HERE, ("card",), found)

    assert b"4111" not in encrypted
    masked = msgspec.json.decode(Mask(("card",), found).encoded(data))
    stored = msgspec.json.decode(encrypted)
    for name in forms:
        assert "[secret]" in masked[name]["text"]
        assert stored[name]["text"].startswith(PREFIX)
        assert stored[name]["n"][0] == 1
    assert stored["plain"] == "4711"
    assert DOCUMENTS.decrypt_result(encrypted, HERE) == data


def test_escapes_in_a_result_hide_no_secret() -> None:
    data = b'{"a":"canary\\u002d4111","canary\\u002d4111":1,"b":[12345678.0,123456789]}'

    assert DOCUMENTS.encrypt_result(data, HERE, (), ("canary-4111",)).startswith(MARKER)
    stored = msgspec.json.decode(DOCUMENTS.encrypt_result(data, HERE, (), ("12345678.0",)))
    assert [str(one).startswith(PREFIX) for one in stored["b"]] == [True, False]


def test_a_field_of_a_payload_that_repeats_a_secret_is_encrypted_and_names_stay() -> None:
    data = b'{"taken":{"x":[{"canary-4111":1},"b canary-4111"],"n":1},"canary-4111":2}'

    encrypted = DOCUMENTS.encrypt_payload(data, HERE, ("x.y",), ("canary-4111",))

    stored = msgspec.json.decode(encrypted)
    assert [*stored] == ["taken", "canary-4111"]
    assert [one.startswith(PREFIX) for one in stored["taken"]["x"]] == [True, True]
    assert DOCUMENTS.decrypt_payload(encrypted, HERE) == data
    assert DOCUMENTS.encrypt_payload(encrypted, HERE, ("x.y",), ("canary-4111",)) == encrypted


def test_more_values_than_can_be_searched_for_encrypt_all_fields() -> None:
    many = tuple(f"value-{number}" for number in range(MAX_SCRUBBED + 1))

    assert DOCUMENTS.encrypt_result(b'{"a":1}', HERE, (), many).startswith(MARKER)
    payload = msgspec.json.decode(DOCUMENTS.encrypt_payload(b'{"a":1,"b":{"c":2}}', HERE, ("c",), many))
    assert [one.startswith(PREFIX) for one in payload.values()] == [True, True]


def test_a_result_may_be_secret_as_a_whole() -> None:
    encrypted = DOCUMENTS.encrypt_result(b'{"a":[1]}', HERE, ("",))

    assert encrypted.startswith(MARKER)
    assert DOCUMENTS.decrypt_result(encrypted, HERE) == b'{"a":[1]}'
    assert DOCUMENTS.encrypt_result(encrypted, HERE, ("",)) == encrypted


def test_short_secrets_are_not_looked_for() -> None:
    assert values_of(b'{"pin":1234,"key":"12345678"}', ("pin", "key")) == ("12345678",)
    assert values_of(b'{"pin":"123456789"}', ()) == ()


def test_steps_are_encrypted_for_the_tenants_of_their_tasks() -> None:
    def step(type_name: str, *following: Step, tenant: str = "") -> Step:
        payload = Raw(b'{"pin":"1111","id":2}')
        return Step(id="i", type=type_name, payload=payload, secret=("pin",), tenant=tenant, next=following)

    plain = encode_steps((step("a", step("b", step("c"), tenant="other")),))

    encrypted = DOCUMENTS.encrypt_steps(plain, "acme")

    assert b"1111" not in encrypted
    assert DOCUMENTS.decrypt_steps(encrypted, "acme") == plain
    (first,) = decode_steps(encrypted)
    third = first.next[0].next[0]
    assert DOCUMENTS.decrypt_payload(bytes(third.payload), Place("c", "other")) == b'{"pin":"1111","id":2}'
    assert DOCUMENTS.decrypt_steps(encrypted, "evil").count(MARKER) == 1  # of the tenant that is not given


def test_steps_without_secrets_stay_as_they_are() -> None:
    plain = encode_steps((Step(id="i", type="a", payload=Raw(b'{"pin": 1}')),))

    assert DOCUMENTS.encrypt_steps(plain, "acme") is plain


@pytest.mark.parametrize(
    "data", [b'{"a":"~windlass-encrypted:1:k1:x"', b'{"~windlass-encrypted:\xff":1}', b"["]
)
def test_what_is_not_json_stays_as_it_is(data: bytes) -> None:
    assert DOCUMENTS.decrypt_payload(data, HERE) == data
    assert DOCUMENTS.decrypt_result(data, HERE) == data
    assert DOCUMENTS.decrypt_steps(data, "acme") == data
    assert values_of(data, ("a",)) == ()
