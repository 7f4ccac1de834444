"""Bodies in which an object has the same name twice are refused."""

import json
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.http.conftest import Ask
from tests.http.problem import problem
from windlass._http.web.duplicate_names import refuse_duplicate_names
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
            refuse_duplicate_names(data)
    else:
        refuse_duplicate_names(data)


@given(value=VALUES, name=TEXT, twice=st.booleans())
def test_the_error_names_the_place(value: Any, name: str, twice: bool) -> None:
    step = Members([("type", "b"), ("result_into", name), *([("delay", 1)] * (1 + twice))])
    body = Members([("type", "a:b"), ("payload", Members([("x", [0, value])])), ("next", [step, step])])
    data = written(body, ascii=True).encode()
    if has_repeats(value):
        with pytest.raises(Problem, match=r"at `\$\.payload\.x\[1\]") as raised:
            refuse_duplicate_names(data)
        assert raised.value.code == "invalid-payload"
    elif twice:
        with pytest.raises(Problem, match=r"at `\$\.next\[0\]`") as raised:
            refuse_duplicate_names(data)
        assert raised.value.code == "invalid-request"
    else:
        refuse_duplicate_names(data)


def test_the_time_is_linear_in_depth() -> None:
    deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    refuse_duplicate_names(deep)  # would take hours if each level were scanned again
