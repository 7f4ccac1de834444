"""Tasks built from a type, a payload and options."""

import pytest
from msgspec.structs import replace

from windlass._client.builder import TaskBuilder, checked_payload
from windlass._handler.spec import HandlerSpec
from windlass._model.options import Defaults
from windlass._policy.backoff import Backoff
from windlass.errors import InvalidPayload

TRACE = "00-" + "1" * 32 + "-" + "2" * 16 + "-00"


def spec_of(defaults: Defaults) -> HandlerSpec:
    def greet(name: str) -> str:
        return name

    return HandlerSpec(greet, name="greet", defaults=defaults, backoff=Backoff())


def without_id(task: object) -> object:
    return replace(task, id="", root="")


@pytest.mark.parametrize("unique", [False, True])
def test_a_plain_task_is_what_building_it_without_options_gives(unique: bool) -> None:
    builder = TaskBuilder(enqueued_by="me", trace=TRACE)
    spec = spec_of(Defaults(queue="mail", priority=3, max_attempts=2, unique=unique, secret=("name",)))
    payloads = [b'{"name":"%d"}' % n for n in range(3)]

    plain = [builder.plain(spec, payload) for payload in payloads]

    built = [builder.build("greet", payload, {}, spec.defaults) for payload in payloads]
    assert [without_id(task) for task in plain] == [without_id(task) for task in built]
    assert len({task.id for task in plain}) == 3
    assert all(task.root == task.id for task in plain)


def test_each_plain_task_starts_a_trace_of_its_own_where_none_is_current() -> None:
    builder = TaskBuilder()
    spec = spec_of(Defaults())

    traces = {builder.plain(spec, b"{}").trace for _ in range(3)}

    assert len(traces) == 3


@pytest.mark.parametrize("unique", [False, True])
def test_more_of_the_same_request_differ_in_id_and_payload_alone(unique: bool) -> None:
    builder = TaskBuilder(enqueued_by="me", trace=TRACE)
    spec = spec_of(Defaults(unique=unique))
    first = builder.build("greet", b'{"name":"a"}', {"tenant": "acme", "delay": 60}, spec.defaults)

    (other,) = builder.more_like(first, [b'{"name":"b"}'])

    alike = builder.build("greet", b'{"name":"b"}', {"tenant": "acme", "delay": 60}, spec.defaults)
    assert without_id(other) == without_id(alike)
    assert other.id == other.root != first.id


def test_a_payload_from_outside_is_checked_against_the_handler_if_there_is_one() -> None:
    assert checked_payload(' {"name": 1}', None) == b'{"name":1}'
    with pytest.raises(InvalidPayload, match="does not fit greet") as error:
        checked_payload('{"name": 1}', spec_of(Defaults()))
    assert error.value.pointer == "/name"
