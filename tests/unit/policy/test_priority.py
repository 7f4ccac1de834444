"""Priority: one static number orders tasks as priority and present waiting time would."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.samples import running
from windlass._model.queue import Ordering, QueueSettings
from windlass._model.task import rank_of
from windlass._policy.order.priority import MAX_PRIORITY, MIN_PRIORITY, parse_priority
from windlass._policy.order.rank import boost
from windlass.errors import InvalidOption

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STRICT = Ordering()

priorities = st.integers(MIN_PRIORITY, MAX_PRIORITY)
instants = st.integers(0, 4_102_444_800_000)  # milliseconds, until 2100


def rank(run_at_ms: int, priority: int, ordering: Ordering) -> int:
    return rank_of(
        EPOCH + timedelta(milliseconds=run_at_ms), boost(priority, QueueSettings(name="q", ordering=ordering))
    )


@given(instants, priorities, instants, priorities, st.integers(1, 10**10), st.integers(0, 10**13))
def test_the_static_rank_orders_as_the_moving_formula_does(
    run_at: int, priority: int, other_run_at: int, other_priority: int, ageing: int, now: int
) -> None:
    ordering = Ordering(ageing=timedelta(milliseconds=ageing))

    standing = priority + Fraction(now - run_at, ageing)
    other_standing = other_priority + Fraction(now - other_run_at, ageing)

    ahead = rank(run_at, priority, ordering) - rank(other_run_at, other_priority, ordering)
    assert (ahead < 0) == (standing > other_standing)
    assert (ahead == 0) == (standing == other_standing)


@given(instants, priorities, instants, priorities)
def test_strict_order_is_priority_first_and_then_the_earlier(
    run_at: int, priority: int, other_run_at: int, other_priority: int
) -> None:
    ahead = rank(run_at, priority, STRICT) < rank(other_run_at, other_priority, STRICT)

    assert ahead == ((-priority, run_at) < (-other_priority, other_run_at))


def test_no_waiting_makes_up_for_a_level_under_strict_order() -> None:
    assert rank(4_102_444_800_000, 1, STRICT) < rank(0, 0, STRICT)


def test_a_level_is_worth_exactly_its_ageing() -> None:
    ordering = Ordering(ageing=timedelta(minutes=1))

    assert rank(60_000, 1, ordering) == rank(0, 0, ordering)
    assert rank(60_001, 1, ordering) > rank(0, 0, ordering)
    assert rank(59_999, 1, ordering) < rank(0, 0, ordering)


def test_a_task_is_ranked_by_when_it_is_due_and_its_head_start() -> None:
    assert running(run_at=EPOCH + timedelta(seconds=5), boost=2_000).rank == 3_000


@pytest.mark.parametrize("priority", [MIN_PRIORITY, 0, MAX_PRIORITY])
@pytest.mark.parametrize("run_at", [datetime.min, datetime(1970, 1, 1), datetime.max])  # noqa: DTZ001, DTZ901
def test_every_rank_is_exact_as_a_floating_point_score(priority: int, run_at: datetime) -> None:
    exact = rank_of(run_at.replace(tzinfo=UTC), boost(priority, None))

    assert abs(exact) < 1 << 53
    assert int(float(exact)) == exact


def test_a_rank_counts_whole_milliseconds_also_before_1970() -> None:
    assert rank_of(EPOCH + timedelta(microseconds=1999), 0) == 1
    assert rank_of(EPOCH - timedelta(microseconds=1), 0) == -1


@pytest.mark.parametrize(
    ("value", "expected"), [("high", 10), ("medium", 0), ("low", -10), (7, 7), (-100, -100)]
)
def test_a_priority_is_an_integer_or_a_name_for_one(value: int | str, expected: int) -> None:
    assert parse_priority(value) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("urgent", "an integer or one of high, medium, low, got 'urgent'"),
        ("", "got ''"),
        ("1", "got '1'"),
        pytest.param("x" * 1_000_000, "an integer or one of", id="endless text"),
        (True, "an integer or one of high, medium, low, got True"),
        (1.0, "got 1.0"),
        (None, "got None"),
        (101, "from -100 to 100, got 101"),
        (-101, "from -100 to 100, got -101"),
        pytest.param(10**5000, "from -100 to 100, got an int", id="endless number"),
    ],
)
def test_anything_else_is_no_priority(value: object, message: str) -> None:
    with pytest.raises(InvalidOption, match=message) as caught:
        parse_priority(value)

    assert len(str(caught.value)) < 300
