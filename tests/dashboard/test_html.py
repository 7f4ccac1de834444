"""What pages are made of: the bundle, the formats, the templates."""

import re
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from importlib.resources import files
from typing import Any

import pytest
from jinja2 import UndefinedError

from windlass._html import assets, formats
from windlass._html.environment import environment

MAX_BUNDLE = 120_000
VENDOR = files("windlass._html") / "vendor"


def test_the_bundle_is_small() -> None:
    assert len(assets.script().compressed) + len(assets.stylesheet().compressed) <= MAX_BUNDLE


def test_vendored_files_are_those_that_were_reviewed() -> None:
    named = dict(
        re.findall(r"^\| (\S+) \|.*`([0-9a-f]{64})` \|$", (VENDOR / "README.md").read_text(), re.MULTILINE)
    )
    assert len(named) == 4
    for name, wanted in named.items():
        assert sha256((VENDOR / name).read_bytes()).hexdigest() == wanted, name


def test_a_name_that_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        environment().from_string("{{ missing }}").render()


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (formats.number(1234567), "1,234,567"),
        (formats.number(1234567, exact=False), "≈ 1,200,000"),
        (formats.number(12, exact=False), "12"),
        (formats.number(None), formats.NONE),
        (formats.number(1.25), "1.2"),
        (formats.compact(12_345), "12.3k"),
        (formats.compact(999), "999"),
        (formats.percent(0.0321), "3.2 %"),
        (formats.percent(1), "100 %"),
        (formats.duration(0.0015), "1.5 ms"),
        (formats.duration(59.4), "59 s"),
        (formats.duration(3 * 86400), "3 d"),
        (formats.duration(-5), "0 s"),
        (formats.size(1_500_000), "1.5 MB"),
        (formats.age(0.4), "< 1 s"),
        (formats.age(9.7), "9 s"),
        (formats.size(12), "12 B"),
        (formats.segment("a/b c"), "a%2Fb%20c"),
        (formats.sparkline([1]), ""),
        (formats.sentence("no such key"), "No such key."),
        (formats.sentence("Retry."), "Retry."),
    ],
)
def test_values_are_short_and_exact(shown: str, text: str) -> None:
    assert shown == text


def test_an_instant_is_in_utc_for_those_without_scripts() -> None:
    assert formats.instant(None) == formats.duration(float("nan")) == formats.NONE
    at = datetime(2026, 11, 16, 9, 0, tzinfo=timezone(timedelta(hours=1)))
    assert str(formats.instant(at)).startswith('<time datetime="2026-11-16T08:00:00.000Z"')
    assert "2026-11-16 08:00:00" in formats.instant(at)
    assert formats.instant(datetime(2026, 1, 1, tzinfo=UTC), exact=True).count('class="exact"') == 1


@pytest.mark.parametrize(
    "value", ["</script><b>", {"<i>": ["<u>", 1, None]}, [], {}, [[]], 12345678901234567890]
)
def test_json_is_shown_as_it_is_and_never_as_html(value: Any) -> None:
    shown = formats.pretty_json(value)
    assert not re.search(r"<(?!/?[biu]>)", shown)
    assert shown.striptags().replace(" ", "") == formats.json_line(value).replace(",", ",").replace(" ", "")
