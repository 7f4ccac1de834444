"""The JSON codec returns every value of the model unchanged, and refuses anything else."""

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.model.test_model import PLAIN, values
from tests.unit.samples import ERROR, HOUR, NOW, running
from windlass._model.filter import Action, Filter, Page, Slice
from windlass._model.lease import Lease
from windlass._model.queue import QueueSettings
from windlass._model.schedule import Schedule
from windlass._model.task import NewTask, Task
from windlass._model.verdict import Complete, Postpone, Reason, Settlement, Verdict
from windlass._store.json_codec import Decoder, encode
from windlass._store.messages import (
    RECORD_TYPES,
    REQUESTS,
    EnqueueRequest,
    LeadRequest,
    PromoteRequest,
    PutRequest,
    SettleRequest,
)
from windlass.errors import InvalidOption

EXACT = timedelta(seconds=1 << 33)  # from there on a float of seconds has no room for microseconds
CLOSE = timedelta(milliseconds=16)

documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
spaces = st.text(" \t\r\n", max_size=3)


@st.composite
def spelled(draw: st.DrawFn) -> bytes:
    """JSON in any spelling; what is around it is not part of it."""
    separators = tuple(draw(spaces) + mark + draw(spaces) for mark in ",:")
    text = json.dumps(draw(documents), separators=separators, ensure_ascii=draw(st.booleans()))
    return text.encode()


WIRED: dict[Any, st.SearchStrategy[Any]] = {
    **PLAIN,
    bytes: spelled(),
    timedelta: st.timedeltas(timedelta(0), EXACT) | st.just(timedelta.max),
    Any: st.none(),
    None: st.none(),
}
MESSAGES = {str(kind): kind for one in REQUESTS.values() for kind in (one, one.response_type())}
KEPT = {str(kind): kind for one in RECORD_TYPES.values() for kind in (one, Slice[one])}
KINDS: dict[str, Any] = {**MESSAGES, **KEPT, "verdict": Verdict, "action": Action}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@settings(examples(5, 15), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_a_value_comes_back_as_it_went(kind: Any, data: st.DataObject) -> None:
    value = data.draw(values(kind, WIRED))

    returned: Any = Decoder(kind).decode(encode(value))

    assert returned == value
    assert type(returned) is type(value)


@given(payload=spelled(), result=st.none() | spelled())
def test_payload_and_result_are_kept_to_the_byte(payload: bytes, result: bytes | None) -> None:
    task = running(payload=payload, result=result)

    returned: Task = Decoder(Task).decode(encode(task))

    assert (returned.payload, returned.result) == (payload, result)


@given(payload=spelled(), around=spaces)
def test_space_around_a_payload_is_not_part_of_it(payload: bytes, around: str) -> None:
    task = running(payload=around.encode() + payload + around.encode())

    assert Decoder[Task](Task).decode(encode(task)).payload == payload


@pytest.mark.parametrize("result", [None, b"null", b'""', b"0", b"false", b"[]"])
def test_no_result_is_told_from_one_that_is_null(result: bytes | None) -> None:
    assert Decoder[Complete](Complete).decode(encode(Complete(result=result))).result == result
    assert (b"result" in encode(Complete(result=result))) == (result is not None)


def test_a_payload_is_json_within_json() -> None:
    sent = json.loads(encode(running(payload=b'{"to": [1]}', timeout=timedelta(minutes=1.5), error=ERROR)))

    assert sent["payload"] == {"to": [1]}
    assert sent["timeout"] == 90
    assert sent["run_at"] == "2026-01-01T12:00:00Z"
    assert sent["error"] == {"type": "ValueError", "message": "no"}


@pytest.mark.parametrize("kind", [*get_args(Verdict), *get_args(Action)])
@given(data=st.data())
@settings(max_examples=5)
def test_a_union_is_told_by_its_kind(kind: Any, data: st.DataObject) -> None:
    sent = json.loads(encode(data.draw(values(kind, WIRED))))

    assert sent["kind"] == kind.__struct_config__.tag


@given(duration=st.timedeltas(-EXACT, EXACT))
def test_a_duration_is_exact_to_the_microsecond(duration: timedelta) -> None:
    assert Decoder[timedelta](timedelta).decode(encode(duration)) == duration


@given(duration=st.timedeltas())
def test_a_duration_of_centuries_is_close(duration: timedelta) -> None:
    returned = Decoder[timedelta](timedelta).decode(encode(duration))

    assert max(returned, duration) - min(returned, duration) <= CLOSE


@pytest.mark.parametrize(
    ("seconds", "duration"),
    [
        *((b"1e300", timedelta.max), (b"-1e300", timedelta.min), (b"1.7e308", timedelta.max)),
        *((b"0.0000001", timedelta(0)), (b"0", timedelta(0)), (b"-1", timedelta(seconds=-1))),
        (encode(timedelta.max), timedelta.max),
        (encode(timedelta.min), timedelta.min),
    ],
)
def test_a_duration_beyond_all_counting_is_as_long_as_can_be(seconds: bytes, duration: timedelta) -> None:
    assert Decoder[timedelta](timedelta).decode(seconds) == duration


@given(
    at=st.datetimes(NOW.replace(2, tzinfo=None), NOW.replace(9998, tzinfo=None)),
    minutes=st.integers(-1439, 1439),
)
def test_an_instant_of_any_zone_is_the_same_one_in_utc(at: datetime, minutes: int) -> None:
    at = at.replace(tzinfo=timezone(timedelta(minutes=minutes)))

    returned = Decoder[datetime](datetime).decode(json.dumps(at.isoformat()).encode())

    assert returned == at
    assert returned.tzinfo is UTC


TASK = {"id": "t1", "type": "mail.send", "payload": {}, "root": "t1"}
SETTLEMENT = Settlement(
    lease=Lease("t1", 1), verdict=Postpone(delay=HOUR, reason=Reason.RETRY), outcome="failed"
)
DEEP = b"[" * 100_000 + b"]" * 100_000

REFUSED: list[tuple[Any, bytes]] = [
    # not JSON, or not only
    *((Page, data) for data in (b"", b" ", b"{", b"{}}", b"{} {}", b"{},", b"\0", b"{}\0", b"'{}'")),
    *((Page, data) for data in (b"[]", b"null", b"1", b'""', b"\xef\xbb\xbf{}", "{}".encode("utf-16"))),
    # unknown fields, missing ones, wrong types
    *((Page, data) for data in (b'{"size":1}', b'{"limit":1,"Limit":1}', b'{"limit":null}')),
    *((Page, data) for data in (b'{"limit":"1"}', b'{"limit":1.5}', b'{"limit":true}', b'{"limit":NaN}')),
    *((Page, data) for data in (b'{"limit":1e30}', b'{"cursor":1}', b'{"newest_first":0}')),
    *(
        (PromoteRequest, data)
        for data in (b"{}", b'{"limit":9223372036854775808}', b'{"limit":-9223372036854775809}')
    ),
    *((PromoteRequest, b'{"limit":' + b"9" * digits + b"}") for digits in (400, 5_000)),
    *(
        (EnqueueRequest, data)
        for data in (b'{"batch":{}}', b'{"batch":[1]}', b'{"batch":[{}]}', b'{"batch":null}')
    ),
    *(
        (NewTask, json.dumps({**TASK, name: 1}).encode())
        for name in ("id", "queue", "after", "run_at", "more")
    ),
    *((NewTask, json.dumps({k: v for k, v in TASK.items() if k != name}).encode()) for name in TASK),
    # durations and instants
    *(
        (LeadRequest, b'{"holder":"k","lease_for":' + one + b"}")
        for one in (b"NaN", b"Infinity", b"1e999", b"null")
    ),
    *(
        (LeadRequest, b'{"holder":"k","lease_for":' + one + b"}")
        for one in (b'"1"', b'"PT1S"', b"[]", b"true")
    ),
    *((Filter, json.dumps({"created_after": at}).encode()) for at in ("2026-01-01T00:00:00", "", "now", 0)),
    (Filter, b'{"created_after":"0001-01-01T00:00:00+23:00"}'),
    (Filter, b'{"created_after":"9999-12-31T23:59:59-23:00"}'),
    # enums and kinds
    *((Filter, data) for data in (b'{"states":["gone"]}', b'{"states":"ready"}', b'{"states":[null]}')),
    *((Verdict, data) for data in (b"{}", b'{"kind":"forget"}', b'{"kind":1}', b'{"kind":null}', b"[]")),
    *((Verdict, data) for data in (b'{"type":"complete"}', b'{"kind":"bury"}', b'{"kind":"complete","x":1}')),
    (Action, b'{"kind":"postpone","delay":1,"reason":"retry"}'),
    # text that is none
    *((Page, b'{"cursor":"' + text + b'"}') for text in (b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\\ud800")),
    *((Page, b'{"cursor":"' + text + b'"}') for text in (b"\\ud800x", b"\\udc00\\ud800", b"\n", b"\\x")),
    (Page, b'{"\xff":1}'),
    # payloads, which nobody looks into otherwise
    *(
        (PutRequest, b'{"kind":"key","record":' + data + b"}")
        for data in (b"", b"NaN", b"[1,]", b"{1:2}", b"'a'")
    ),
    *(
        (PutRequest, b'{"kind":"key","record":' + data + b"}")
        for data in (b'"\xff"', b'"\xed\xa0\x80"', DEEP, b'"')
    ),
    (Page, DEEP),
    (Page, b'{"cursor":' + DEEP + b"}"),
]


@pytest.mark.parametrize(("kind", "data"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_such_value_is_refused(kind: Any, data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        Decoder(kind).decode(data)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (QueueSettings, b'{"name":"q","stripes":0}'),
        (QueueSettings, b'{"name":"q","weights":{"a":0},"fairness":"round_robin"}'),
        (QueueSettings, b'{"name":"q","ordering":{"shares":{"high":100}}}'),
        (QueueSettings, b'{"name":"q","retention":{"dead":-1}}'),
        (RECORD_TYPES["limit"], b'{"name":"l"}'),
        (RECORD_TYPES["limit"], b'{"name":"l","rate":0}'),
        (RECORD_TYPES["alert"], b'{"name":"a","count":0}'),
        (RECORD_TYPES["alert"], b'{"name":"a","window":0}'),
    ],
)
def test_what_the_model_refuses_is_refused_in_its_words(kind: Any, data: bytes) -> None:
    with pytest.raises(InvalidOption):
        Decoder(kind).decode(data)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@settings(examples(5, 20), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_a_value_that_was_damaged_is_refused_or_read_and_nothing_else(kind: Any, data: st.DataObject) -> None:
    whole = encode(data.draw(values(kind, WIRED)))
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 4)))
    harm = data.draw(
        st.binary(max_size=3) | st.sampled_from([b"null", b"1e999", b"-1", b'"', b"{}", b"9" * 20])
    )

    with suppress(msgspec.DecodeError, InvalidOption):
        Decoder(kind).decode(whole[:start] + harm + whole[end:])


def test_a_refusal_names_the_place() -> None:
    sent = encode(SettleRequest((SETTLEMENT,))).replace(b'"retry"', b'"never"')

    with pytest.raises(msgspec.DecodeError, match=r"\$\.batch\[0\]\.verdict\.reason"):
        Decoder(SettleRequest).decode(sent)


def test_what_is_left_out_is_as_the_model_has_it() -> None:
    assert Decoder[Page](Page).decode(b"{}") == Page()
    assert Decoder[QueueSettings](QueueSettings).decode(b'{"name":"q"}') == QueueSettings(name="q")
    assert Decoder[NewTask](NewTask).decode(json.dumps(TASK).encode()) == NewTask(
        id="t1", type="mail.send", payload=b"{}", root="t1"
    )
    assert Decoder[Schedule](Schedule).decode(b'{"name":"s","type":"t"}') == Schedule(name="s", type="t")


def test_a_queue_without_retention_keeps_what_none_says() -> None:
    sent = b'{"name":"q","retention":{"dead":null}}'

    returned = Decoder[QueueSettings](QueueSettings).decode(sent)

    assert returned.retention is not None
    assert (returned.retention.dead, returned.retention.completed) == (None, timedelta(days=7))
    assert Decoder[QueueSettings](QueueSettings).decode(encode(returned)) == returned


def test_mappings_of_two_values_are_not_one() -> None:
    decoder = Decoder[QueueSettings](QueueSettings)

    assert decoder.decode(b'{"name":"a"}').weights is not decoder.decode(b'{"name":"b"}').weights
