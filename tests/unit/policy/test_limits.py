"""Limits: which apply to a task, what it is counted by, and that none is ever exceeded."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.samples import HOUR, NOW
from windlass._model.limit import Limit
from windlass._policy.order.limits import (
    Ledger,
    Permit,
    PermitUsage,
    Subject,
    changes_refill,
    key_range,
    limit_key,
    limits_in_queue,
    needs_lock,
    permits_of,
    regroups_tasks,
    seconds_to_fill,
    split_key,
    tokens_at,
)

NOISE = 1e-6
CALL = Subject("calls", "api.call", "acme", b'{"account": 7}')
BY_ACCOUNT = Limit(name="accounts", by="account", running=1)

jsons: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
texts = st.text() | st.text(min_size=99, max_size=102) | st.sampled_from(["a\x1fb", "a\nb", "\0", "ü", "😀"])
kinds = st.builds(
    Subject,
    queue=st.sampled_from(["calls", "mail"]),
    type=st.sampled_from(["api.call", "mail.send"]),
    tenant=st.sampled_from(["", "acme", "umbrella"]),
    payload=st.builds(lambda value: msgspec.json.encode({"account": value}), jsons | texts),
)


@st.composite
def some_limits(draw: st.DrawFn) -> list[Limit]:
    """Limits of different names, on anything, by anything."""
    names = draw(st.lists(st.sampled_from(["a", "a-b", "ab", "b"]), unique=True, max_size=4))
    return [
        Limit(
            name=name,
            queue=draw(st.sampled_from([None, "calls"])),
            type=draw(st.sampled_from([None, "api.call"])),
            tenant=draw(st.sampled_from([None, "", "acme"])),
            by=draw(st.sampled_from([None, "queue", "type", "tenant", "account"])),
            running=draw(st.integers(0, 5)),
        )
        for name in names
    ]


# -- which limits, and by what -----------------------------------------------------------------------


@given(some_limits(), kinds, kinds)
def test_tasks_have_the_same_key_that_need_the_same_permits(
    limits: list[Limit], task: Subject, other: Subject
) -> None:
    same = permits_of(limits, task) == permits_of(limits, other)

    assert (limit_key(limits, task) == limit_key(limits, other)) == same
    assert (limit_key(limits, task) == "") == (not permits_of(limits, task))


@given(some_limits(), some_limits(), kinds)
def test_a_limit_that_moves_no_tasks_leaves_each_its_key(
    limits: list[Limit], others: list[Limit], task: Subject
) -> None:
    for before, after in zip(limits, others, strict=False):
        same_name = replace(after, name=before.name)
        assert regroups_tasks(before, same_name) or limit_key([before], task) == limit_key([same_name], task)


def test_numbers_move_no_tasks_but_what_is_counted_does() -> None:
    assert not regroups_tasks(BY_ACCOUNT, replace(BY_ACCOUNT, running=None, rate=5.0, burst=9))
    for change in ({"queue": "mail"}, {"type": "mail.send"}, {"tenant": ""}, {"by": None}):
        assert regroups_tasks(BY_ACCOUNT, replace(BY_ACCOUNT, **change))
    assert regroups_tasks(None, BY_ACCOUNT)
    assert regroups_tasks(BY_ACCOUNT, None)


def test_a_rate_ends_with_its_limit_or_when_it_or_its_burst_changes() -> None:
    rate = Limit(name="r", rate=5.0)
    assert not changes_refill(None, rate)
    assert not changes_refill(BY_ACCOUNT, rate)
    assert not changes_refill(rate, replace(rate, burst=5, running=1, queue="calls"))
    for after in (None, BY_ACCOUNT, replace(rate, rate=4.5), replace(rate, burst=6)):
        assert changes_refill(rate, after)


@given(some_limits(), kinds)
def test_the_keys_of_a_limit_are_those_between_two(limits: list[Limit], task: Subject) -> None:
    for limit in limits:
        first, below = key_range(limit)
        for permit in permits_of(limits, task):
            assert (first <= permit.key < below) == (permit.limit == limit)


@given(some_limits(), kinds)
def test_permits_are_in_the_order_of_their_keys_whatever_the_order_of_the_limits(
    limits: list[Limit], task: Subject
) -> None:
    permits = permits_of(limits, task)

    assert [permit.key for permit in permits] == sorted({permit.key for permit in permits})
    assert permits_of(limits[::-1], task) == permits


@given(some_limits(), kinds)
def test_a_key_tells_the_limit_and_the_value_and_is_fit_to_be_kept_and_shown(
    limits: list[Limit], task: Subject
) -> None:
    for permit in permits_of(limits, task):
        assert split_key(permit.key) == (permit.limit.name, permit.value)
        assert len(permit.value) <= 100
        assert permit.value.isprintable()
        permit.key.encode()  # no half of a pair in it


@given(texts, texts)
def test_every_text_is_counted_for_itself_however_long_or_strange(value: str, other: str) -> None:
    task, other_task = (
        Subject("calls", "api.call", "", msgspec.json.encode({"account": text})) for text in (value, other)
    )

    assert (permits_of([BY_ACCOUNT], task) == permits_of([BY_ACCOUNT], other_task)) == (value == other)


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        (b'{"account": "seven"}', "seven"),
        (b'{"account": 7}', "7"),
        (b'{"account": true}', "true"),
        (b'{"account": [1, {"a": 2.5}]}', '[1,{"a":2.5}]'),
        (b'{"account": 123456789012345678901234567890}', "123456789012345678901234567890"),
        (b'{"account": null}', "null"),
        (b'{"other": 7}', "null"),
        (b'{"account": ""}', ""),
        (msgspec.json.encode({"account": "x" * 100}), "x" * 100),
    ],
)
def test_a_field_is_counted_by_its_value_and_those_without_it_together(payload: bytes, value: str) -> None:
    (permit,) = permits_of([BY_ACCOUNT], Subject("calls", "api.call", "", payload))

    assert permit.value == value


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Example.org/a?b=c", "example.org"),
        ("http://example.org:8080", "example.org:8080"),
        ("https://user:secret@example.org/", "example.org"),
        ("https://example.org:443/", "example.org"),
        ("https://example.org:80/", "example.org:80"),
        ("http://example.org.:/", "example.org"),
        ("http://[::1]/", "[::1]"),
        ("http://[::1]:80/", "[::1]"),
        ("http://[bad", "null"),
        ("no URL", "null"),
        (7, "null"),
        (None, "null"),
    ],
)
def test_urls_are_counted_by_their_host_and_what_has_none_together(url: Any, host: str) -> None:
    limit = Limit(name="polite", by="url.host", running=1)
    (permit,) = permits_of([limit], Subject("q", "t", "", msgspec.json.encode({"url": url})))

    assert permit.value == host


@pytest.mark.parametrize("text", ["x" * 101, "a\x1fb", "a\nb", "\0", "x" * 1_000_000])
def test_a_value_that_is_long_or_cannot_be_printed_has_a_short_name(text: str) -> None:
    payload = msgspec.json.encode({"account": text})
    (permit,) = permits_of([BY_ACCOUNT], Subject("calls", "api.call", "", payload))

    assert len(permit.value) == 32
    assert set(permit.value) <= set("0123456789abcdef")


@pytest.mark.parametrize(
    ("by", "value"), [(None, ""), ("queue", "calls"), ("type", "api.call"), ("tenant", "acme")]
)
def test_columns_are_counted_by_what_the_task_itself_says(by: str | None, value: str) -> None:
    limit = Limit(name="one", by=by, running=1)
    task = Subject("calls", "api.call", "acme", b'{"queue": "no", "type": "no", "tenant": "no"}')

    assert permits_of([limit], task) == (Permit(limit, value),)


@pytest.mark.parametrize(
    ("of", "applies"),
    [
        ({}, True),
        ({"queue": "calls"}, True),
        ({"queue": "mail"}, False),
        ({"type": "api.call"}, True),
        ({"type": "mail.send"}, False),
        ({"tenant": "acme"}, True),
        ({"tenant": ""}, False),
        ({"queue": "calls", "type": "api.call", "tenant": "acme"}, True),
        ({"queue": "calls", "type": "api.call", "tenant": "umbrella"}, False),
    ],
)
def test_a_limit_applies_to_what_it_names(of: dict[str, Any], applies: bool) -> None:
    limit = Limit(name="one", running=1, **of)

    assert bool(permits_of([limit], CALL)) == applies
    assert limits_in_queue([limit], "calls") == ((limit,) if of.get("queue", "calls") == "calls" else ())
    assert limit_key([], CALL) == ""


# -- rates -------------------------------------------------------------------------------------------

rates = st.floats(0.01, 1000) | st.sampled_from([1.0, 1 / 3, 1e-4, 1e6])
rated = st.builds(
    lambda rate, burst: Limit(name="r", rate=rate, burst=burst), rates, st.none() | st.integers(1, 20)
)
waits = st.integers(0, 5_000_000) | st.integers(0, 100)  # microseconds


def start_all(limit: Limit, steps: Sequence[tuple[int, int]]) -> list[datetime]:
    """Start as many as may and are wanted, at each step some time after the last."""
    permit, use, now, starts = Permit(limit, ""), PermitUsage(0), NOW, list[datetime]()
    for wait, wanted in steps:
        now += timedelta(microseconds=wait)
        ledger = Ledger(now)
        ledger.enter(permit, use)
        for _ in range(wanted):
            if ledger.start([permit]):
                starts.append(now)
        use = PermitUsage(0, ledger.tokens[permit.key], now)
    return starts


@given(rated, st.lists(st.tuples(waits, st.integers(0, 30)), max_size=15))
def test_starts_never_exceed_the_burst_and_the_rate_over_any_window(
    limit: Limit, steps: list[tuple[int, int]]
) -> None:
    starts = start_all(limit, steps)

    assert limit.rate is not None
    for first, begin in enumerate(starts):
        for last, end in enumerate(starts[first:], first):
            allowed = limit.capacity + limit.rate * (end - begin).total_seconds()
            assert last - first + 1 <= allowed * (1 + NOISE)


@pytest.mark.parametrize("rate", [0.5, 1.0, 3.0, 50.0])
@pytest.mark.parametrize("burst", [1, 20])
def test_where_there_is_work_the_rate_is_reached(rate: float, burst: int) -> None:
    starts = start_all(Limit(name="r", rate=rate, burst=burst), [(10_000, 25)] * 1000)

    assert len(starts) >= burst + rate * 9.99 - 1


@given(rated, st.floats(0, 20), st.integers(0, 10**9))
def test_a_clock_that_was_set_back_refills_nothing(limit: Limit, tokens: float, microseconds: int) -> None:
    before = NOW - timedelta(microseconds=microseconds)

    assert tokens_at(limit, PermitUsage(0, tokens, NOW), before) == min(tokens, limit.capacity)


@pytest.mark.parametrize(
    ("at", "rewound"), [(None, False), (NOW, False), (NOW - HOUR, False), (NOW + HOUR, True)]
)
def test_the_ledger_knows_of_a_clock_that_was_set_back(at: datetime | None, rewound: bool) -> None:
    ledger = Ledger(NOW)
    ledger.enter(Permit(Limit(name="r", rate=1), ""), PermitUsage(0, None if at is None else 0.5, at))
    ledger.enter(Permit(Limit(name="s", rate=1), ""), PermitUsage(0, 0.5, NOW))

    assert ledger.is_rewound == rewound


def test_tokens_are_complete_after_the_time_to_fill_and_not_before() -> None:
    limit, spent = Limit(name="r", rate=2, burst=5), PermitUsage(0, 0.0, NOW)
    full = NOW + timedelta(seconds=seconds_to_fill(limit))

    assert tokens_at(limit, spent, full) == 5
    assert tokens_at(limit, spent, full - timedelta(milliseconds=1)) < 5


def test_a_quiet_time_fills_up_to_the_burst_and_no_more() -> None:
    limit = Limit(name="r", rate=2, burst=5)

    assert tokens_at(limit, PermitUsage(0), NOW) == 5
    assert tokens_at(limit, PermitUsage(0, 0.5, NOW), NOW + timedelta(seconds=1)) == 2.5
    assert tokens_at(limit, PermitUsage(0, 0.5, NOW), NOW + HOUR) == 5


def test_a_lowered_burst_holds_at_once() -> None:
    assert tokens_at(Limit(name="r", rate=1, burst=2), PermitUsage(0, 50.0, NOW), NOW) == 2


# -- the ledger --------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), min_size=1, max_size=4),
    st.lists(st.sets(st.integers(0, 3)), max_size=30),
)
def test_no_mix_of_permits_lets_more_run_than_a_cap(
    caps: list[tuple[int, int]], wanted: list[set[int]]
) -> None:
    permits = [Permit(Limit(name=f"l{n}", running=cap), "") for n, (cap, _) in enumerate(caps)]
    ledger, running = Ledger(NOW), Counter({n: running for n, (_, running) in enumerate(caps)})
    for permit, (_, already) in zip(permits, caps, strict=True):
        ledger.enter(permit, PermitUsage(already))
    for choice in wanted:
        needed = {n for n in choice if n < len(permits)}
        fits = all(running[n] < caps[n][0] for n in needed)
        assert ledger.room([permits[n] for n in needed], 1) == int(fits)
        assert ledger.start([permits[n] for n in needed]) == fits  # A refusal takes nothing of the others.
        running.update(needed if fits else ())

    assert all(running[n] <= max(cap, already) for n, (cap, already) in enumerate(caps))


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 6), st.integers(0, 10))
def test_room_is_how_many_may_start(running: int, other: int, tokens: int, most: int) -> None:
    permits = [
        Permit(Limit(name="a", running=running, rate=1, burst=10), ""),
        Permit(Limit(name="b", running=other), ""),
    ]
    ledger = Ledger(NOW)
    ledger.enter(permits[0], PermitUsage(1, float(tokens), NOW))
    ledger.enter(permits[1], PermitUsage(0))

    room = ledger.room(permits, most)

    assert room == max(min(running - 1, tokens, other, most), 0)
    assert sum(ledger.start(permits) for _ in range(most)) == room


def test_a_refused_start_takes_nothing_of_rates_either() -> None:
    rate, cap = Permit(Limit(name="a", rate=1, burst=3), ""), Permit(Limit(name="b", running=0), "")
    ledger = Ledger(NOW)
    ledger.enter(rate, PermitUsage(0))
    ledger.enter(cap, PermitUsage(0))

    assert not ledger.start([rate, cap])
    assert ledger.tokens == {rate.key: 3.0}


def test_what_needs_no_permit_may_always_start() -> None:
    ledger = Ledger(NOW)

    assert ledger.room((), 7) == 7
    assert ledger.start(())
    assert ledger.wait is None


def test_a_permit_is_known_once_it_was_counted() -> None:
    permit, other = Permit(BY_ACCOUNT, "7"), Permit(BY_ACCOUNT, "8")
    ledger = Ledger(NOW)
    ledger.enter(permit, PermitUsage(0))

    assert ledger.knows(permit)
    assert not ledger.knows(other)


@given(rated, st.floats(0, 1, exclude_max=True))
def test_the_wait_is_as_long_as_it_takes_and_no_longer(limit: Limit, tokens: float) -> None:
    permit, use = Permit(limit, ""), PermitUsage(0, tokens, NOW)
    ledger = Ledger(NOW)
    ledger.enter(permit, use)
    assert not ledger.start([permit])

    assert limit.rate is not None
    assert ledger.wait is not None
    assert ledger.wait > 0
    noise = limit.rate * 1e-6 + NOISE  # a clock counts microseconds
    assert tokens_at(limit, use, NOW + timedelta(seconds=ledger.wait)) >= 1 - noise
    assert (
        tokens_at(limit, use, NOW + timedelta(seconds=ledger.wait * 0.99)) < 1 - 0.009 * (1 - tokens) + noise
    )


def test_the_wait_is_for_the_first_of_several() -> None:
    ledger = Ledger(NOW)
    for name, rate in (("slow", 0.1), ("quick", 4.0)):
        permit = Permit(Limit(name=name, rate=rate), "")
        ledger.enter(permit, PermitUsage(0, 0.0, NOW))
        assert not ledger.start([permit])

    assert ledger.wait == 0.25


def test_time_alone_does_not_help_where_too_many_run() -> None:
    permit = Permit(Limit(name="r", rate=1, running=1), "")
    ledger = Ledger(NOW)
    ledger.enter(permit, PermitUsage(1, 0.0, NOW))

    assert not ledger.start([permit])
    assert ledger.wait is None


def test_who_takes_the_last_start_knows_when_there_is_another() -> None:
    permit = Permit(Limit(name="r", rate=4, burst=1), "")
    ledger = Ledger(NOW)
    ledger.enter(permit, PermitUsage(0))

    assert ledger.start([permit])
    assert ledger.wait == 0.25


def test_what_has_nothing_left_needs_no_lock() -> None:
    cap = Permit(Limit(name="cap", running=2), "")
    rate = Permit(Limit(name="rate", rate=1, burst=2), "")
    second = timedelta(seconds=1)

    assert [needs_lock(cap, PermitUsage(number, now=NOW)) for number in (1, 2, 3)] == [True, False, False]
    assert needs_lock(rate, PermitUsage(0, now=NOW))
    assert [needs_lock(rate, PermitUsage(0, tokens, NOW, NOW)) for tokens in (1.0, 0.9)] == [True, False]
    assert needs_lock(rate, PermitUsage(0, 0.0, NOW - second, NOW))
    assert needs_lock(rate, PermitUsage(0, 0.0, NOW + second, NOW))  # to be mended
