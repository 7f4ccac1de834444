"""Lanes: each task has one, of its tier and tenant, and the lanes of a tier are adjacent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._model.queue import Fairness, Level, Ordering, QueueSettings, level_of
from windlass._policy.input.options import checked_name
from windlass._policy.order.lanes import REST, changes_lanes, lane_of, lane_range, tenant_of, tiers

tenants = st.from_regex(r"[\w][\w.:@/+-]{0,20}", fullmatch=True) | st.sampled_from(
    ["", "high", "rest", "low"]
)
priorities = st.integers(-100, 100)


@st.composite
def shares(draw: st.DrawFn) -> dict[Level, int]:
    """Shares for some levels, or for all."""
    levels = draw(st.lists(st.sampled_from(Level), unique=True, min_size=1))
    cuts = sorted(draw(st.sets(st.integers(1, 99), min_size=len(levels), max_size=len(levels))))
    found = {level: cut - before for level, cut, before in zip(levels, cuts, [0, *cuts], strict=False)}
    if len(levels) == len(Level):
        found[levels[-1]] = 100 - cuts[-2]
    return found


def settings(fairness: Fairness, shares: dict[Level, int]) -> QueueSettings:
    return QueueSettings(name="mail", fairness=fairness, ordering=Ordering(shares=shares))


fairnesses = st.sampled_from(Fairness)
shared = st.builds(settings, fairnesses, shares())
unshared = st.builds(settings, fairnesses, st.just({}))


def lies_in(lane: str, tier: str) -> bool:
    first, below = lane_range(tier)
    return first <= lane < below


@given(shared | unshared, tenants, priorities)
def test_a_lane_lies_in_the_span_of_one_band_that_the_queue_has(
    settings: QueueSettings, tenant: str, priority: int
) -> None:
    lane = lane_of(settings, tenant, priority)

    assert [lies_in(lane, tier) for tier in tiers(settings)].count(True) == 1
    assert lies_in(lane, "")


@given(shared, tenants, priorities)
def test_the_band_is_that_of_the_level_or_else_the_rest(
    settings: QueueSettings, tenant: str, priority: int
) -> None:
    level = level_of(priority)
    tier = level.value if level in settings.ordering.shares else REST

    assert lies_in(lane_of(settings, tenant, priority), tier)
    assert tier in tiers(settings)


@given(unshared, tenants, priorities)
def test_a_lane_from_before_there_were_shares_lies_in_no_band(
    settings: QueueSettings, tenant: str, priority: int
) -> None:
    lane = lane_of(settings, tenant, priority)

    assert not any(lies_in(lane, tier) for tier in (*Level, REST))


@given(shared | unshared, tenants, priorities)
def test_a_lane_tells_its_tenant_where_the_queue_is_fair(
    settings: QueueSettings, tenant: str, priority: int
) -> None:
    lane = lane_of(settings, tenant, priority)

    assert tenant_of(lane) == ("" if settings.fairness is Fairness.FIFO else tenant)


@given(shared | unshared, tenants, priorities, tenants, priorities)
def test_two_share_a_lane_that_differ_neither_in_band_nor_in_tenant(
    settings: QueueSettings, tenant: str, priority: int, other_tenant: str, other_priority: int
) -> None:
    lane = lane_of(settings, tenant, priority)
    other_lane = lane_of(settings, other_tenant, other_priority)

    same_tier = all(lies_in(lane, tier) == lies_in(other_lane, tier) for tier in tiers(settings))
    same_tenant = settings.fairness is Fairness.FIFO or tenant == other_tenant
    assert (lane == other_lane) == (same_tier and same_tenant)


@given(shared | unshared)
def test_the_bands_have_all_the_picks_between_them_and_none_has_none(settings: QueueSettings) -> None:
    assert sum(tiers(settings).values()) == 100
    assert min(tiers(settings).values()) > 0


@given(st.none() | shared | unshared, st.none() | shared | unshared)
def test_settings_move_tasks_if_any_belongs_into_another_lane(
    before: QueueSettings | None, after: QueueSettings | None
) -> None:
    tasks = [(tenant, priority) for tenant in ("", "acme") for priority in (-1, 0, 1)]
    moved = [task for task in tasks if lane_of(before, *task) != lane_of(after, *task)]

    assert changes_lanes(before, after) == bool(moved)


@pytest.mark.parametrize("settings", [None, QueueSettings(name="mail")])
def test_a_queue_without_either_is_one_line(settings: QueueSettings | None) -> None:
    assert lane_of(settings, "acme", 10) == ""
    assert tiers(settings) == {"": 100}
    assert lies_in("", "")


@given(tenants)
def test_the_names_tried_here_are_names(tenant: str) -> None:
    assert tenant == "" or checked_name(tenant, "tenant") == tenant
