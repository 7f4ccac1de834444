"""Isolation of tenants and queues: to a bound key a store with other people's tasks is as one without them.

The same requests go to two servers. In the store of one, others have tasks, records, keys and sessions; in
that of the other, only the key's own tenant has. Every answer must be the same. The requests name what the
others have at every place of every operation that can hold text, as the OpenAPI document describes them.
"""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterator
from difflib import unified_diff
from functools import partial
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from tests.examples import FULL, sample
from tests.http.fuzz import fuzzed
from tests.http.test_auth_matrix import ASKED
from tests.security.web.api_schema import Place, operations, places, with_value
from tests.security.web.two_tenants import CANARY, OURS, QUEUE, SHARED, TENANT, THEIRS, UNCACHED, Bounds, Side
from tests.servers.api import ApiServer
from windlass._client.keys import Keys
from windlass._dashboard.screens import ALL
from windlass._http.app import OPERATIONS
from windlass._model.key import Scope
from windlass._store.messages import REQUESTS

ADDRESSES = {"id": "ready", "cursor": "ready", "root": "ready"}
bounded = pytest.mark.parametrize(
    ("bounds", "stored"),
    sample([(TENANT, "memory")], [(QUEUE, "memory"), (SHARED, "memory"), (SHARED, "sqlite")]),
    ids=lambda one: getattr(one, "name", one),
)


class Pair:
    """A server with the others, and one without."""

    def __init__(self, full: Side, alone: Side, document: Any) -> None:
        self.full, self.alone = full, alone
        self.operations = operations(document)
        self.places = [*places(document)]
        self.document = document
        self.probes = 0

    async def differ(self, method: str, path: str, key: str = "bound", **sent: Any) -> str:
        """Send the same to both; how the answers differ, if they do. `<own>` is what each side has."""
        self.probes += 1
        answers = []
        for side in (self.full, self.alone):
            own = path
            for name, value in side.own.items():
                own = own.replace(f"<{name}>", value)
            answers.append(side.plain(response := await side.ask(method, own, key, **sent)))
            if key == "bound" and side is self.full:
                assert CANARY not in response.text, (own, sent, response.text)
        seen, without = answers
        if seen == without:
            return ""
        lines = unified_diff(*([str((one[0], one[2])), *one[1].splitlines()] for one in (without, seen)), n=0)
        return "\n".join([f"{method} {path} {sent}", *(line[:2_000] for line in lines)])

    async def renew(self) -> None:
        for side in (self.full, self.alone):
            await side.renew()

    def request(
        self, operation: str, place: Place | None = None, value: str = ""
    ) -> tuple[str, str, dict[str, Any]]:
        """A request of an operation, with a value at a place."""
        method, path, described = self.operations[operation]
        asking = ASKED[operation]
        given = {"queue": "mail", "tenant": "acme", "key": "0" * 12, "id": "<ready>", "name": "n"}
        query, headers, body = asking.query, {}, asking.body
        if "dead" in path:
            given["id"] = "<dead>"
        match place:
            case Place(part="path"):
                given[str(place.path[0])] = quote(value, safe="")
            case Place(part="query"):
                query += f"{'&' if query else '?'}{place.path[0]}={quote(value, safe='')}"
            case Place(part="header"):
                headers[str(place.path[0])] = quote(value)
            case Place(part="body"):
                body = self._body(described, body, place, value)
        for name, one in given.items():
            path = path.replace(f"{{{name}}}", one)
        sent: dict[str, Any] = {"headers": headers}
        if isinstance(body, bytes):
            sent |= {"content": body, "headers": {**headers, "content-type": asking.kind}}
        elif body is not None:
            sent["json"] = body
        return method, f"{path}{query}", sent

    def _body(self, described: Any, body: Any, place: Place, value: str) -> Any:
        """The base body with the value; a line of JSON is one of a stream."""
        ((_, content),) = described["requestBody"]["content"].items()
        is_stream = isinstance(body, bytes)
        base = {"type": "t", "queue": "mail"} if is_stream else body or {}
        made = with_value(self.document, content["schema"], base, place.path, value)
        return httpx2.Request("POST", "http://x", json=made).content + b"\n" if is_stream else made


@pytest.fixture
async def pair(
    api: ApiServer,
    http: httpx2.AsyncClient,
    bounds: Bounds,
    stored: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Pair]:
    for module, values in UNCACHED.items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
    files = (tmp_path / "full.db", tmp_path / "alone.db") if stored == "sqlite" else (None, None)
    full, alone = (Side(api, http, bounds, file) for file in files)
    await full.fill(with_others=True)
    await alone.fill(with_others=False)
    document = (await http.get(f"{full.url}/openapi.json")).json()
    before = await full.their_state()
    yield Pair(full, alone, document)
    assert await full.their_state() == before
    for side in (full, alone):
        await side.store.close()


def values(pair: Pair, place: Place) -> list[str]:
    """What others have that could be named at a place."""
    theirs, at = pair.full.theirs, pair.full.bounds.others
    ids = [theirs["ready"], theirs["dead"], theirs["late"]]
    if place.is_id:
        return ids
    texts = [theirs["failure"], theirs["key"], theirs["session"], theirs["endpoint"], *at.values()]
    texts += ["FOREIGN.t", "FOREIGN-record", "FOREIGN-worker", "FOREIGN broke", "FOREIGN payload"]
    if (
        pair.full.bounds is not QUEUE
    ):  # docs/security.md says that its own enqueue tells of a key that it guesses
        texts.append("FOREIGN-once")
    return [*texts, *ids] if place.path[-1] in ("cursor", "after") else texts


def requests(pair: Pair) -> Iterator[tuple[str, tuple[str, str, dict[str, Any]]]]:
    """Requests by operation: one as it is, then one with each value at each place, by default with one."""
    turn = cycle(range(20))
    for operation in pair.operations:
        yield operation, pair.request(operation)
        for place in pair.places:
            if place.operation == operation:
                found = values(pair, place)
                for value in found if FULL else (found * 20)[next(turn) :][:1]:
                    yield operation, pair.request(operation, place, value)


def test_the_document_has_every_operation() -> None:
    assert {one.name for one in OPERATIONS} == set(ASKED)


@bounded
@pytest.mark.more
@pytest.mark.timeout(300)
async def test_every_place_of_every_operation(pair: Pair) -> None:
    told, before = [], ""
    for operation, (method, path, sent) in requests(pair):
        if operation != before:
            await pair.renew()
            before = operation
        told.append(await pair.differ(method, path, **sent))

    assert {one.operation for one in pair.places} <= set(pair.operations) == set(ASKED)
    assert not any(told), next(filter(None, told))
    assert pair.probes >= (2_000 if FULL else 300)


@bounded
@pytest.mark.more
@pytest.mark.timeout(300)
async def test_several_places_at_once(pair: Pair) -> None:
    """Names of others in combination, at random: what one filter hides, another must not tell."""
    random, told = Random(1), []
    by_operation = {name: [one for one in pair.places if one.operation == name] for name in pair.operations}
    several = [
        name
        for name, found in by_operation.items()
        if sum(one.part in ("query", "body") for one in found) > 1
    ]
    for _ in range(1_500 if FULL else 100):
        operation = random.choice(several)
        chosen = random.sample([one for one in by_operation[operation] if one.part in ("query", "body")], 2)
        method, path, sent = pair.request(operation)
        for place in chosen:
            _, changed, body = pair.request(operation, place, random.choice(values(pair, place)))
            if place.part == "query":
                path += f"{'&' if '?' in path else '?'}{changed.rpartition('?')[2]}"
            else:
                sent = body
        told.append(await pair.differ(method, path, **sent))

    assert not any(told), next(filter(None, told))


@pytest.mark.parametrize(
    ("bounds", "stored"), [(TENANT, "memory"), (QUEUE, "sqlite")], ids=lambda one: getattr(one, "name", one)
)
@pytest.mark.full
@pytest.mark.timeout(300)
async def test_schemathesis_finds_nothing_of_others(pair: Pair) -> None:
    """Requests that are made up from the document, and along its links, with the bound key."""
    side = pair.full
    reader = (await Keys(side.store).create("reader", scopes=[Scope.READ])).text
    asking = partial(fuzzed, at_bounds=False, hidden=[CANARY, "FOREIGN", *side.theirs.values()])
    verdict = await asyncio.to_thread(asking, side.url, side.keys["bound"], seed=1, examples=8)

    assert not verdict.failures, str(verdict)
    assert verdict.requests > 500, str(verdict)
    assert verdict.statuses[200] > verdict.requests // 10, str(verdict)
    found = await asyncio.to_thread(asking, side.url, reader, seed=1, examples=2)
    assert any("it tells" in what for what in found.failures), str(found)
    sys.stdout.write(f"\n{pair.full.bounds.name}: {verdict}\n")


@bounded
async def test_equal_tasks_of_others(pair: Pair) -> None:
    """Tasks that equal those of others, by their key or by all that they are, or that wait for them."""
    theirs, told = pair.full.theirs, []
    base = {**THEIRS, "queue": "mail", "tenant": "acme"}
    bodies: list[dict[str, Any]] = [
        {**base, "unique": True},
        {**base, "unique": ["x"], "unique_for": 1_000},
        {**base, "after": [theirs["ready"]]},
        {**base, "after": [theirs["dead"]], "result_into": "x"},
        {**base, "after": [theirs["late"], "<ready>"]},
        {**base, "type": "t", "next": [{**base, "unique": True}]},
    ]
    if pair.full.bounds is not QUEUE:
        bodies += [
            {**base, "idempotency_key": "FOREIGN-once"},
            {**base, "unique": True, "idempotency_key": "FOREIGN-once"},
        ]
    told.append(await pair.differ("GET", "/chains?limit=100"))
    bodies += [{**OURS, "payload": {"x": "ours"}, "idempotency_key": "ours-once"}]
    for body in bodies:
        for _ in range(2):
            told.append(await pair.differ("POST", "/tasks", json=body))
            told.append(
                await pair.differ("POST", "/tasks/batch", json={"tasks": [body, {**base, "type": "t"}]})
            )
    assert not any(told), next(filter(None, told))


@bounded
async def test_every_verb_of_the_store(pair: Pair) -> None:
    """Bound keys have no part in the protocol of stores, whatever they name."""
    names = [*pair.full.theirs.values(), "FOREIGN-record"]
    bodies: list[dict[str, Any]] = [
        {},
        {"ids": names},
        {"where": {"ids": names}, "page": {}},
        {"kind": "key", "page": {}},
    ]
    for verb in (*REQUESTS, "wakes", "unknown"):
        for body in bodies:
            assert await pair.differ("POST", f"/store/{verb}", json=body) == ""
            answer = await pair.full.ask("POST", f"/store/{verb}", json=body)
            assert answer.status_code == (404 if verb == "unknown" else 403), (verb, answer.text)
    assert pair.probes >= 50


@pytest.mark.parametrize(("bounds", "stored"), [(TENANT, "memory")])
async def test_without_bounds_the_others_show(pair: Pair) -> None:
    """The comparison finds what there is to find: with a key that is not bound."""
    shown = set()
    for operation in pair.operations:
        method, path, sent = pair.request(operation)
        if method == "GET" and await pair.differ(method, path, "whole", **sent):
            shown.add(operation)
    assert shown >= {"list_tasks", "count_tasks", "list_dead", "list_failures", "list_queues", "export_tasks"}
    assert shown >= {
        "get_overview",
        "list_keys",
        "list_schedules",
        "list_limits",
        "list_alerts",
        "list_workers",
    }
    for place in pair.places:
        if place.part == "path" and place.is_id:
            method, path, sent = pair.request(place.operation, place, pair.full.theirs["ready"])
            if method == "GET":
                assert await pair.differ(method, path, "whole", **sent), place


SCREENS = [screen.path for some in ALL for screen in some.screens]
SEARCHES = (
    "type",
    "queue",
    "tenant",
    "error",
    "q",
    "name",
    "period",
    "cursor",
    "id",
    "root",
    "state",
    "attempt",
)


@bounded
@pytest.mark.more
@pytest.mark.timeout(300)
async def test_every_page_of_the_dashboard(pair: Pair) -> None:
    """Pages, their searches and their live parts, with names of others in the path and in the query."""
    theirs, at, told = pair.full.theirs, pair.full.bounds.others, []
    names = {
        "id": theirs["ready"],
        "root": theirs["dead"],
        "failure": theirs["failure"],
        "key": theirs["key"],
    }
    names |= {"queue": at["queue"], "tenant": at["tenant"], "worker": "FOREIGN-worker", "type": "FOREIGN.t"}
    own = {"id": "<ready>", "root": "<done>", "queue": "mail", "type": "t", "tenant": "acme"}
    found = [
        at["tenant"],
        at["queue"],
        "FOREIGN.t",
        "FOREIGN broke",
        "FOREIGN-once",
        theirs["ready"],
        theirs["failure"],
    ]
    searched = [(name, value) for name in SEARCHES for value in found if name != "live"]
    for path in SCREENS:
        for given in (names, {**names, **own}):
            page = path
            for name, value in {
                **dict.fromkeys(re.findall(r"{(\w+)}", path), "FOREIGN-record"),
                **given,
            }.items():
                page = page.replace(f"{{{name}}}", value)
            told += [
                await pair.differ("GET", f"/dashboard{page}"),
                await pair.differ("GET", f"/dashboard{page}?live=1"),
            ]
        for name, value in searched if FULL else searched[len(told) % 61 :: 61]:
            told.append(await pair.differ("GET", f"/dashboard{page}?{name}={quote(value)}"))
    assert not any(told), next(filter(None, told))
    assert pair.probes >= (2_000 if FULL else 150)
