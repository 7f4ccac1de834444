"""Texts and patterns from outside take time in proportion to their length, whatever is in them.

What is measured is how the processor's time grows from one length to eight times that: 8 is linear, 64 is
quadratic. Absolute times say little on a busy machine.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import product
from time import process_time
from types import FrameType
from typing import Any

import pytest

from tests.security.probes import ENOUGH, chosen
from windlass import InvalidOption, WindlassError
from windlass._cli.text import escaped_lines, json_text, one_line
from windlass._dashboard.screens.task import traceback_parts
from windlass._dashboard.tasks.qualifiers import InvalidFilter, parse_filter
from windlass._html.formats import prose
from windlass._policy.addresses import parse_networks
from windlass._policy.alerts import webhook_origin, webhook_url
from windlass._policy.api_key import parse_key
from windlass._policy.calendar.cron import Cron, parse_fields
from windlass._policy.failure import origin_of, shape_of
from windlass._policy.input.options import checked_name, parse_duration
from windlass._policy.input.quote import printable, quoted, suggestion
from windlass._policy.input.trace import parse_trace
from windlass._policy.order.limit_options import parse_rate
from windlass._policy.order.window_options import parse_window
from windlass._policy.quota import parse_size
from windlass._policy.secrets.patterns import checked_patterns, compiled
from windlass.alerts import verify_signature
from windlass.handlers.email.message import check_lines, checked_subject, parse_address
from windlass.handlers.headers import checked_headers
from windlass.handlers.pages.extract import decoded
from windlass.handlers.pages.robots import parse_robots
from windlass.handlers.requests import Filling
from windlass.handlers.responses import noted_text, retry_after
from windlass.handlers.storage import checked_file_name

LENGTH, TIMES, MOST = 8_000, 8, 24
UNNOTICED = 0.02  # seconds: too short to tell how it grows
NOW = datetime(2026, 11, 15, tzinfo=UTC)
SECRET = "whsec_d2luZGxhc3MgaG9sZHMgaXRzIHRvbmd1ZSE="
REFUSALS = (WindlassError, ValueError, InvalidFilter)


def signature(text: str) -> bool:
    sent = {"webhook-id": "a", "webhook-timestamp": "1", "webhook-signature": text}
    return verify_signature(SECRET, sent, b"", now=1)


def robots_of_many(text: str) -> bool:
    """A file of nothing but this text, in lines, for a path of the same."""
    lines = text.replace(" ", "\n")
    return parse_robots(f"User-agent: *\n{lines}\nDisallow: /{text}", "x").allows("/" + text[:1_000])


TARGETS: dict[str, Callable[[str], Any]] = {
    "address": parse_address,
    "api key": parse_key,
    "attachment or address": lambda text: check_lines("to", text),
    "charset": lambda text: decoded(f"<meta {text}".encode(), None),
    "cron": parse_fields,
    "date of a response": lambda text: retry_after(text, NOW),
    "duration": lambda text: parse_duration(text, "delay"),
    "escaped lines": escaped_lines,
    "failure": shape_of,
    "file name": checked_file_name,
    "filter": parse_filter,
    "header": lambda text: checked_headers({"a": text}),
    "header name": lambda text: checked_headers({text: "a"}),
    "JSON text": json_text,
    "name": lambda text: checked_name(text, "queue"),
    "networks": lambda text: parse_networks([text]),
    "noted": lambda text: noted_text(text.encode()),
    "one line": one_line,
    "printable": printable,
    "prose": prose,
    "quoted": quoted,
    "rate": parse_rate,
    "robots": robots_of_many,
    "signature": signature,
    "size": parse_size,
    "subject": checked_subject,
    "suggestion": lambda text: suggestion(text, ["deliver_webhook", "send_email"]),
    "template": lambda text: Filling({"a": "b"}).fill(f"x{text}"),
    "template of a URL": lambda text: Filling({"a": "b"}).fill(f"x{text}", quoted=True),
    "trace": parse_trace,
    "traceback": traceback_parts,
    "traceback's origin": origin_of,
    "webhook": webhook_url,
    "webhook's origin": webhook_origin,
    "window": parse_window,
}
PUMPS = [
    "a", " ", "\t", "\n", "\r\n", "\n ", "0", "1s", "a.", "a@", "a@b.", ":", "::", "*", ",", "/", "../", "%",
    "%41", "{{", "{{ ", "{{ a ", "{{ a }}", '"', "\\", '\\"', "'", "`", "`a", "<", "<a@b>", "(", ")", "=?",
    "=?a?=", "[", "é", "\u2028", "\x00", 'File "', '  File "a", line 1, in b\n', "user-agent:a\nallow:/ ",
    "http://", "charset", "v1,a ", "- ", "00-", "1-", "jan,", "@1:",
]  # fmt: skip
TEXTS = [*product(TARGETS, PUMPS)]


def seconds(work: Callable[[], Any]) -> float:
    """The processor's time that work takes, at the best of three."""
    found: list[float] = []
    while len(found) < 3:
        started = process_time()
        with suppress(*REFUSALS):
            work()
        found.append(process_time() - started)
        if found[0] < UNNOTICED:
            break
    return min(found)


def growth(work: Callable[[str], Any], pump: str) -> float:
    """How many times longer work takes for a text that is eight times as long; 0 if it is short anyway."""
    short, long = (pump * (length // len(pump)) + "!" for length in (LENGTH, LENGTH * TIMES))
    taken = seconds(lambda: work(long))
    if taken < UNNOTICED:
        return 0.0
    return taken / max(seconds(lambda: work(short)), 1e-6)


def test_the_corpora_are_large() -> None:
    assert min(len(TEXTS), len(PATTERNS), len(CRONS)) >= ENOUGH


@pytest.mark.more
def test_time_grows_with_length_only() -> None:
    slow = {}
    for name, pump in chosen(TEXTS, 250):
        if (found := growth(TARGETS[name], pump)) > MOST:
            slow[name, pump] = round(found)
    assert slow == {}


def test_what_is_quadratic_is_found() -> None:
    """The control: a search that looks for its end from each place."""
    assert growth(lambda text: [text.find("ab", at) for at in range(0, len(text), 50)], "a") > MOST


# -- robots.txt ------------------------------------------------------------------------------------------


def test_rules_for_many_agents_are_kept_once() -> None:
    """Thousands of agents before thousands of rules are not the product of both."""
    agents = "".join(f"user-agent: bot{n}\n" for n in range(20_000))
    repeated = "user-agent: *\n" * 10_000
    rules = "allow: /\n" * 10_000
    taken = [
        seconds(lambda text=text: parse_robots(text + rules, "x"))
        for text in ("user-agent:*\n", agents, repeated)
    ]
    assert max(taken) < 10 * taken[0]
    assert len(parse_robots(repeated + rules, "x").rules) == 10_000


# -- redaction patterns ------------------------------------------------------------------------------------

BODIES = [
    "a+", "a*", "(a+)+", "(a*)*", "(a|a)+", "(a|aa)+", "(a|a?)+", "(.*)*", "(a+a+)+", "(?:a{1,99}){1,99}",
    "([a-z]+)*", "(\\w+\\s?)*", "(a?){64}", "a{0,500}", "a{1,64}a{1,64}", "a{1,64}a{1,64}a{1,64}", ".*.*",
    "(?=a+)+", "(?<!a)a+", "(a)\\1+", "(?P<x>a)(?P=x)*", "[^b]*", "(a{1,9}|a{1,9}){1,9}", "a+?", "(?>a+)+",
    "a++", "(?:a|b|ab|ba)*", "(?i:A+)+", "x*a+", "\\b(a+)+\\b",
    "a{1,9}",
    "[ab]{1,20}",
    "a{2,30}x?",
    "(a|b)a{0,9}",
    "\\b\\w{1,40}",
    "(?:ab){1,6}",
    "[^b]{0,50}",
    "a?a?a?a?",
]  # fmt: skip
ENDS = ["$", "b", "b$", "[^a]", "(?=b)", "\\b", "(?!a)b", "a{3}b", ""]
PATTERNS = [f"{body}{end}" for body, end in product(BODIES, ENDS)]


@pytest.mark.more
def test_a_redaction_pattern_is_refused_or_linear() -> None:
    accepted, slow = 0, []
    for pattern in chosen(PATTERNS, 60):
        try:
            checked_patterns([pattern])
        except InvalidOption:
            continue
        accepted += 1
        made = compiled(f"re:{pattern}")
        assert made is not None
        slow += [pattern for pump in ("a", "ab", " ") if growth(partial(made.sub, ""), pump) > MOST]
    assert accepted
    assert slow == []


# -- cron ----------------------------------------------------------------------------------------------------

DAYS = ["29", "31", "L", "LW", "*", "*/31", ",".join(["29"] * 40)]
MONTHS = ["2", "*", "*/11", "4,6,9,11"]
WEEKDAYS = ["*", "1#5", "5L", ",".join(["1#5"] * 30)]
CRONS = [
    (f"{minute} {hour} {day} {month} {weekday}", zone)
    for (minute, hour), day, month, weekday, zone in product(
        [("0", "0"), ("*", "*"), ("*/59", "2"), ("* *", "*")],
        DAYS, MONTHS, WEEKDAYS, ["UTC", "Pacific/Apia", "Antarctica/Troll"],
    )
]  # fmt: skip
MAX_CALLS = 100_000  # functions that one expression may call: of fifty years, a few for each day


def calls(work: Callable[[], Any]) -> int:
    number = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal number
        number += event == "call"

    sys.setprofile(count)
    try:
        with suppress(InvalidOption):
            work()
    finally:
        sys.setprofile(None)
    return number


@pytest.mark.more
def test_an_expression_takes_bounded_steps() -> None:
    def three_ticks(text: str, zone: str) -> None:
        found, cron = datetime(2027, 3, 1, tzinfo=UTC), Cron(text, zone)
        for _ in range(3):
            found = cron.after(found) or found

    slow = {
        one: number
        for one in chosen(CRONS, 40)
        if (number := calls(lambda one=one: three_ticks(*one))) > MAX_CALLS
    }
    assert slow == {}
    assert calls(lambda: three_ticks("0 0 29 2 *", "UTC")) > 100  # it counts
