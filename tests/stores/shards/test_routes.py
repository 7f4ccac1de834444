"""Where tasks go, and that they are looked for wherever they may be."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._model.record import QueueRoute, Routes, ShardMap
from windlass._stores.shards.routes import (
    MAX_FORMER,
    added,
    drained,
    first_map,
    former_places,
    is_draining,
    misplaced,
    place,
    places,
    removed,
    rendezvous,
    routed,
)
from windlass.errors import InvalidOption, Refused

names = st.text("abcdefgh", min_size=1, max_size=2)
shard_names = st.lists(names, min_size=1, max_size=6, unique=True)
queues = st.text(min_size=1, max_size=8)


def a_map(*shards: str, **fields: object) -> ShardMap:
    return ShardMap(id="m", version=1, home=shards[0], shards=shards, routes=Routes(open=shards), **fields)  # type: ignore[arg-type]


@given(shard_names, names, st.lists(queues, max_size=20))
def test_a_shard_that_is_added_takes_queues_and_the_others_keep_theirs(shards, new, some) -> None:
    for queue in some:
        before = rendezvous(queue, shards)
        assert rendezvous(queue, [*shards, new]) in (before, new)


def test_every_shard_gets_some_of_many_queues() -> None:
    assert {rendezvous(f"queue {number}", "abcdefgh") for number in range(200)} == set("abcdefgh")


@given(queues, st.text(max_size=5))
def test_a_tenant_of_a_queue_that_is_spread_stays_on_one_shard(queue, tenant) -> None:
    routes = Routes(open=("a",), queues={queue: QueueRoute(over=("b", "c"), by_tenant=True)})

    assert place(routes, queue, tenant) in ("b", "c")
    assert place(routes, queue, tenant) == place(routes, queue, tenant)


changes: st.SearchStrategy[Callable[[ShardMap], ShardMap]] = st.one_of(
    names.map(lambda name: lambda one: added(one, name)),
    names.map(lambda name: lambda one: drained(one, name)),
    names.map(lambda name: lambda one: removed(one, name)),
    st.tuples(st.sampled_from(["mail", "web"]), st.none() | shard_names, st.booleans()).map(
        lambda given: (
            lambda one: routed(
                one,
                given[0],
                None if given[1] is None else QueueRoute(over=tuple(given[1]), by_tenant=given[2]),
            )
        )
    ),
)


@given(shard_names, st.lists(changes, max_size=12), st.sampled_from(["mail", "web", "other"]), names)
def test_claims_look_wherever_any_earlier_map_has_put_tasks(shards, several, queue, tenant) -> None:
    shard_map = first_map("m", tuple(shards), ())
    used = {place(shard_map.routes, queue, tenant)}
    for change in several:
        try:
            shard_map = change(shard_map)
        except (Refused, InvalidOption):
            continue
        present = place(shard_map.routes, queue, tenant)
        used = (used | {present}) & set(shard_map.shards)

        assert used <= set(places(shard_map, queue))
        assert used - {present} <= set(former_places(shard_map, queue, tenant, present))
        assert present in shard_map.shards


def test_shards_that_had_tasks_before_are_looked_at_for_every_queue() -> None:
    shard_map = first_map("m", ("a", "b"), ("a",))

    assert all("a" in places(shard_map, f"queue {number}") for number in range(20))


@pytest.mark.parametrize(
    ("change", "because"),
    [
        (lambda one: drained(one, "a"), "home"),
        (lambda one: drained(routed(one, "mail", QueueRoute(over=("b",))), "b"), "mail"),
        (lambda one: drained(drained(one, "b"), "b"), "already draining"),
        (lambda one: added(one, "b"), "already open"),
        (lambda one: removed(one, "b"), "drain it first"),
        (lambda one: routed(one, "mail", None), "routed already"),
    ],
)
def test_changes_that_would_strand_something_are_refused(change, because) -> None:
    with pytest.raises(Refused, match=because):
        change(a_map("a", "b"))


def test_an_unknown_shard_is_refused() -> None:
    with pytest.raises(InvalidOption, match="there are a, b"):
        routed(a_map("a", "b"), "mail", QueueRoute(over=("x",)))


def test_the_number_of_earlier_routes_is_bounded() -> None:
    shard_map, route = a_map("a", "b"), QueueRoute(over=("b",))
    for number in range(MAX_FORMER):
        shard_map = routed(shard_map, f"queue {number}", route)

    with pytest.raises(Refused, match="earlier changes"):
        routed(shard_map, "one more", route)


def test_a_drained_shard_takes_nothing_until_it_is_added_again() -> None:
    shard_map = drained(a_map("a", "b"), "b")

    assert is_draining(shard_map, "b")
    assert misplaced(shard_map, "b", {("mail", ""): 3}) == 3
    assert not is_draining(added(shard_map, "b"), "b")
    assert removed(shard_map, "b").shards == ("a",)
