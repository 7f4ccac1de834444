"""Bodies in which an object has the same name twice are refused."""

import json
from contextlib import suppress
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.http.conftest import Ask
from tests.http.problem import problem
from windlass._http.web.json_structure import MAX_MEMBERS, MAX_NESTING, check_structure
from windlass._http.web.problems import Problem
from windlass._model.filter import Filter, Page
from windlass._stores.memory import MemoryStore

ID = "0199c3a2-7d10-7abc-8def-0123456789ab"
TWICE = [
    ("POST", "/tasks", b'{"type": "a", "type": "b"}', "$"),
    ("POST", "/tasks", b'{"type": "a", "ty\\u0070e": "b"}', "$"),
    ("POST", "/tasks", b' {"type" :"a", "type": "b"}', "$"),
    ("POST", "/tasks", b'{"type":"a","next":[{"type":"b"},{"type":"c","delay":1,"delay":2}]}', "$.next[1]"),
    ("POST", "/tasks/batch", b'{"tasks": [{"type": "a"}], "tasks": [{"type": "b"}]}', "$"),
    ("POST", "/tasks/batch", b'{"tasks":[{"type":"a"},{"type":"b","queue":"q","queue":"r"}]}', "$.tasks[1]"),
    ("POST", "/tasks/cancel", b'{"where": {"queue": ["a"], "queue": ["b"]}}', "$.where"),
    ("PATCH", "/queues/q", b'{"weights": {"acme": 1, "acme": 2}}', "$.weights"),
]


@pytest.mark.parametrize("case", TWICE)
async def test_a_name_given_twice_is_refused(
    case: tuple[str, str, bytes, str], http: httpx2.AsyncClient, open_url: str, store: MemoryStore
) -> None:
    method, path, body, place = case
    answer = await http.request(
        method, open_url + path, content=body, headers={"content-type": "application/json"}
    )
    assert problem(answer, 422, "invalid-request")["detail"].endswith(f"at `{place}`")
    assert not (await store.find(Filter(), Page())).items


async def test_so_is_one_in_a_payload(http: httpx2.AsyncClient, open_url: str, ask: Ask) -> None:
    told = {"content-type": "application/json"}
    body = b'{"type": "a", "payload": {"x": {"y": 1, "y": 2}}}'
    problem(await http.post(f"{open_url}/tasks", content=body, headers=told), 422, "invalid-payload")
    new = {"id": ID, "root": ID, "type": "a", "payload": "HERE", "queue": "q"}
    batch = json.dumps({"batch": [new]}).replace('"HERE"', '{"x": 1, "x": 2}').encode()
    problem(await ask("enqueue", batch), 422, "invalid-payload")


async def test_so_is_one_in_a_verb_of_the_store(ask: Ask) -> None:
    problem(await ask("find", b'{"where": {"root": "a", "root": "b"}, "page": {}}'), 422, "invalid-request")


async def test_so_is_one_in_a_line(http: httpx2.AsyncClient, open_url: str) -> None:
    body = b'{"type": "a"}\n{"type": "b", "type": "c"}\n{"type": "d"}\n'
    answer = await http.post(
        f"{open_url}/tasks/stream", content=body, headers={"content-type": "application/x-ndjson"}
    )
    first, second = map(json.loads, answer.text.splitlines())
    assert first["created"]
    assert second["problem"]["code"] == "invalid-request"


class Members(list[tuple[str, Any]]):
    """An object whose names may be there more than once."""


TEXT = st.text(st.sampled_from('a:"\\u{}[],é\n'), max_size=5)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers(0, 99) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(TEXT, inner), max_size=4).map(Members),
    max_leaves=12,
)


def written(value: Any, *, ascii: bool) -> str:  # noqa: A002
    if isinstance(value, Members):
        inside = (f"{json.dumps(n, ensure_ascii=ascii)} :{written(v, ascii=ascii)}" for n, v in value)
        return "{" + ", ".join(inside) + "}"
    if isinstance(value, list):
        return "[" + ",".join(written(one, ascii=ascii) for one in value) + "]"
    return json.dumps(value, ensure_ascii=ascii)


def has_repeats(value: Any) -> bool:
    if isinstance(value, Members):
        return len(dict(value)) < len(value) or any(has_repeats(one) for _, one in value)
    return isinstance(value, list) and any(has_repeats(one) for one in value)


@given(value=VALUES, ascii=st.booleans(), padding=st.sampled_from([0, 3_000]))
def test_exactly_the_duplicates_are_found(value: Any, ascii: bool, padding: int) -> None:  # noqa: A002
    data = written(value, ascii=ascii).encode() + b" " * padding  # long bodies are checked in another way
    if has_repeats(value):
        with pytest.raises(Problem, match="twice"):
            check_structure(data)
    else:
        check_structure(data)


@given(value=VALUES, name=TEXT, twice=st.booleans())
def test_the_error_names_the_place(value: Any, name: str, twice: bool) -> None:
    step = Members([("type", "b"), ("result_into", name), *([("delay", 1)] * (1 + twice))])
    body = Members([("type", "a:b"), ("payload", Members([("x", [0, value])])), ("next", [step, step])])
    data = written(body, ascii=True).encode()
    if has_repeats(value):
        with pytest.raises(Problem, match=r"at `\$\.payload\.x\[1\]") as raised:
            check_structure(data)
        assert raised.value.code == "invalid-payload"
    elif twice:
        with pytest.raises(Problem, match=r"at `\$\.next\[0\]`") as raised:
            check_structure(data)
        assert raised.value.code == "invalid-request"
    else:
        check_structure(data)


def test_the_time_is_linear_in_depth() -> None:
    deep = b'{"a":' * (MAX_NESTING - 1) + b"1" + b"}" * (MAX_NESTING - 1)
    check_structure(b"[%b]" % b",".join([deep] * 100))  # would take minutes if each level were scanned again


def test_depth_is_bounded() -> None:
    for opened, closed in ((b'{"a":', b"}"), (b"[", b"]")):
        with pytest.raises(Problem, match="nested deeper than 512 levels"):
            check_structure(opened * (MAX_NESTING + 1) + b"1" + closed * (MAX_NESTING + 1) + b" " * 2_000)


def test_members_of_upper_levels_are_bounded() -> None:
    many = b",".join([b'""'] * (MAX_MEMBERS + 1))
    with pytest.raises(Problem, match="more than 500,000 values") as raised:
        check_structure(b'{"where":{"ids":[%b]}}' % many)
    assert raised.value.status == 413
    check_structure(b'{"tasks":[{"payload":{"a":[%b]}}]}' % many)  # payloads have a limit of their own


@pytest.mark.parametrize(
    "body", [b"}", b"{]", b"[}", b']{"a":1,"a":1}', b'{"a', b'"a":1,"a":1', b"{}}", b'"a":']
)
def test_what_is_no_json_is_left_to_the_decoder(body: bytes) -> None:
    with suppress(Problem):
        check_structure(body.ljust(2_001))
