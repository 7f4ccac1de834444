"""Names in paths, whatever they contain, on every kind of store."""

import asyncio

import httpx2
import pytest

from tests.http.api_client import Api
from tests.http.problem import problem
from tests.http.test_auth_matrix import ASKED
from windlass._http.app import OPERATIONS
from windlass._http.operation import Operation

STRANGE = ["%00", "a%00b", "%ff", "%F0%9F%98%80", "%2e%2e%2f%2e%2e%2fkeys", "%0d%0aX:%201", "x" * 5_000]
STRANGE += ["a%20b", "'%3bDROP", "%25", "%7f", "%ed%a0%80", "-", "n%0a"]
PARTS = ("{name}", "{queue}", "{key}", "{id}")
NAMED = [one for one in OPERATIONS if any(part in one.path for part in PARTS)]


@pytest.mark.parametrize("operation", NAMED, ids=lambda one: one.name)
async def test_a_strange_name_is_refused_or_not_there(operation: Operation, on_each: Api) -> None:
    asking = ASKED[operation.name]
    for name in STRANGE:
        path = operation.path
        for part in PARTS:
            path = path.replace(part, name)
        response = await on_each(operation.method, f"{path}{asking.query}", asking.body)
        assert response.status_code in (404, 405, 410, 422), (name, response.text)
        problem(response, response.status_code, response.json()["code"])
        assert len(response.content) < 2_000
        assert "x" not in response.headers


@pytest.mark.parametrize("path", ["/events", "/tasks/{id}/events", "/store/wakes"])
async def test_the_head_of_a_stream_has_an_end(path: str, api_of: Api) -> None:
    """Otherwise the next request on that connection would wait for ever."""
    made = await api_of.enqueue()
    url = httpx2.URL(api_of.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    for method, at in (("HEAD", path.format(id=made)), ("GET", "/healthz")):
        writer.write(f"{method} {url.path}{at} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        async with asyncio.timeout(5):
            head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
    writer.close()
