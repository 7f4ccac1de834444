"""Redaction: secret fields are masked in payloads, and their values in errors."""

import json
import traceback
from typing import Any
from urllib.parse import quote, quote_plus, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._policy.secrets.fields import MASK, MAX_SECRET, WHOLE, inherited
from windlass._policy.secrets.mask import Mask, mask_of, redact
from windlass._policy.secrets.places import secret_paths
from windlass._policy.secrets.values import MAX_SCRUBBED, scrub, scrub_json, secret_values

payloads = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "pin", "password", "note"]), inner, max_size=4)
    ),
    max_leaves=10,
)


def test_a_declared_field_is_masked_wherever_it_is() -> None:
    payload = {"pin": 1234, "card": {"pin": "5678", "name": "Ann"}, "all": [{"pin": None}]}

    assert redact(payload, ["pin"]) == {
        "pin": MASK,
        "card": {"pin": MASK, "name": "Ann"},
        "all": [{"pin": MASK}],
    }


def test_a_declared_path_is_masked_only_there() -> None:
    payload = {"number": 1, "card": {"number": 2, "old": {"number": 3}}}

    assert redact(payload, ["card.number"]) == {"number": 1, "card": {"number": MASK, "old": {"number": 3}}}


def test_a_path_goes_through_lists() -> None:
    payload = {"cards": [{"number": 1}, [{"number": 2}]]}

    assert redact(payload, ["cards.number"]) == {"cards": [{"number": MASK}, [{"number": MASK}]]}


@pytest.mark.parametrize(
    "name",
    [
        *("password", "Passwd", "user_password", "passphrase", "client_secret", "access_token", "TOKEN"),
        *("api_key", "apiKey", "api-key", "Authorization", "authorisation", "credentials"),
        *("private_key", "privateKey", "cvv", "ssn", "SSN", "user_ssn", "userSSN", "userSsn"),
    ],
)
def test_a_telling_name_is_masked_unasked(name: str) -> None:
    assert redact({"a": [{name: "x"}]}) == {"a": [{name: MASK}]}


@pytest.mark.parametrize("name", ["className", "businessName", "key", "author", "user", "pass", ""])
def test_an_innocent_name_is_left_alone(name: str) -> None:
    assert redact({name: "x"}) == {name: "x"}


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "text", [1], {"a": 1}, [], {}])
def test_a_secret_of_any_type_is_masked_whole(value: object) -> None:
    assert redact({"password": value}) == {"password": MASK}


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "password", [1, "a"], {"a": {"b": [None]}}])
def test_what_is_not_secret_stays_as_it_is(value: object) -> None:
    assert redact(value) == value


def test_the_payload_itself_is_not_changed() -> None:
    payload = {"password": "x", "a": [{"token": "y"}]}

    redact(payload)

    assert payload == {"password": "x", "a": [{"token": "y"}]}


def test_secret_values_are_the_texts_behind_the_masks() -> None:
    payload = {"password": "hunter2", "pins": [1234, {"x": 5.25}], "note": "plain", "token": {"a": ["deep"]}}

    assert secret_values(payload, ["pins"]) == ("hunter2", "1234", "5.25", "deep")


def test_values_too_short_or_too_common_to_be_told_from_text_are_not_looked_for() -> None:
    assert secret_values({"password": ["ab", 12, None, True, False, ""]}) == ()


def test_the_longest_secret_is_masked_first() -> None:
    values = secret_values({"token": ["abc", "abcdef"]})

    assert values == ("abcdef", "abc")
    assert scrub("abcdef abc", values) == f"{MASK} {MASK}"


def test_a_secret_is_masked_also_as_errors_quote_it() -> None:
    payload = {"password": "it's\n\"é\\x"}
    text = (
        f"{payload!r} {json.dumps(payload)} {payload['password']} {json.dumps(payload, ensure_ascii=False)}"
    )

    scrubbed = scrub(text, secret_values(payload))

    assert "it" not in scrubbed
    assert scrubbed.count(MASK) == 4


@pytest.mark.parametrize("secret", ["pässwörd9", "it's\n\"é\\x", '"a"b"', "lone \ud800 one"])
def test_a_secret_is_masked_also_in_the_repr_of_bytes(secret: str) -> None:
    payload = {"password": secret}
    plain = json.dumps(payload).encode()
    values = secret_values(payload)

    for data in (plain, json.dumps(payload, ensure_ascii=False).encode("utf-8", "surrogatepass")):
        assert scrub(repr(data), values) == f"""b'{{"password": "{MASK}"}}'"""
    assert scrub(repr(secret.encode("utf-8", "surrogatepass")), values)[2:-1] == MASK


def test_a_secret_is_masked_also_as_urls_spell_it() -> None:
    values = secret_values({"password": "a/b+c d&é"})

    for text in (quote("a/b+c d&é", safe=""), quote("a/b+c d&é"), quote_plus("a/b+c d&é")):
        assert scrub(f"https://x/?p={text}&y", values) == f"https://x/?p={MASK}&y"


def test_each_line_of_a_secret_is_masked() -> None:
    """As the traceback of an exception group indents them."""
    key = "-----BEGIN KEY-----\nMIIEvgIBADANBgkqh\nkiG9w0BAQEFAAS\n-----END KEY-----\n"
    error = ExceptionGroup("both", [ValueError(key), ValueError(key)])
    text = "".join(traceback.format_exception(error))
    assert key not in text

    scrubbed = scrub(text, secret_values({"private_key": key}))

    assert not [line for line in key.splitlines() if line in scrubbed]


def test_short_lines_and_a_great_many_are_not_searched_for_one_by_one() -> None:
    assert "cdefghij" in secret_values({"password": "ab\ncdefghij"})
    assert "ab" not in secret_values({"password": "ab\ncdefghij"})
    assert len(secret_values({"password": "\n".join(f"line {n:08}" for n in range(500))})) < 10


def test_secrets_that_look_like_the_mask_do_not_make_it_grow() -> None:
    parts = {MASK[start:end] for start in range(len(MASK)) for end in range(start + 3, len(MASK) + 1)}

    scrubbed = scrub("ret", secret_values({"token": sorted(parts)}))

    assert scrubbed == MASK


@given(payloads, st.text(max_size=5), st.text(max_size=5), st.data())
def test_no_secret_survives_a_scrub(payload: Any, before: str, after: str, data: st.DataObject) -> None:
    values = secret_values({"wrap": payload}, ["a", "wrap.pin"])
    quoted = data.draw(st.lists(st.sampled_from(values), max_size=4)) if values else []
    text = before + "".join(quoted) + after

    scrubbed = scrub(text, values)

    for piece in scrubbed.split(MASK):
        assert not [value for value in values if value in piece]


@given(payloads)
def test_nothing_secret_is_left_in_a_redacted_payload(payload: Any) -> None:
    masked = redact(payload, ["pin"])

    assert {unquote(one) for one in secret_values(masked, ["pin"])} <= {MASK}
    assert redact(masked, ["pin"]) == masked or masked != masked  # noqa: PLR0124 - a NaN equals nothing


# -- values wherever they occur ----------------------------------------------------------------------


def test_a_value_is_masked_in_other_texts_in_keys_and_as_a_number() -> None:
    payload = {"pin": 1234, "note": "pin 1234", "by": {"1234": [1234, 12345, True]}, "n": 1.5}

    assert mask_of(json.dumps(payload).encode(), ("pin",)).json(payload) == {
        "pin": MASK,
        "note": f"pin {MASK}",
        "by": {MASK: [MASK, 12345, True]},
        "n": 1.5,
    }


def test_keys_of_a_secret_object_are_secret_unless_they_are_names_of_fields() -> None:
    values = secret_values({"credentials": {"hunter-2": {"user": 1}, "ab": "xyz"}})

    assert "hunter-2" in values
    assert "xyz" in values
    assert "user" not in values
    assert "ab" not in values


def test_more_values_than_can_be_searched_for_mask_the_whole_text() -> None:
    values = tuple(f"value-{number}" for number in range(MAX_SCRUBBED + 1))

    assert scrub("nothing", values) == MASK
    assert scrub_json({"a": "nothing"}, values) == MASK
    assert scrub("nothing", values[1:]) == "nothing"


def test_texts_are_not_matched_across_their_ends() -> None:
    assert scrub_json(["ab", "cd"], ("abcd", "bc")) == ["ab", "cd"]


def test_what_is_not_json_is_masked_as_a_whole() -> None:
    mask = mask_of(b"{sesame", ())

    assert mask.text("{sesame") == MASK
    assert mask.encoded(b"{sesame") == b'"[secret]"'


def test_a_result_may_be_secret_as_a_whole() -> None:
    assert Mask((WHOLE,)).result(b'{"a":1}') == b'"[secret]"'
    assert Mask(("a",)).result(b'{"a":1}') == b'{"a":"[secret]"}'


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        ({"a": {"b": ["x", "sesame!"]}, "c": 1}, ("a.b",)),
        ({"a": {"sesame": 1}}, ("a",)),
        ([{"a": "sesame"}, {"b": "sesame"}], ("a", "b")),
        ("open sesame", (WHOLE,)),
        (["sesame"], (WHOLE,)),
        ({"sesame": 1}, (WHOLE,)),
        ({"a": "x"}, ()),
        ({"f" * 600: "sesame"}, (WHOLE,)),
        ({"re:x": "sesame"}, (WHOLE,)),
        ({"a\n": "sesame"}, (WHOLE,)),
        ({f"f{number}": "sesame" for number in range(MAX_SECRET + 1)}, (WHOLE,)),
    ],
)
def test_the_paths_of_a_value_in_a_result(value: Any, paths: tuple[str, ...]) -> None:
    assert secret_paths(value, ("sesame",)) == paths
    assert secret_paths(value, ()) == ()


def test_all_of_a_result_is_inherited_as_the_parameter_that_takes_it() -> None:
    assert inherited(("own",), (WHOLE, "pin"), "before") == ("own", "pin", "before")


def test_inherited_paths_do_not_grow_without_bound() -> None:
    secret: tuple[str, ...] = ("card.number",)
    for level in range(60):  # twice as many on each level, were there no bound
        secret = inherited(("own",), secret, f"result_{level}")
        assert len(secret) <= MAX_SECRET
    assert inherited(("own",), [f"card.n{one}" for one in range(60)], "before") == ("own", "before")
    assert inherited(("own",), [f"card.{'n' * 510}", "re:[0-9]+"], "before") == ("own", "before", "re:[0-9]+")


@given(payloads)
def test_a_masked_document_holds_no_secret_value(payload: Any) -> None:
    document = {"password": "s3cr3t-value", "rest": payload, "s3cr3t-value": "has s3cr3t-value"}

    masked = mask_of(json.dumps(document).encode(), ()).json(document)

    assert "s3cr3t-value" not in json.dumps(masked)
