"""What every refusal looks like."""

from typing import Any

import httpx2

from windlass._http.web.problems import SAFE_HEADERS


def assert_safe(response: httpx2.Response) -> None:
    assert {name: response.headers.get(name) for name in SAFE_HEADERS} == SAFE_HEADERS
    assert "server" not in response.headers


def problem(response: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """The problem that a response is, looked at from all sides."""
    assert response.status_code == status, response.text[:500]
    assert response.headers["content-type"] == "application/problem+json"
    assert_safe(response)
    found: dict[str, Any] = response.json()
    assert found["code"] == code, found
    assert found["status"] == status
    assert found["type"] == f"urn:windlass:problem:{code}"
    assert found["title"] != "something went wrong"
    assert found["detail"]
    assert "Traceback" not in response.text
    return found
