"""Payloads: what JSON cannot represent or a store cannot keep is refused with its JSON Pointer."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from windlass._policy.input.payload import (
    MAX_BYTES,
    MAX_DEPTH,
    canonical,
    check_value,
    decode,
    encode,
    encode_payload,
)
from windlass.errors import InvalidPayload

NOON = datetime(2026, 1, 1, 12)  # noqa: DTZ001 - naive, to be refused
SECRET = "hunter2"


@dataclass
class Box:
    """A dataclass around anything."""

    item: object


class Crate(Struct):
    """A Struct around anything."""

    item: object


class Colour(Enum):
    RED = "red"
    NAIVE = NOON


class Word(str):
    __slots__ = ()


class Number(int):
    pass


class Fraction(float):
    pass


class Moment(datetime):
    pass


class Mute:
    """Cannot be said in JSON, and must not be asked to describe itself."""

    def __repr__(self) -> str:
        return SECRET


class Nowhere(tzinfo):
    """A time zone that does not know its offset: what it is given to stays naive."""

    def utcoffset(self, _: datetime | None) -> timedelta | None:
        return None


class Torn(Mapping[str, int]):
    """A mapping whose own code fails."""

    def __getitem__(self, key: str) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        raise TypeError("it is torn")

    def __len__(self) -> int:
        return 1


class Twice(Mapping[str, int]):
    """A mapping that gives one key twice, as those of HTTP headers do."""

    def __getitem__(self, key: str) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        return iter(["a", "a"])

    def __len__(self) -> int:
        return 2


def nested(levels: int) -> object:
    """Lists in lists; the innermost is empty."""
    value: list[object] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def refusal(value: object) -> InvalidPayload:
    with pytest.raises(InvalidPayload) as caught:
        encode_payload(value)
    return caught.value


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), inner, max_size=4
        )
    ),
    max_leaves=12,
)

REFUSED: list[tuple[Any, str, str]] = [
    ({"a": "x\0y"}, "/a", "NUL character.*remove it"),
    ({"a": {"b\0": 1}}, r"/a/b\x00", "NUL character.*remove it"),
    ({"a": [0, math.nan]}, "/a/1", "is NaN.*pass null or a string"),
    ({"a": math.inf}, "/a", "is infinite.*pass null"),
    ({"a": -math.inf}, "/a", "is infinite.*pass null"),
    ({"a": "\ud800"}, "/a", "lone surrogate"),
    ({"\udfff": 1}, r"/\udfff", "lone surrogate"),
    ({"a": 1 << 63}, "/a", "more than 64 bits; pass it as a string"),
    ({"a": -(1 << 63) - 1}, "/a", "more than 64 bits; pass it as a string"),
    ({"a": 10**5000}, "/a", "more than 64 bits; pass it as a string"),
    ({"a": NOON}, "/a", "datetime without a time zone; pass an aware datetime"),
    ({"a": NOON.replace(tzinfo=Nowhere())}, "/a", "datetime without a time zone; pass an aware datetime"),
    ({"a": [NOON]}, "/a/0", "datetime without a time zone"),
    ({"a": Box(NOON)}, "/a/item", "datetime without a time zone"),
    ({"a": Box([NOON])}, "/a/item/0", "datetime without a time zone"),
    ({"a": Crate({"b": NOON})}, "/a/item/b", "datetime without a time zone"),
    ({"a": {NOON}}, "/a/0", "datetime without a time zone"),
    ({"a": Colour.NAIVE}, "/a", "datetime without a time zone"),
    ({"a": Box(Moment(2026, 1, 1))}, "/a", "datetime without a time zone"),
    ({"a": NOON.replace(tzinfo=timezone(timedelta(seconds=3)))}, "/a", "not in whole minutes; convert it"),
    ({1: 1}, "", "an int as a key; keys must be strings"),
    ({"a": {None: 1}}, "/a", "a NoneType as a key"),
    ({10**5000: 1}, "", "an int as a key"),
    ({b"a": 1}, "", "a bytes as a key"),
    ({"a": Box({1: 1})}, "/a/item", "an int as a key"),
    ({"a": Box({(1, 2): 1})}, "/a/item", "a tuple as a key"),
    ({"a": Mute()}, "/a", "a Mute, which JSON cannot represent; pass plain values"),
    ({"a": [1, Box(Mute())]}, "/a/1", "a Mute, which JSON cannot represent"),
    ({"a": iter([])}, "/a", "a list_iterator, which JSON cannot represent"),
    ({"a": {1, "b"}}, "/a", "a set with members that cannot be sorted; pass a list instead of a set$"),
    ({"a": Box(Torn())}, "/a", "a Box, which JSON cannot represent: it is torn; pass plain values"),
    ({"a": Twice()}, "/a/a", "occurs twice"),
    ({"a": [Decimal("NaN")]}, "/a/0", "is NaN.*pass null or a string"),
    ({"a": Decimal("sNaN")}, "/a", "is NaN"),
    ({"a": Decimal("-Infinity")}, "/a", "is infinite"),
    ({"a": Box(Decimal("NaN"))}, "/a/item", "is NaN"),
    ({"a/b": {"c~d": math.nan}}, "/a~1b/c~0d", "is NaN"),
    ({"a\nb\x1b[2J": math.nan}, r"/a\nb\x1b[2J", "is NaN"),
]


@pytest.mark.parametrize(("value", "pointer", "message"), REFUSED)
def test_what_cannot_be_kept_is_refused_with_its_place_and_a_way_out(
    value: object, pointer: str, message: str
) -> None:
    error = refusal(value)

    assert error.pointer == pointer
    with pytest.raises(InvalidPayload, match=message):
        raise error


@pytest.mark.parametrize("value", [value for value, _, _ in REFUSED])
def test_a_refusal_is_one_printable_line_that_can_be_sent_anywhere(value: object) -> None:
    message = str(refusal(value))

    assert message.isprintable()
    assert message.encode()
    assert SECRET not in message


@pytest.mark.parametrize("value", [None, 1, "a", [1], Box(1), {"a"}])
def test_a_payload_is_an_object(value: object) -> None:
    with pytest.raises(
        InvalidPayload, match=f"must be a mapping of parameters, got an? {type(value).__name__}"
    ):
        encode_payload(value)


@pytest.mark.parametrize(
    "value",
    [
        {"k" * 1_000_000: math.nan},
        {"k" * 1_000_000: {"\ud800" * 1000: 1}},
        {"\0" * 1_000_000: 1},
        {"a": "x\0" * 1_000_000},
        {"a": type("T" * 1_000_000, (), {})()},
        {"a": Box({type("T" * 1_000_000, (), {})(): 1})},
        {"x" * 500: {"y" * 500: {"z" * 500: math.nan}}},
    ],
    ids=["key", "key in key", "NUL key", "text", "type", "type as a key", "path"],
)
def test_a_refusal_stays_short_however_long_the_offender(value: object) -> None:
    error = refusal(value)

    assert len(str(error)) < 1_000
    assert len(error.pointer) <= 500


def test_the_largest_and_smallest_integers_come_through() -> None:
    edges = {"least": -(1 << 63), "most": (1 << 63) - 1}

    assert decode(encode_payload(edges)) == edges


def test_nesting_is_bounded_exactly() -> None:
    assert decode(encode(nested(MAX_DEPTH), "result")) == nested(MAX_DEPTH)
    with pytest.raises(InvalidPayload, match="nested deeper than 64 levels") as caught:
        encode(nested(MAX_DEPTH + 1), "result")
    assert caught.value.pointer == "/0" * MAX_DEPTH


@pytest.mark.parametrize("levels", [MAX_DEPTH, 100_000])
def test_a_payload_itself_counts_as_a_level(levels: int) -> None:
    assert encode_payload({"a": nested(MAX_DEPTH - 1)})
    assert "nested deeper" in str(refusal({"a": nested(levels)}))


def test_what_holds_itself_is_refused() -> None:
    items: list[object] = []
    items.append(items)
    members: dict[str, object] = {}
    members["a"] = members
    box = Box(None)
    box.item = box

    for value in (items, members, box):
        assert "contains itself" in str(refusal({"a": value}))


def test_the_size_is_bounded_exactly() -> None:
    fits = {"a": "x" * (MAX_BYTES - len('{"a":""}'))}

    assert len(encode_payload(fits)) == MAX_BYTES
    assert "1,048,577 bytes of JSON, more than the limit of 1,048,576; store large data elsewhere" in str(
        refusal({"a": fits["a"] + "x"})
    )


def test_the_size_is_that_of_the_bytes_not_of_the_characters() -> None:
    assert encode_payload({"a": "é"}, max_bytes=10)
    with pytest.raises(InvalidPayload, match="10 bytes of JSON, more than the limit of 9"):
        encode_payload({"a": "é"}, max_bytes=9)


def test_what_is_small_in_memory_and_huge_in_json_is_refused_before_it_is_made() -> None:
    doubled: list[object] = []
    for _ in range(60):
        doubled = [doubled, doubled]

    for value in (doubled, ["x" * 1_000] * 10_000_000, {"y" * 1_000: "x" * 9_000}):
        with pytest.raises(InvalidPayload, match=r"at least .* more than the limit of 9,999"):
            encode({"a": value}, "payload", max_bytes=9_999)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (NOON.replace(tzinfo=UTC), "2026-01-01T12:00:00Z"),
        (
            NOON.replace(microsecond=5, tzinfo=timezone(timedelta(hours=2))),
            "2026-01-01T12:00:00.000005+02:00",
        ),
        (Moment(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"),
        (time(12, tzinfo=UTC), "12:00:00Z"),
        (time(12, 30), "12:30:00"),
        (date(2026, 1, 1), "2026-01-01"),
        (timedelta(days=1), "P1D"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (Decimal("1.10"), "1.10"),
        (Colour.RED, "red"),
        (StrEnum("Size", {"SMALL": "s"}).SMALL, "s"),
        (IntEnum("Level", {"LOW": 1}).LOW, 1),
        (Box(1), {"item": 1}),
        (Crate(Box(date(2026, 1, 1))), {"item": {"item": "2026-01-01"}}),
        (Box(Word("w")), {"item": "w"}),
        (Box(MappingProxyType({"a": Number(1)})), {"item": {"a": 1}}),
        (Box(NOON.replace(tzinfo=UTC)), {"item": "2026-01-01T12:00:00Z"}),
        (b"bytes", "Ynl0ZXM="),
        ((1, 2), [1, 2]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset("cab"), ["a", "b", "c"]),
        (Word("w"), "w"),
        (Number(3), 3),
        (Fraction(0.5), 0.5),
        ({Word("k"): 1}, {"k": 1}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        ("\U0001f40e é ﻿", "\U0001f40e é ﻿"),
    ],
)
def test_values_with_an_obvious_form_in_json_take_it(value: object, expected: object) -> None:
    assert decode(encode_payload({"a": value})) == {"a": expected}


@given(
    st.dictionaries(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), json_values)
)
def test_json_comes_back_as_it_went(value: dict[str, object]) -> None:
    data = encode_payload(value)

    assert decode(data) == value
    assert json.loads(data) == value
    assert encode_payload(decode(data)) == data


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.floats() | st.lists(st.text())))
def test_any_payload_is_kept_or_refused_but_never_breaks(value: dict[str, object]) -> None:
    refused = ""
    try:
        assert decode(encode_payload(value)) == value
    except InvalidPayload as error:
        refused = str(error)

    assert refused.isprintable()


@given(st.dictionaries(st.text("abcdef", min_size=1), json_values, min_size=2), st.randoms())
def test_equal_values_have_equal_canonical_bytes(value: dict[str, object], random: Any) -> None:
    members = list(value.items())
    random.shuffle(members)

    assert canonical(encode_payload(dict(members))) == canonical(encode_payload(value))
    assert decode(canonical(encode_payload(value))) == value


def test_canonical_bytes_tell_different_values_apart() -> None:
    different = [{"a": 1}, {"a": 1.0}, {"a": "1"}, {"a": True}, {"a": None}, {}, {"b": 1}, {"a": [1]}]

    assert len({canonical(encode_payload(value)) for value in different}) == len(different)


def test_a_result_may_be_any_json_and_errors_call_it_by_its_name() -> None:
    assert encode(None, "result") == b"null"
    with pytest.raises(InvalidPayload, match="the result at its root is NaN"):
        encode(math.nan, "result")


def test_a_single_value_is_checked_at_its_place() -> None:
    check_value(Decimal("1.10"), ("order", 1, "price"))
    for value, why in ((NOON, "a datetime without a time zone"), (Decimal("NaN"), "is NaN")):
        with pytest.raises(InvalidPayload, match=why) as caught:
            check_value(value, ("order", 1, "a/b"))
        assert caught.value.pointer == "/order/1/a~1b"
