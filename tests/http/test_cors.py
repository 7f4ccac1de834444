"""CORS: no origin may call the API unless it is listed."""

import httpx2
import pytest

from tests.http.api_client import Api
from tests.http.problem import assert_safe
from tests.servers.api import ApiServer
from windlass import App, InvalidOption
from windlass._stores.memory import MemoryStore
from windlass.http import api as http_api

PAGE = "https://example.com"
OTHERS = (
    "https://evil.example",
    "http://example.com",
    "https://example.com:8443",
    "https://example.com.evil.example",
    "https://sub.example.com",
    "null",
    "*",
)


@pytest.fixture
def named(api: ApiServer, store: MemoryStore, http: httpx2.AsyncClient) -> Api:
    return Api(http, api.serve(store, origins=[PAGE, "http://localhost:3000"]))


def asking(origin: str, method: str = "POST", headers: str = "authorization") -> dict[str, str]:
    return {
        "origin": origin,
        "access-control-request-method": method,
        "access-control-request-headers": headers,
    }


def allowed(response: httpx2.Response) -> dict[str, str]:
    return {name: one for name, one in response.headers.items() if name.startswith("access-control-")}


async def test_by_default_nothing_is_said(http: httpx2.AsyncClient, open_url: str) -> None:
    response = await http.options(f"{open_url}/tasks", headers=asking(PAGE))
    assert response.status_code == 405
    assert_safe(response)
    assert allowed(response) == {}
    assert allowed(await http.get(f"{open_url}/tasks", headers={"origin": PAGE})) == {}


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_a_named_page_may_ask(method: str, named: Api) -> None:
    headers = asking(PAGE, method, "authorization,content-type,idempotency-key")
    response = await named.http.options(f"{named.url}/tasks", headers=headers)
    assert response.status_code == 200
    assert_safe(response)
    told = allowed(response)
    assert told["access-control-allow-origin"] == PAGE
    assert method in told["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in told


async def test_a_named_page_may_read_the_answer_also_a_refusal(named: Api) -> None:
    response = await named("GET", "/tasks", origin=PAGE)
    assert response.status_code == 401
    assert allowed(response)["access-control-allow-origin"] == PAGE
    assert "Retry-After" in allowed(response)["access-control-expose-headers"]
    assert "access-control-allow-credentials" not in allowed(response)
    assert "Origin" in response.headers["vary"]


@pytest.mark.parametrize("origin", OTHERS)
async def test_no_other_page(origin: str, named: Api) -> None:
    response = await named.http.options(f"{named.url}/tasks", headers=asking(origin))
    assert response.status_code == 400
    assert_safe(response)
    assert "access-control-allow-origin" not in response.headers
    response = await named("GET", "/tasks", origin=origin)
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize(
    "origin",
    [
        "*",
        "",
        "null",
        "example.com",
        "https://",
        "https://*.example.com",
        "https://example.com/",
        "ftp://x",
        "https://a@b",
        "https://EXAMPLE.com",
        "https://example.com\n",
        "https://x y",
        "https://x:99999999",
    ],
)
def test_what_is_no_origin(origin: str) -> None:
    with pytest.raises(InvalidOption, match="origin"):
        http_api(App("memory://"), origins=[PAGE, origin])


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1", "http://[::1]:8080"])
def test_what_is_one(origin: str) -> None:
    http_api(App("memory://"), origins=[origin])
