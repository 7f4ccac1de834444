"""Malformed and hostile request bodies: each gets a problem, and the server keeps running."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.examples import FULL, sample
from tests.foreign_input import task
from tests.http.conftest import Ask
from tests.http.problem import problem
from windlass._http.web import body as receiving
from windlass._ids import new_id
from windlass._model.filter import Filter, Page
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass._stores.sqlite import SQLiteStore

DEEP = 100_000
JSON = "application/json"

pytestmark = pytest.mark.usefixtures("lives_on")


@pytest.fixture(params=sample(["sqlite"], ["memory"]))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "windlass.db")
    await store.open()
    yield store
    await store.close()


def batch(payload: bytes = b"{}", name: bytes = b"t") -> bytes:
    """The bytes of an enqueue, with these in them."""
    made = new_id().encode()
    return b'{"batch":[{"id":"%b","root":"%b","type":"%b","payload":%b}]}' % (made, made, name, payload)


def refused(response: httpx2.Response) -> None:
    """It is the request that is wrong, and whoever found out says so."""
    code = response.json()["code"]
    assert code in ("invalid-option", "invalid-payload", "invalid-request")
    problem(response, 422, code)


async def nothing_kept(store: Store) -> bool:
    return not (await store.find(Filter(), Page())).items


class TestBody:
    async def test_one_that_is_said_to_be_too_large(self, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(receiving, "MAX_BATCH_BODY", 1000)
        problem(await ask("enqueue", b" " * 1001), 413, "too-large")
        assert (await ask("promote", b'{"limit":1}'.ljust(1000))).status_code == 200

    async def test_one_that_turns_out_too_large(
        self, http: httpx2.AsyncClient, open_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(receiving, "MAX_BATCH_BODY", 1000)

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(11):
                yield b" " * 100

        response = await http.post(
            f"{open_url}/store/about", content=chunks(), headers={"content-type": JSON}
        )
        problem(response, 413, "too-large")

    @pytest.mark.parametrize(
        "kind",
        ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", "multipart/form-data", ""],
    )
    async def test_of_another_type(self, kind: str, ask: Ask) -> None:
        problem(await ask("about", b"{}", content_type=kind), 415, "unsupported-media-type")

    async def test_of_no_type(self, http: httpx2.AsyncClient, open_url: str) -> None:
        problem(await http.post(f"{open_url}/store/about", content=b"{}"), 415, "unsupported-media-type")

    @pytest.mark.parametrize("kind", [JSON, "Application/JSON; charset=utf-8"])
    async def test_of_the_right_type(self, kind: str, ask: Ask) -> None:
        assert (await ask("about", b"{}", content_type=kind)).status_code == 200

    @pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "gzip, identity", "zstd"])
    async def test_compressed(self, coding: str, ask: Ask) -> None:
        problem(await ask("about", b"{}", content_encoding=coding), 415, "unsupported-media-type")

    @pytest.mark.parametrize(
        "body",
        [
            b"{", b"nonsense", b"{}{}", b"[]", b"null", b'"about"', b"7", b"\x00", b"\xef\xbb\xbf{}",
            '{"limit":1}'.encode("utf-16"), b'{"limit":NaN}', b'{"limit":1,}', b"{'limit':1}",
        ],
    )  # fmt: skip
    async def test_that_is_no_message(self, body: bytes, ask: Ask) -> None:
        refused(await ask("promote", body))

    @pytest.mark.parametrize(
        ("verb", "message"),
        [
            ("promote", {"limit": "1"}),
            ("promote", {"limit": 1.5}),
            ("promote", {"limit": True}),
            ("promote", {"limit": None}),
            ("promote", {}),
            ("promote", {"limit": 1, "more": 1}),
            ("about", {"more": 1}),
            ("find", {"where": {"state": "dead"}, "page": {}}),
            ("find", {"where": {"states": ["lost"]}, "page": {}}),
            ("find", {"where": {"states": "dead"}, "page": {}}),
            ("find", {"where": [], "page": {}}),
            ("count", {"where": {}, "by": ["payload"]}),
            ("apply", {"action": {"kind": "explode"}, "where": {}, "limit": 1}),
            ("apply", {"action": {"by": {"who": "x"}}, "where": {}, "limit": 1}),
            ("settle", {"batch": [{"lease": 1}]}),
            ("enqueue", {"batch": [{}]}),
            ("enqueue", {"batch": {}}),
            ("put", {"kind": "queue", "record": 7}),
            ("put", {"kind": "queue", "record": {}}),
            ("put", {"kind": "queue", "record": {"name": "q", "colour": "red"}}),
            ("put", {"kind": "limit", "record": {"name": None}}),
        ],
    )
    async def test_of_wrong_types(self, verb: str, message: Any, ask: Ask) -> None:
        refused(await ask(verb, message))

    @pytest.mark.parametrize("kind", ["", "nothing", "Queue", "key\0", "__class__"])
    async def test_about_a_kind_of_record_that_there_is_not(self, kind: str, ask: Ask) -> None:
        for verb, more in (("put", {"record": {}}), ("records", {"page": {}}), ("remove", {"name": "x"})):
            refused(await ask(verb, {"kind": kind, **more}))


class TestText:
    @pytest.mark.parametrize("depth", [65, 500, 2_000, DEEP])
    @pytest.mark.parametrize(("opened", "closed"), [(b"[", b"]"), (b'{"a":', b"}")])
    async def test_nested_deeply(
        self, depth: int, opened: bytes, closed: bytes, ask: Ask, store: Store
    ) -> None:
        response = await ask("enqueue", batch(opened * depth + b"1" + closed * depth))
        refused(response)
        assert await nothing_kept(store)

    @pytest.mark.parametrize("verb", ["about", "enqueue", "put", "find", "settle"])
    async def test_nested_deeply_where_it_has_no_business(self, verb: str, ask: Ask) -> None:
        for body in (
            b"[" * DEEP,
            b'{"a":' * DEEP,
            b'{"batch":' + b"[" * DEEP,
            b'{"kind":"queue","record":' + b"[" * DEEP,
        ):
            refused(await ask(verb, body))

    async def test_numbers_beyond_measure(self, ask: Ask, store: Store) -> None:
        for number in (b"1" * 400, b"1" * 100_000, b"1e999", b"-1e999", b"9223372036854775808"):
            response = await ask("enqueue", batch(b'{"n":' + number + b"}"))
            if response.status_code != 200:  # What a double can hold, however roughly, may stay as it is.
                refused(response)
            response = await ask("promote", b'{"limit":' + number + b"}")
            refused(response)
        assert (await ask("find", {"where": {}, "page": {}})).status_code == 200

    @pytest.mark.parametrize(
        "text", [rb"\ud800", rb"\udc00\ud800", rb"\ud800x", b"\xff", b"\xc0\x80", b"\xed\xa0\x80"]
    )
    async def test_that_is_no_text(self, text: bytes, ask: Ask, store: Store) -> None:
        refused(await ask("enqueue", batch(name=text)))
        response = await ask("enqueue", batch(b'{"a":"' + text + b'"}'))
        refused(response)
        response = await ask("enqueue", batch(b'{"' + text + b'":1}'))
        refused(response)
        assert await nothing_kept(store)

    async def test_nul_characters(self, ask: Ask, store: Store) -> None:
        nul = "a\0b"
        for name in (
            "id",
            "type",
            "queue",
            "tenant",
            "root",
            "idempotency_key",
            "fingerprint",
            "trace",
        ):
            refused(await ask("enqueue", {"batch": [task(**{name: nul})]}))
        refused(await ask("enqueue", {"batch": [task(payload={"a": nul})]}))
        refused(await ask("claim", claim(session=nul)))
        refused(await ask("claim", claim(queues=[nul])))
        refused(await ask("wakes", {"queues": [nul]}))
        refused(await ask("lead", {"holder": nul, "lease_for": 1}))
        refused(await ask("find", {"where": {"error": nul}, "page": {}}))
        refused(await ask("find", {"where": {}, "page": {"cursor": nul}}))
        refused(await ask("attempts", {"task_id": nul}))
        refused(await ask("ended", {"ids": [nul]}))
        refused(await ask("put", {"kind": "queue", "record": {"name": nul}}))
        refused(await ask("remove", {"kind": "queue", "name": nul}))
        assert await nothing_kept(store)

    async def test_nul_characters_in_the_address(self, http: httpx2.AsyncClient, open_url: str) -> None:
        problem(await http.post(f"{open_url}/store/a%00b", json={}), 404, "not-found")


def claim(**changed: Any) -> dict[str, Any]:
    return {"claim": {"session": "s", "queues": ["q"], "limit": 1, "number": 1, **changed}}


class TestValues:
    @pytest.mark.parametrize(
        "changed",
        [
            {"id": "x"}, {"id": ""}, {"id": "A" * 36}, {"root": "x"},
            {"type": ""}, {"type": "x" * 513}, {"queue": ""},
            {"tenant": "x" * 513}, {"priority": 101}, {"priority": -(1 << 62)},
            {"max_attempts": 0}, {"max_attempts": 1 << 40}, {"delay": 1e300}, {"timeout": 1e12},
            {"run_at": "2026-01-01T00:00:00"}, {"run_at": "0001-01-01T00:00:00+14:00"},
            {"run_at": "2026-01-01T00:00:00Z", "delay": 1}, {"idempotency_for": 1e300},
        ],
    )  # fmt: skip
    async def test_a_task_that_no_client_makes(self, changed: dict[str, Any], ask: Ask, store: Store) -> None:
        refused(await ask("enqueue", {"batch": [task(), task(**changed)]}))
        assert await nothing_kept(store)

    @pytest.mark.parametrize("limit", [-1, -(1 << 62), 1 << 40, 1 << 70])
    async def test_absurd_limits(self, limit: int, ask: Ask) -> None:
        action = {"kind": "cancel", "by": {"who": "x"}}
        for verb, message in {
            "claim": claim(limit=limit),
            "settle": claim(limit=limit),
            "promote": {"limit": limit},
            "rescue": {"session": "s", "limit": limit},
            "prune": {"default": {}, "limit": limit},
            "apply": {"action": action, "where": {}, "limit": limit},
            "find": {"where": {}, "page": {"limit": limit}},
            "records": {"kind": "queue", "page": {"limit": limit}},
        }.items():
            refused(await ask(verb, message))

    async def test_a_page_has_a_bound(self, ask: Ask) -> None:
        assert (await ask("find", {"where": {}, "page": {"limit": 1000}})).status_code == 200
        for limit in (0, 1001):
            refused(await ask("find", {"where": {}, "page": {"limit": limit}}))

    async def test_durations_beyond_measure(self, ask: Ask) -> None:
        beat = {"session": "s", "worker": {"name": "w"}, "opening": True}
        for seconds in (1e300, -1e300, 1e12):
            refused(await ask("lead", {"holder": "h", "lease_for": seconds}))
            refused(await ask("heartbeat", {"beat": {**beat, "lease_for": seconds}}))
        ever = {"completed": 1e300, "cancelled": 1e300, "dead": 1e300}
        assert (await ask("prune", {"default": ever, "limit": 1})).status_code == 200
        refused(await ask("prune", {"default": {"dead": -1}, "limit": 1}))

    @pytest.mark.parametrize(
        "where",
        [
            {"ids": ["x"] * 50_000}, {"ids": []}, {"states": []}, {"queues": ["", "%", "_", "'", '"', "\\"]},
            {"types": ["x" * 100_000]}, {"tenants": [str(n) for n in range(50_000)]}, {"root": "x"},
            {"error": "%" * 60_000}, {"error": "%_" * 100}, {"error": ""}, {"error": "x" * 1_000_000},
            {"idempotency_key": "x" * 100_000}, {"created_after": "9999-12-31T23:59:59Z"},
            {"created_before": "0001-01-01T00:00:00Z", "finished_after": "0001-01-01T00:00:00Z"},
        ],
    )  # fmt: skip
    async def test_pathological_filters(self, where: dict[str, Any], ask: Ask) -> None:
        await ask("enqueue", {"batch": [task()]})
        for verb, more in (
            ("find", {"page": {}}),
            ("count", {"by": ["state", "queue", "type", "tenant"]}),
            ("apply", {"action": {"kind": "cancel", "by": {"who": "x"}}, "limit": 10}),
        ):
            response = await ask(verb, {"where": where, **more})
            if response.status_code != 200:
                refused(response)

    async def test_a_moment_without_a_zone(self, ask: Ask) -> None:
        where = {"created_after": "2026-01-01T00:00:00"}
        refused(await ask("find", {"where": where, "page": {}}))

    @pytest.mark.parametrize("cursor", ["", "x", "'; --", "ff" * 5000, "\U0001f600"])
    async def test_strange_cursors(self, cursor: str, ask: Ask) -> None:
        for verb, message in (
            ("find", {"where": {}}),
            ("records", {"kind": "queue"}),
            ("records", {"kind": "session"}),
        ):
            response = await ask(verb, {**message, "page": {"cursor": cursor}})
            if response.status_code != 200:
                refused(response)


class TestTogether:
    @pytest.mark.more
    async def test_many_alike_make_one_task(self, ask: Ask, store: Store) -> None:
        message = {"batch": [task()]}
        answers = await asyncio.gather(*(ask("enqueue", message) for _ in range(1000 if FULL else 200)))
        assert {answer.status_code for answer in answers} == {200}
        assert sum(answer.json()[0]["created"] for answer in answers) == 1
        assert len((await store.find(Filter(), Page())).items) == 1
