"""What a claim gets where queues have lanes and tasks have limits, whatever store answers the planner."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.examples import examples
from tests.unit.rules.paper import Paper, Ready
from windlass._model.limit import Limit
from windlass._model.queue import Fairness, Level, Ordering, QueueSettings, level_of
from windlass._policy.order.limits import Permit
from windlass._stores.rules.claim_planner import (
    KEYS_AT_ONCE,
    LANES_AT_ONCE,
    LEVEL_SPARE,
    Counts,
    Head,
    Keys,
    LevelHeads,
    first_keys,
)

FAIR = QueueSettings(name="q", fairness=Fairness.ROUND_ROBIN)
SHARED = QueueSettings(name="q", ordering=Ordering(shares={Level.HIGH: 50, Level.LOW: 20}))
BOTH = replace(SHARED, fairness=Fairness.ROUND_ROBIN, weights={"a": 3})
LOTS = QueueSettings(name="q", fairness=Fairness.RANDOM)

tasks = st.builds(
    Ready,
    queue=st.sampled_from(["q", "q", "r"]),
    tenant=st.sampled_from(["a", "b", "c"]),
    type=st.sampled_from(["t", "u"]),
    account=st.integers(0, 2),
    rank=st.integers(0, 20),
    priority=st.sampled_from([-1, 0, 1]),
)
limits = st.lists(
    st.builds(
        Limit,
        name=st.sampled_from(["k", "l", "m"]),
        queue=st.sampled_from([None, None, "q"]),
        type=st.sampled_from([None, "t"]),
        tenant=st.sampled_from([None, None, "a"]),
        by=st.sampled_from([None, None, "tenant", "type", "account"]),
        running=st.integers(0, 3) | st.integers(1, 9),
        rate=st.sampled_from([None, None, 0.5, 2.0]),
    ),
    unique_by=lambda limit: limit.name,
)
crossed = st.builds(  # few tasks, and a limit that lanes share
    Paper,
    st.lists(
        st.builds(Ready, tenant=st.sampled_from("abc"), type=st.sampled_from("tu"), rank=st.integers(0, 20)),
        min_size=3,
        max_size=10,
    ),
    st.integers(1, 2).map(lambda running: [Limit(name="k", type="t", running=running)]),
    st.sampled_from([FAIR, BOTH, LOTS]),
)
papers = crossed | st.builds(
    Paper,
    st.lists(tasks, min_size=3, max_size=30),
    limits,
    st.sampled_from([None, FAIR, SHARED, BOTH, LOTS]),
    st.floats(0, 1, exclude_max=True),
)
rooms = st.lists(st.integers(1, 4) | st.integers(1, 12), min_size=1, max_size=6)


def tenants(heads: list[Head]) -> Counter[str]:
    return Counter(head.subject.tenant for head in heads)


# -- whatever there is -------------------------------------------------------------------------------
# The paper itself objects to a limit that is exceeded, a task picked twice and locks out of order.


@examples(50, 500)
@given(papers, rooms)
def test_a_claim_takes_what_it_has_room_for_or_leaves_only_what_limits_hold_up(
    paper: Paper, rooms: list[int]
) -> None:
    for room in rooms:
        got = paper.claim(room, queues=("q", "r"))
        assert len(got) == room or paper.planner.unfinished or set(paper.ready) == paper.blocked()
        paper.later(1)


@given(papers, rooms)
def test_claim_after_claim_everything_starts_that_may(paper: Paper, rooms: list[int]) -> None:
    while paper.ready:
        got = [head.id for room in rooms for head in paper.claim(room, queues=("q", "r"))]
        if not got:
            break
        paper.finish(*got)
        paper.later(2)

    assert set(paper.ready) == paper.blocked()


@given(papers, rooms)
def test_under_each_key_of_a_lane_the_first_comes_first(paper: Paper, rooms: list[int]) -> None:
    for room in rooms:
        for got in paper.claim(room, queues=("q", "r")):
            place = (got.subject.queue, got.lane, got.key)
            assert not [
                head.id
                for head, _ in paper.ready.values()
                if (head.subject.queue, head.lane, head.key) == place
                if (head.rank, head.id) < (got.rank, got.id)
            ]


@given(papers, st.lists(st.tuples(limits, st.integers(1, 10)), min_size=1, max_size=6))
def test_limits_hold_at_once_for_tasks_that_were_put_before_they_were_changed(
    paper: Paper, claims: list[tuple[list[Limit], int]]
) -> None:
    for limits, room in claims:
        paper.limits = limits  # No task is put anew.
        paper.forget()  # Starts are counted under a limit's name, and these are others of the same name.
        paper.claim(room, queues=("q", "r"))


@given(papers, rooms, st.sampled_from(Level))
def test_a_claim_for_a_level_takes_its_first_tasks_that_may_start(
    paper: Paper, rooms: list[int], level: Level
) -> None:
    for room in rooms:
        priorities = {task_id: priority for task_id, (_, priority) in paper.ready.items()}
        got = paper.claim(room, level, queues=("q", "r"))

        assert all(level_of(priorities[head.id]) is level for head in got)
        assert got == sorted(got, key=lambda head: (head.rank, head.id))
        left = {task_id for task_id in paper.ready if level_of(priorities[task_id]) is level}
        assert len(got) == room or left <= paper.blocked()


# -- whose turn it is --------------------------------------------------------------------------------


def test_tenants_have_their_turns_by_weight() -> None:
    weighted = replace(FAIR, weights={"b": 2, "c": 4})
    paper = Paper([Ready(tenant=tenant) for tenant in "abc" for _ in range(40)], settings=weighted)

    assert tenants([head for room in (3, 1, 9, 14, 1) for head in paper.claim(room)]) == {
        "a": 4,
        "b": 8,
        "c": 16,
    }


def test_a_burst_delays_nobody_else_and_an_idle_share_goes_to_the_others() -> None:
    paper = Paper([Ready(tenant="big", rank=n) for n in range(500)], settings=FAIR)
    paper.put(*[Ready(tenant=f"small{n}", rank=1000) for n in range(9)])

    assert tenants(paper.claim(10)) == {"big": 1, **{f"small{n}": 1 for n in range(9)}}
    assert tenants(paper.claim(10)) == {"big": 10}


def test_levels_have_their_shares_and_what_one_does_not_need_the_others_get() -> None:
    paper = Paper([Ready(priority=sign) for sign in (-1, 0, 1) for _ in range(100)], settings=SHARED)
    got = [head.lane for room in (1, 2, 3, 4, 10, 80) for head in paper.claim(room)]

    assert sorted(Counter(got).values()) == [20, 30, 50]
    assert len(paper.claim(300)) == 200


def test_lots_are_drawn_by_who_has_more_waiting() -> None:
    waiting = [Ready(tenant="a")] * 9 + [Ready(tenant="b")]

    assert tenants(Paper(waiting, settings=LOTS, draw=0.0).claim(1)) == {"a": 1}
    assert tenants(Paper(waiting, settings=LOTS, draw=0.89).claim(1)) == {"a": 1}
    assert tenants(Paper(waiting, settings=LOTS, draw=0.99).claim(1)) == {"b": 1}
    assert tenants(Paper(waiting, settings=LOTS, draw=0.99).claim(10)) == {"a": 9, "b": 1}


def test_queues_share_alike_and_one_that_is_empty_costs_nothing() -> None:
    paper = Paper([Ready(queue=queue) for queue in "aabbbbbbbb"])
    got = [head.subject.queue for _ in range(4) for head in paper.claim(1, queues="abc")]

    assert Counter(got) == {"a": 2, "b": 2}
    assert len(paper.claim(9, queues="abc")) == 6


@pytest.mark.parametrize("laned", [FAIR, SHARED, BOTH, LOTS])
def test_tasks_from_before_their_queue_had_lanes_are_found(laned: QueueSettings) -> None:
    paper = Paper([Ready(tenant=tenant, priority=1) for tenant in "aabb"])
    paper.settings = laned

    assert len(paper.claim(3)) == 3
    assert len(paper.claim(3)) == 1


def test_what_has_no_limits_is_not_asked_for_any() -> None:
    paper = Paper([Ready(tenant=tenant) for tenant in "ab"], [Limit(name="k", queue="r", running=1)], FAIR)

    assert len(paper.claim(5)) == 2
    assert not [request for request in paper.asked if isinstance(request, Keys | Counts)]


@pytest.mark.parametrize(
    ("number", "room"),
    [
        *((50, room) for room in (1, 15, 16, 17, 49, 50, 51)),
        *((LANES_AT_ONCE + 50, room) for room in (LANES_AT_ONCE - 1, LANES_AT_ONCE, LANES_AT_ONCE + 1)),
    ],
)
def test_everybody_has_a_turn_however_many_they_are_and_however_much_a_claim_takes(
    number: int, room: int
) -> None:
    paper = Paper([Ready(tenant=f"n{n:04}") for n in range(number) for _ in range(4)], settings=FAIR)
    got = Counter[str]()
    while got.total() + room <= 3 * number:
        got.update(tenants(paper.claim(room)))
        turns = [got[f"n{n:04}"] for n in range(number)]
        assert max(turns) - min(turns) <= 1


@pytest.mark.parametrize("room", [5, LANES_AT_ONCE, LANES_AT_ONCE + 1])
def test_lanes_that_limits_hold_up_do_not_hide_those_behind_them(room: int) -> None:
    held_up = [Ready(tenant=f"n{n:04}") for n in range(LANES_AT_ONCE)]
    paper = Paper([*held_up, Ready(tenant="z", type="u")], [Limit(name="k", type="t", running=0)], FAIR)
    got = paper.claim(room)
    while paper.planner.unfinished and not got:
        got = paper.claim(room)

    assert tenants(got) == {"z": 1}


# -- what limits let start ---------------------------------------------------------------------------


def test_a_lane_whose_first_is_held_up_gives_its_next() -> None:
    waiting = [Ready(tenant="a", rank=1), Ready(tenant="a", type="u", rank=10), Ready(tenant="b", rank=0)]
    paper = Paper(waiting, [Limit(name="k", type="t", running=1)], FAIR)

    assert tenants(paper.claim(2)) == {"a": 1, "b": 1}


def test_more_keys_than_are_looked_at_in_one_go_are_gone_through_claim_by_claim() -> None:
    accounts = 2 * KEYS_AT_ONCE + 10
    paper = Paper([Ready(account=n) for n in range(accounts)], [Limit(name="k", by="account", running=1)])
    seen = 0
    for _ in range(3):
        seen += len(paper.claim(1000))
        assert paper.planner.unfinished or seen == accounts

    assert seen == accounts


def test_keys_that_are_held_up_do_not_hide_those_behind_them() -> None:
    limit = Limit(name="k", type="t", by="account", running=1)
    paper = Paper([Ready(account=n) for n in range(3 * KEYS_AT_ONCE)], [limit])
    while paper.claim(1000):
        pass
    paper.put(*[Ready(account=n) for n in range(3 * KEYS_AT_ONCE)])  # each of them held up now
    (free,) = [head for head in paper.running.values() if head.subject.payload == b'{"account":77}']
    paper.finish(free.id)
    looks = [paper.claim(1) for _ in range(4)]

    assert [head.subject for look in looks for head in look] == [free.subject]


def test_first_keys_begin_with_the_nameless_and_go_on_behind_the_last() -> None:
    assert first_keys(["", "a", "b", "c"], "a") == ["", "b", "c", "a"]
    assert first_keys(["a", "b"], "") == ["a", "b"]
    assert first_keys(["a", "b"], "b") == ["a", "b"]
    assert first_keys([], "a") == []
    assert len(first_keys(["", *(f"{n:03}" for n in range(100))], "050")) == KEYS_AT_ONCE


def test_what_another_claimer_has_locked_is_left_to_it_and_looked_for_again_soon() -> None:
    limit = Limit(name="k", by="tenant", running=5)
    paper = Paper([Ready(tenant="a"), *[Ready(queue="r", tenant="b")] * 3], [limit])
    paper.locked = {Permit(limit, "b").key}  # It is not in the first lot, so it is not waited for.

    assert tenants(paper.claim(4, queues=("q", "r"))) == {"a": 1}
    assert paper.planner.wait is not None
    assert paper.planner.wait < 1


def test_a_level_is_looked_through_no_further_than_need_be() -> None:
    paper = Paper([Ready(priority=1)], [Limit(name="k", queue="q", running=1)])
    paper.claim(3, Level.HIGH, queues=("q", "r"))

    assert [request for request in paper.asked if isinstance(request, LevelHeads)] == [
        LevelHeads("q", Level.HIGH, 3 + LEVEL_SPARE),
        LevelHeads("r", Level.HIGH, 3),
    ]


def test_a_level_with_more_tasks_held_up_than_are_looked_at_is_looked_at_again() -> None:
    held_up = [Ready(priority=1, rank=n) for n in range(LEVEL_SPARE + 1)]
    paper = Paper([*held_up, Ready(priority=1, rank=999, type="u")], [Limit(name="k", type="t", running=0)])

    for _ in range(2):
        assert paper.claim(1, Level.HIGH) or paper.planner.wait


# -- when another look is worth while ----------------------------------------------------------------


def test_where_time_alone_helps_the_wait_is_as_long_as_it_takes() -> None:
    paper = Paper([Ready()] * 4, [Limit(name="k", rate=4, burst=1)])

    assert len(paper.claim(4)) == 1
    assert paper.planner.wait == 0.25
    assert not paper.claim(4)
    assert paper.planner.wait == 0.25
    paper.later(0.25)
    assert len(paper.claim(4)) == 1
    assert not paper.planner.ledger.is_rewound
    paper.later(-1)
    assert not paper.claim(4)
    assert paper.planner.ledger.is_rewound


def test_where_a_cap_holds_things_up_waiting_is_in_vain() -> None:
    paper = Paper([Ready()] * 4, [Limit(name="k", running=1)])

    assert len(paper.claim(4)) == 1
    assert not paper.claim(4)
    assert paper.planner.wait is None


def test_looks_that_see_only_a_part_and_find_nothing_become_rare() -> None:
    limit = Limit(name="k", by="account", running=0)
    paper = Paper([Ready(account=n) for n in range(3 * KEYS_AT_ONCE)], [limit])
    waits = []
    for _ in range(20):
        assert not paper.claim(5)
        waits.append(paper.planner.wait)

    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, *[1.0] * 15]
    paper.put(Ready(type="u"))
    paper.limits = [replace(limit, running=1)]
    assert paper.claim(5)
    assert paper.planner.wait == 0.0


@pytest.mark.parametrize("keys", [1, KEYS_AT_ONCE // 2, KEYS_AT_ONCE + 36])
def test_a_rate_is_reached_by_looking_when_it_is_said_to_be_worth_while(keys: int) -> None:
    waiting = [Ready(account=n) for n in range(keys) for _ in range(12)]
    paper = Paper(waiting, [Limit(name="k", by="account", rate=1, burst=1)])
    begin, starts, looks = paper.now, 0, 0
    while (paper.now - begin).total_seconds() < 10:
        got = paper.claim(200)
        starts += len(got)
        looks += 1
        assert paper.planner.wait is not None
        paper.finish(*[head.id for head in got])
        paper.later(max(paper.planner.wait, 0.001))

    assert starts >= 0.95 * keys * 10
    assert looks <= 10 * 20  # and not by looking all the time
