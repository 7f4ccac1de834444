"""Encrypted fields over HTTP: with keys at the clients only, and with keys at the server only."""

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from tests.http.api_client import Api, lease
from tests.loops.test_encryption import BOTH, CANARY, RING, program, stored
from tests.loops.workers import drained, tasks
from tests.servers.api import ApiServer
from windlass import App, Filter, Page, Refused, State, chain
from windlass._client.keys import Keys
from windlass._encryption.keys import Keyring
from windlass._model.key import Scope
from windlass._policy.secrets.encrypted import MARKER
from windlass._stores.http import HttpStore
from windlass._stores.memory import MemoryStore

TASK = {"type": "pay", "payload": {"card": CANARY, "amount": 3}}


@pytest.fixture
def server(api: ApiServer, store: MemoryStore) -> Any:
    """Serves the store with these keys or none; the URL."""
    return lambda keyring: api.serve_app(App(store, encryption=keyring), open_to_all=True)


@pytest.fixture
async def remote() -> AsyncIterator[Callable[..., App]]:
    """Makes a program with keys on a store over HTTP."""
    made: list[App] = []

    def make(url: str, keyring: Keyring = RING) -> App:
        made.append(program(HttpStore(url), keyring))
        return made[-1]

    yield make
    for app in made:
        await app.close()


async def test_a_server_without_keys_never_sees_what_its_clients_encrypt(
    server: Any, remote: Any, store: MemoryStore, http: httpx2.AsyncClient
) -> None:
    url = server(None)
    app = remote(url)
    await app.publish()
    step = app.builder.step("pay", b'{"card":"%s"}' % CANARY.encode(), {}, app.types["pay"].defaults)
    handle = await app.client.enqueue(chain(step, step))
    await app.client.send("decline", {"card": CANARY})
    await app.operator.schedules.add("nightly", "pay", "0 3 * * *", {"card": CANARY})
    await drained(app)
    shown = await Api(http, url).good("GET", f"/tasks/{handle.id}?reveal=true")
    await app.operator.schedules.trigger("nightly")
    result = await handle.result(timeout=5)
    rotated = remote(url, BOTH)
    done = await rotated.operator.encryption.rotate()

    assert result["card"] == CANARY
    with pytest.raises(Refused, match="needs the encryption key k2, which is missing here"):
        await handle.result(timeout=5)
    assert shown["payload"] == {"card": "[encrypted]"}
    assert shown["result"]["card"] == "[encrypted]"
    assert (done.rewritten, done.schedules) == (4, 1)
    assert CANARY.encode() not in await stored(store)
    assert [task.state for task in await tasks(rotated)] == [
        *[State.COMPLETED] * 2, State.DEAD, State.READY
    ]  # fmt: skip


async def test_a_server_with_keys_encrypts_for_clients_without(
    server: Any, store: MemoryStore, http: httpx2.AsyncClient
) -> None:
    await program(store).publish()
    url = server(RING)
    web = Api(http, url)
    made = await web.enqueue(**TASK)
    before = await store.find(Filter(), Page())
    session = await web.session()
    (claimed,) = await web.claim(session, 1)
    receipt = await web.settle(
        lease(claimed) | {"outcome": "returned", "result": {"card": CANARY, "note": f"used {CANARY}"}}
    )

    assert MARKER in before.items[0].payload
    assert claimed["payload"] == TASK["payload"]
    assert receipt == ["applied"]
    assert CANARY.encode() not in await stored(store)
    assert (await web.good("GET", f"/tasks/{made}?reveal=true"))["result"]["card"] == CANARY


async def test_keys_at_both_ends_encrypt_once(server: Any, remote: Any, store: MemoryStore) -> None:
    app = remote(server(RING))
    await app.publish()
    handle = await app.client.send("pay", {"card": CANARY}, idempotency_key="a")
    direct = await program(store).client.send("pay", {"card": CANARY}, idempotency_key="a")
    await drained(app)

    assert not direct.created
    assert (await handle.result(timeout=5))["card"] == CANARY
    assert CANARY.encode() not in await stored(store)


async def test_a_server_without_keys_hands_back_what_other_workers_cannot_read(
    server: Any, store: MemoryStore, http: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await program(store).client.send("pay", {"card": CANARY})
    web = Api(http, server(None))
    session = await web.session()

    with caplog.at_level(logging.WARNING, "windlass.http"):
        assert await web.claim(session, 1) == []

    (task,) = await tasks(program(store))
    assert (task.state, task.attempt, task.error.type) == (State.SCHEDULED, 0, "MissingKey")
    assert "lacks the encryption key k1" in caplog.text


async def test_a_server_without_keys_refuses_secrets_of_an_encrypted_type(
    server: Any, store: MemoryStore, http: httpx2.AsyncClient
) -> None:
    await program(store).publish()
    web = Api(http, server(None))

    refused = await web("POST", "/tasks", TASK)
    forged = await web("POST", "/tasks", {"type": "t", "payload": {"a": "~windlass-encrypted:1:k1:AAAA"}})

    assert (refused.status_code, refused.json()["code"]) == (409, "refused")
    assert "no encryption keys" in refused.json()["detail"]
    assert (forged.status_code, forged.json()["code"]) == (422, "invalid-payload")


async def test_the_digest_of_a_request_is_keyed(
    server: Any, api: ApiServer, store: MemoryStore, http: httpx2.AsyncClient
) -> None:
    plain = MemoryStore()
    body = {"tasks": [TASK, {"type": "report", "payload": {}}]}
    web = Api(http, server(RING))
    first = await web.good("POST", "/tasks/batch", body, idempotency_key="k")
    again = await web.good("POST", "/tasks/batch", body, idempotency_key="k")
    await Api(http, api.serve(plain, open_to_all=True)).good(
        "POST", "/tasks/batch", body, idempotency_key="k"
    )

    assert [one["id"] for one in first["tasks"]] == [one["id"] for one in again["tasks"]]
    digests, guessed = ({one.digest for one in kept._tables.keys.values()} for kept in (store, plain))
    assert guessed
    assert not digests & guessed


async def test_a_key_that_the_server_lacks_is_no_error_of_a_page(
    server: Any, store: MemoryStore, http: httpx2.AsyncClient
) -> None:
    await program(store, Keyring([("lost", b"9" * 32)])).client.send("pay", {"card": CANARY})
    await program(store).client.send("pay", {"card": CANARY})

    page = await Api(http, server(RING)).good("GET", "/tasks?reveal=true")

    assert [one["payload"]["card"] for one in page["items"]] in (
        [CANARY, "[encrypted]"],
        ["[encrypted]", CANARY],
    )


async def test_only_an_admin_may_rewrite_tasks(url: str, keys: Keys, http: httpx2.AsyncClient) -> None:
    operator = await keys.create("ann", scopes=(Scope.OPERATE, Scope.WORK, Scope.READ, Scope.REVEAL))
    admin = await keys.create("root", scopes=(Scope.ADMIN,))
    body = {"action": {"kind": "rewrite", "by": {"who": "ann"}, "tasks": []}, "where": {}, "limit": 1}

    refused = await Api(http, url, operator.text)("POST", "/store/apply", body)
    allowed = await Api(http, url, admin.text)("POST", "/store/apply", body)

    assert (refused.status_code, allowed.status_code) == (403, 200)
