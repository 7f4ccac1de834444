"""Redaction patterns: accepted only if no text can make them slow; their matches are masked."""

import random
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass import InvalidOption
from windlass._policy.secrets.fields import MASK, inherited
from windlass._policy.secrets.mask import redact
from windlass._policy.secrets.patterns import (
    MAX_LENGTH,
    MAX_PATTERNS,
    MAX_STEPS,
    checked_patterns,
    compiled,
    compiled_together,
    patterns_of,
)
from windlass._policy.secrets.values import scrub, secret_values

CARD = r"\b\d{13,19}\b"
NUMBER = "4111111111111111"
USUAL = [
    CARD,
    r"\b\d{4}[ -]?\d{4}[ -]?\d{4}[ -]?\d{1,7}\b",
    r"[\w.+-]{1,64}@[\w.-]+",
    r"AKIA[0-9A-Z]{16}",
    r"eyJ[\w.-]+",
    r"(?i)bearer \S+",
    r"sk_(?:live|test)_\w+",
    r"(?<=pin=)\d{4}",
    r"(?:ab|cd){1,3}x?",
    r"(?>a|b){2}c",
    r"x(?!y)\w{3,}",
    r"[^a]b.",
]
CATASTROPHIC = [
    r"(a+)+$",
    r"(a|a)*b",
    r"(a*)*",
    r"a*a*b",
    r"(\w+\s?)*$",
    r"\w+@x",
    r"\w++@x",
    r"(a?){20}a{20}",
    r"(a{1,30}){1,30}$",
    r"(?=\w+)x",
    r"(?:x\w+){1,3}",
    r"(a){1,5000}b",
    r"a{1,5000}b",
]


@pytest.mark.parametrize("pattern", USUAL)
def test_a_usual_pattern_is_accepted(pattern: str) -> None:
    assert checked_patterns([pattern]) == (f"re:{pattern}",)


@pytest.mark.parametrize("pattern", CATASTROPHIC)
def test_a_pattern_that_a_text_can_make_slow_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidOption, match=r"unbounded time|steps for each character"):
        checked_patterns([pattern])


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "not a regular expression"),
        ("a{1,99999999999}", "not a regular expression"),
        ("", "1 to 190 characters"),
        ("a" * (MAX_LENGTH + 1), "1 to 190 characters"),
        (7, "1 to 190 characters"),
        ("x*", "matches the empty text"),
        (r"\b", "matches the empty text"),
        (r"(\w)\1", "refers to what a group has matched"),
        (r"(a)?(?(1)b|c)", "refers to what a group has matched"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(InvalidOption, match=why):
        checked_patterns([pattern])


def test_number_and_steps_of_patterns_are_bounded_together() -> None:
    with pytest.raises(InvalidOption, match="33 patterns, at most 32"):
        checked_patterns([f"a{n}" for n in range(MAX_PATTERNS + 1)])
    with pytest.raises(InvalidOption, match="up to 792 steps for each character"):
        checked_patterns([rf"a{{1,99}}{end}" for end in "bcd"], (r"a{1,99}e",))


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (CARD, "1" * 100_000),
        (r"[\w.+-]{1,64}@[\w.-]+", "a" * 100_000),
        (r"a{1,245}b", "a" * 100_000),
        (r"(?:\d[ -]?){1,6}x", "1 " * 50_000),
    ],
)
def test_no_text_makes_an_accepted_pattern_slow(pattern: str, text: str) -> None:
    values = secret_values({}, checked_patterns([pattern]))
    began = perf_counter()

    scrub(text, values)

    assert perf_counter() - began < 2.0  # 0.1 s on a quiet machine; (a+)+$ would take for ever


@given(st.text("ab?+*{}(),|12$", max_size=12))
def test_an_accepted_pattern_is_quick_on_random_texts(pattern: str) -> None:
    try:
        rules = checked_patterns([pattern])
    except InvalidOption:
        return
    dice = random.Random(pattern)
    text = "".join(dice.choice("ab") for _ in range(2_000))
    began = perf_counter()

    scrub(text, secret_values({}, rules))

    assert perf_counter() - began < 1.0


def test_matches_are_masked_in_texts_numbers_and_names() -> None:
    rules = checked_patterns([CARD])
    payload = {
        "note": f"card {NUMBER}.",
        NUMBER: 1,
        "n": int(NUMBER),
        "small": 7,
        "on": True,
        "no": None,
        "all": [NUMBER],
    }

    assert redact(payload, rules) == {
        "note": f"card {MASK}.", MASK: 1, "n": MASK, "small": 7, "on": True, "no": None, "all": [MASK],
    }  # fmt: skip
    assert scrub(f"no such card: {NUMBER}", secret_values({}, rules)) == f"no such card: {MASK}"


def test_what_is_masked_already_stays_as_it_is() -> None:
    values = secret_values({}, checked_patterns([r"\w{3,}"]))

    assert scrub(scrub("hello you", values), values) == f"{MASK} {MASK}"


def test_known_values_are_masked_before_patterns_could_split_them() -> None:
    payload = {"password": f"abc{NUMBER[:4]}"}

    assert scrub(f"abc{NUMBER[:4]}", secret_values(payload, checked_patterns([r"\d{3,4}"]))) == MASK


def test_what_is_too_long_to_be_searched_is_masked_whole() -> None:
    rules = checked_patterns([CARD])

    assert scrub("x" * 100_001, secret_values({}, rules)) == MASK
    assert redact({"a": ["x" * 50_000, {"b": "x" * 50_001}]}, rules) == MASK
    assert redact({"a": ["x" * 50_000, {"b": "x" * 50_001}]}) != MASK


def test_a_task_that_brings_too_many_patterns_is_masked_whole() -> None:
    """As anybody may who can enqueue, with a text that makes each of them slow."""
    rules = [f"re:a{{1,200}}{end}" for end in "bcdef"]

    assert redact({"x": "a" * 50_000, "n": 7}, rules[:2]) == {"x": "a" * 50_000, "n": 7}
    assert redact({"x": "a" * 50_000, "n": 7}, rules) == MASK


def test_a_pattern_that_would_be_refused_is_taken_as_a_name() -> None:
    """As another program might have stored it."""
    assert compiled("re:(a+)+$") is None
    assert compiled_together(("re:(a+)+$", "a")) == ()
    assert redact({"x": "a" * 50 + "!", "re:(a+)+$": 1}, ["re:(a+)+$"]) == {
        "x": "a" * 50 + "!",
        "re:(a+)+$": MASK,
    }
    assert scrub("aaa", ("\0(a+)+$",)) == "aaa"


def test_patterns_go_with_results_as_they_are() -> None:
    assert inherited((), ["re:a.c", "x.y"], "into") == ("re:a.c", "x.y", "into.x.y")


def test_patterns_are_told_from_names() -> None:
    assert patterns_of(("card", f"re:{CARD}", "re:(")) == (CARD,)


def test_the_steps_are_counted_up_to_their_bound() -> None:
    assert checked_patterns([rf"(a){{1,{MAX_STEPS // 2}}}"])
