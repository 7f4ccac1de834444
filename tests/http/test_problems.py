"""Every error is a problem document (RFC 9457) with a stable code and safe headers."""

import logging
from typing import Any, cast

import httpx2
import pytest

from tests.http.conftest import Ask
from tests.http.problem import assert_safe, problem
from tests.servers.api import ApiServer
from windlass import App, errors
from windlass._http.server.connections import ConnectionLimits
from windlass._http.server.protocol import GuardedProtocol
from windlass._http.server.run import Server
from windlass._http.web.problems import problem_from, problem_response
from windlass._stores.memory import MemoryStore
from windlass.testing.faults import Fault, FaultyStore, scripted

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.WindlassError)
]


@pytest.mark.parametrize("path", ["/", "/store", "/store/", "/store/about/more", "/nothing", "/%2e%2e/etc"])
async def test_there_is_nothing_there(path: str, http: httpx2.AsyncClient, url: str) -> None:
    problem(await http.get(f"{url}{path}"), 404, "not-found")


async def test_there_is_no_such_verb(ask: Ask) -> None:
    for verb in ("migrate", "transaction", "__class__", "About", "x" * 5000):
        found = problem(await ask(verb), 404, "not-found")
        assert verb not in found["detail"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"])
async def test_the_method_is_wrong(method: str, http: httpx2.AsyncClient, url: str) -> None:
    response = await http.request(method, f"{url}/store/claim")
    assert_safe(response)
    assert response.headers["allow"] == "POST"
    if method == "HEAD":
        assert (response.status_code, response.content) == (405, b"")
    else:
        problem(response, 405, "method-not-allowed")


async def test_other_sites_get_no_leave(http: httpx2.AsyncClient, url: str) -> None:
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    response = await http.options(f"{url}/store/enqueue", headers=asked)
    assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_has_a_status_and_keeps_its_code(kind: Any) -> None:
    takes_standing = issubclass(kind, errors.DuplicateTask | errors.DuplicateKey | errors.IdempotencyConflict)
    error = kind("what happened", standing="t") if takes_standing else kind("what happened")
    found = problem_from(error)
    assert found.code == kind.code
    assert found.status >= 400
    if issubclass(kind, errors.UsageError) and kind is not errors.NotSupported:
        assert found.status == 422
    assert b"what happened" in problem_response(found).body


async def test_a_store_that_is_away(api: ApiServer, http: httpx2.AsyncClient) -> None:
    url = api.serve(FaultyStore(MemoryStore(), scripted(promote=[Fault.BEFORE])), open_to_all=True)
    response = await http.post(f"{url}/store/promote", json={"limit": 1})
    problem(response, 503, "store-unavailable")
    assert response.headers["retry-after"] == "1"
    assert (await http.post(f"{url}/store/promote", json={"limit": 1})).status_code == 200


async def test_a_mistake_of_ours_is_logged_and_not_told(
    api: ApiServer, http: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    def plan(verb: str) -> None:
        if verb in ("promote", "records"):
            raise ZeroDivisionError("the secret of the house")

    url = api.serve(FaultyStore(MemoryStore(), plan), open_to_all=True)
    with caplog.at_level(logging.ERROR, "windlass.http"):
        for response in (
            await http.post(f"{url}/store/promote", json={"limit": 1}),
            await http.get(f"{url}/readyz"),
        ):
            problem(response, 500, "internal")
            assert "secret" not in response.text
            assert "ZeroDivision" not in response.text
    assert "ZeroDivisionError" in caplog.text


async def test_too_many_connections(
    api: ApiServer, ask: Ask, http: httpx2.AsyncClient, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.connections, "limits", ConnectionLimits(total=0))
    response = await http.get(f"{url}/healthz")
    problem(response, 503, "busy")
    assert response.headers["connection"] == "close"
    monkeypatch.undo()
    assert (await ask("about")).status_code == 200


def test_what_is_run_is_guarded() -> None:
    config = Server(App(MemoryStore()), open_to_all=True)._server.config
    assert cast("Any", config.http).func is GuardedProtocol
    assert (config.ws, config.server_header, config.proxy_headers) == ("none", False, False)
