"""Fuzz the server with schemathesis: it must keep to its OpenAPI document.

No 5xx, no undocumented status or media type, every response fits its schema, bodies that break the schema are
refused, and nothing is returned without a key.
"""

import asyncio
import os
import secrets
import sys
from pathlib import Path

import msgspec
import pytest

from tests.examples import FULL
from tests.http.fuzz import fuzzed
from tests.servers.api import ApiServer
from tests.system.fleet import Fleet
from tests.system.serving import Server
from windlass._client.keys import Keys
from windlass._documents.tasks import TaskDocument, attempt_document, task_document
from windlass._model.filter import Filter, Page
from windlass._model.key import Scope
from windlass._model.queue import QueueSettings
from windlass._model.record import KINDS, Audit, Session
from windlass._policy.input.payload import encode, encode_payload, parse, parse_payload
from windlass._store.protocol import Store, all_records
from windlass._stores.memory import MemoryStore
from windlass._stores.sqlite import SQLiteStore


@pytest.mark.more
@pytest.mark.timeout(180)
def test_it_keeps_to_its_document(api: ApiServer) -> None:
    store = MemoryStore()
    key = asyncio.run(opened(store))
    verdict = fuzzed(api.serve(store), key, seed=1, examples=20 if FULL else 3, at_bounds=False)
    assert not verdict.failures, str(verdict)
    assert verdict.requests > (800 if FULL else 250)
    assert asyncio.run(looked_through(store)) > 3


@pytest.mark.chaos
@pytest.mark.parametrize("keyed", [True, False], ids=["with keys", "without keys"])
def test_it_keeps_to_its_document_for_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, keyed: bool
) -> None:
    """Against `windlass serve`, keeper and all, on a file: 50,000 requests, half of them without keys."""
    seed = int(os.environ.get("WINDLASS_SEED") or secrets.randbelow(10**9))
    wanted = int(os.environ.get("WINDLASS_CHAOS_REQUESTS", "25000"))
    examples = max(3, 60 * wanted // 25_000)
    key = asyncio.run(made(tmp_path / "windlass.db")) if keyed else None
    server = Server(Fleet(tmp_path), keeper=True)
    server.start()
    try:
        verdict = fuzzed(server.url, key, seed=seed, examples=examples, at_bounds=True)
        while verdict.requests < wanted:
            verdict += fuzzed(server.url, key, seed=(seed := seed + 1), examples=examples, at_bounds=False)
    finally:
        server.close()
    kept = asyncio.run(looked_through(SQLiteStore(tmp_path / "windlass.db")))
    with capsys.disabled():
        sys.stdout.write(f"\n{verdict}\n{kept:,} tasks are kept, and all is sound\n")
    assert not verdict.failures


async def opened(store: Store) -> str:
    """A key to everything in a store that is ready."""
    await store.open()
    key = await Keys(store).create("everything", scopes=[Scope.ADMIN])
    return key.text


async def made(file: Path) -> str:
    """A key to everything in a file that was not there."""
    store = SQLiteStore(file)
    try:
        return await opened(store)
    finally:
        await store.close()


async def looked_through(store: Store) -> int:
    """How many tasks there are. All that is kept must be what the front door would let in."""
    await store.open()
    count, page = 0, Page(limit=500)
    while True:
        found = await store.find(Filter(), page)
        for task in found.items:
            count += 1
            assert parse_payload(task.payload) == encode_payload(msgspec.json.decode(task.payload))
            if task.result is not None:
                assert parse(task.result, "result") == encode(msgspec.json.decode(task.result), "result")
            shown = msgspec.json.encode(task_document(task))
            assert msgspec.json.decode(shown, type=TaskDocument).id == task.id
            for attempt in await store.attempts(task.id):
                msgspec.json.encode(attempt_document(attempt))
        if found.cursor is None:
            break
        page = Page(limit=500, cursor=found.cursor)
    for kind in (*KINDS, QueueSettings, Session, Audit):
        for record in await all_records(store, kind):  # type: ignore[type-var]
            msgspec.json.encode(record, enc_hook=repr)
    await store.close()
    return count
