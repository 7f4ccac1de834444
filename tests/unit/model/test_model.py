"""Values are frozen and hashable, and JSON returns them unchanged."""

import importlib
import pkgutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

import windlass._model
from tests.examples import examples
from windlass._model.alert import MAX_COUNT, Alert, AlertState
from windlass._model.attempt import Attempt
from windlass._model.filter import Action, Count, Filter, Page, Slice
from windlass._model.key import ApiKey, Login
from windlass._model.lease import Claim, Claimed, Heartbeat, HeartbeatReply, Lease
from windlass._model.limit import MAX_BURST, MAX_RATE, MAX_RUNNING, MAX_STORED_TASKS, Limit, Quota, Usage
from windlass._model.options import DeclaredType
from windlass._model.queue import MAX_WEIGHT, Fairness, Level, Ordering, QueueSettings, Window
from windlass._model.record import (
    Archive,
    Audit,
    Declaration,
    DisabledEndpoint,
    HistoryBucket,
    Record,
    Session,
    ShardMap,
)
from windlass._model.schedule import Schedule, Tick
from windlass._model.task import Enqueued, NewTask, Task
from windlass._model.verdict import Settled, Settlement, Verdict

AT_THE_SEAM: list[Any] = [
    *(NewTask, Enqueued, Task, Claim, Claimed, Settlement, Settled, Heartbeat, HeartbeatReply, Lease),
    *(Filter, Page, Slice[Task], Slice[Session], Count, Attempt, Session, Audit, QueueSettings),
    *(
        Verdict,
        Action,
        Limit,
        Quota,
        Usage,
        Schedule,
        Tick,
        Alert,
        AlertState,
        Declaration,
        ApiKey,
        Login,
        DeclaredType,
        Archive,
        DisabledEndpoint,
        HistoryBucket,
        ShardMap,
    ),
]

PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=8),
    bytes: st.binary(max_size=8),
    bool: st.booleans(),
    int: st.integers(-(1 << 63), (1 << 63) - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    datetime: st.datetimes(timezones=st.just(UTC)),
    timedelta: st.timedeltas(min_value=timedelta(0)),
    NoneType: st.none(),
}

# fields that refuse what their type would allow
BOUNDED: dict[tuple[type[Struct], str], st.SearchStrategy[Any]] = {
    (QueueSettings, "stripes"): st.just(1),  # a queue with lanes has no others
    (QueueSettings, "fairness"): st.just(Fairness.ROUND_ROBIN),  # only it has weights
    (QueueSettings, "weights"): st.dictionaries(st.text(max_size=8), st.integers(1, MAX_WEIGHT), max_size=3),
    (Window, "opens"): st.integers(0, 700),
    (Window, "closes"): st.integers(701, 1440),
    (Window, "days"): st.lists(st.integers(0, 6), min_size=1, max_size=2).map(tuple),
    (Ordering, "shares"): st.dictionaries(st.sampled_from(Level), st.integers(1, 49), max_size=2),
    (Limit, "running"): st.integers(0, MAX_RUNNING),
    (Limit, "rate"): st.floats(0, MAX_RATE, exclude_min=True),
    (Limit, "burst"): st.none() | st.integers(1, MAX_BURST),
    (Quota, "tasks"): st.integers(0, MAX_STORED_TASKS),
    (Quota, "bytes"): st.none() | st.integers(0, MAX_STORED_TASKS),
    (DeclaredType, "backoff"): st.dictionaries(st.text(max_size=8), st.floats(0, 1e6), max_size=2),
    (DeclaredType, "delays"): st.lists(st.floats(0, 1e6), max_size=2).map(tuple),
    (Alert, "count"): st.integers(1, MAX_COUNT),
    (Alert, "window"): st.none() | st.timedeltas(timedelta(microseconds=1), timedelta(days=36_500)),
}
NOT_HASHED = (QueueSettings, DeclaredType, ShardMap)  # which hold mappings


def values(wanted: Any, plain: Mapping[Any, st.SearchStrategy[Any]] = PLAIN) -> st.SearchStrategy[Any]:
    """Values of a type, with every field filled in; `plain` says with what."""
    origin = get_origin(wanted)
    if wanted in plain:
        return plain[wanted]
    if origin in {Union, UnionType}:
        return st.one_of([values(one, plain) for one in get_args(wanted)])
    if origin is dict:
        return st.dictionaries(*(values(one, plain) for one in get_args(wanted)), max_size=2)
    if origin is tuple:
        return st.lists(values(get_args(wanted)[0], plain), max_size=2).map(tuple)
    if issubclass(origin or wanted, Enum):
        return st.sampled_from(wanted)
    fields = {
        field.name: BOUNDED[at] if (at := (wanted, field.name)) in BOUNDED else values(field.type, plain)
        for field in msgspec.structs.fields(wanted)
    }
    return st.builds(origin or wanted, **fields)


def structs() -> list[type[Struct]]:
    modules = [
        importlib.import_module(f"windlass._model.{module.name}")
        for module in pkgutil.iter_modules(windlass._model.__path__)
    ]
    found = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Struct) and value is not Struct
    }
    return sorted(found, key=lambda struct: struct.__name__)


@pytest.mark.parametrize("struct", structs())
def test_every_value_is_frozen(struct: type[Struct]) -> None:
    assert struct.__struct_config__.frozen


@pytest.mark.parametrize("wanted", AT_THE_SEAM, ids=str)
@settings(examples(5, 15), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_value_comes_back_from_json_as_it_went(wanted: Any, data: st.DataObject) -> None:
    value = data.draw(values(wanted))

    returned = msgspec.json.decode(msgspec.json.encode(value), type=wanted)

    assert returned == value
    assert type(returned) is type(value)
    if wanted not in NOT_HASHED:
        assert hash(returned) == hash(value)


@pytest.mark.parametrize("wanted", [*get_args(Verdict), *get_args(Action)])
def test_a_member_of_a_union_is_told_by_its_tag(wanted: type[Struct]) -> None:
    assert wanted.__struct_config__.tag


def test_a_record_is_kept_under_its_own_type() -> None:
    assert set(get_args(Record)) <= set(AT_THE_SEAM)


def test_a_value_cannot_be_changed() -> None:
    lease = Lease("t1", 1)

    with pytest.raises(AttributeError):
        lease.fence = 2  # type: ignore[misc]


@given(task=values(Task))
@settings(max_examples=10)
def test_a_claimed_task_is_settled_under_the_fence_it_was_claimed_with(task: Task) -> None:
    assert Claimed(task).lease == Lease(task.id, task.fence)
