"""Values in text that is quoted by JSON or repr, however often."""

import json
from collections.abc import Callable
from itertools import product

import pytest

from windlass._policy.secrets.fields import MASK
from windlass._policy.secrets.values import scrub, scrub_json, secret_values

ODD = [
    'zq7-"q"-4111',
    "zq7-it's-4111",
    "zq7-'b\"-4111",
    "zq7\\b\\-4111",
    "zq7-line\nline-4111",
    "zq7-ü€😀-4111",
    "zq7-<x>&-/4111",
    "zq7\"'\\\n<é/-4111",
    "\\\"zq7'",
]
QUOTES: list[Callable[[object], str]] = [
    json.dumps,
    lambda text: json.dumps(text, ensure_ascii=False),
    repr,
    lambda text: json.dumps({"c": [text]}),
    lambda text: str({"c": text}),
    lambda text: repr(str(text).encode()),
    lambda text: json.dumps(text).replace("/", "\\/"),  # as PHP does
]


@pytest.mark.parametrize("secret", ODD)
def test_a_value_is_masked_however_often_it_is_quoted(secret: str) -> None:
    values = secret_values({"card": secret}, ["card"])

    for depth in range(4):
        for quotes in product(QUOTES, repeat=depth):
            text = secret
            for quote in quotes:
                text = quote(text)
            shown = scrub(f'a \\ b {text} and {text} c \\" d', values)
            assert "zq7" not in shown
            assert "4111" not in shown
            assert shown.count(MASK) == 2
            assert shown.startswith("a \\ b ")
            assert shown.endswith(' c \\" d')


def test_text_beside_a_quoted_value_stays() -> None:
    values = secret_values({"cards": ['zq7"x"', 'x"zq7"']}, ["cards"])

    assert scrub(r"C:\new zq7x \\zq7 \"zq7\"x", values) == r"C:\new zq7x \\zq7 \"zq7\"x"
    assert scrub(r"zq7\\\"x\\\"zq7\\\" \n", values) == rf"{MASK} \n"  # they overlap
    assert scrub_json([r"zq7\\\"x\\", '"'], values) == [r"zq7\\\"x\\", '"']


def test_a_value_that_quoting_does_not_change_is_not_looked_for_without_backslashes() -> None:
    values = secret_values({"card": "abc-123"}, ["card"])

    assert scrub(r"ab\c-123 abc-123", values) == rf"ab\c-123 {MASK}"
    assert scrub(r"\n", ("\\\\\\",)) == r"\n"
