"""Names in paths, whatever they contain, on every kind of store."""

import asyncio
from urllib.parse import quote

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.http.api_client import Api
from tests.http.problem import problem
from tests.http.test_auth_matrix import ASKED
from windlass._http.app import OPERATIONS
from windlass._http.operation import Operation
from windlass._policy.input import options

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


@pytest.mark.parametrize("path", ["/events", "/tasks/{id}/events"])
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


ENDS = ["pause", "resume", "ticks", "trigger", "rotate", "events", "replay", "attempts", "batch"]
PARTS_OF_NAMES = st.sampled_from(
    [*ENDS, "a", "queues", "..", ".", "é", "日本", "x+y", "b@c", "d:e", "f-g", ""]
)
NAMES = (
    st.lists(PARTS_OF_NAMES, min_size=1, max_size=4)
    .map(lambda parts: f"n{'/'.join(parts)}"[:60])
    .filter(lambda name: bool(options.checked_name(name, "name")))
)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
CASES = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class TestEveryName:
    """Whatever a name may be, the thing of that name can be addressed, and no other is."""

    @given(name=NAMES)
    @CASES
    async def test_a_queue(self, name: str, api_of: Api) -> None:
        at = f"/queues/{quote(name, safe='')}"
        assert (await api_of.good("PATCH", f"{at}?create=true", {"stripes": 2}))["queue"] == name
        assert (await api_of.good("POST", f"{at}/pause"))["paused"]
        found = await api_of.good("GET", at)
        assert (found["queue"], found["paused"]) == (name, True)
        assert not (await api_of.good("POST", f"{at}/resume"))["paused"]
        await api_of.good("DELETE", at)

    @given(name=NAMES)
    @CASES
    async def test_a_schedule(self, name: str, api_of: Api) -> None:
        at = f"/schedules/{quote(name, safe='')}"
        assert (await api_of.good("PUT", at, {"type": "t", "rule": "1h"}))["name"] == name
        assert (await api_of.good("POST", f"{at}/pause"))["name"] == name
        assert (await api_of.good("POST", f"{at}/resume"))["name"] == name
        await api_of.good("POST", f"{at}/trigger")
        assert len((await api_of.good("GET", f"{at}/ticks?number=3"))["items"]) == 3
        assert [one["name"] for one in (await api_of.good("GET", "/schedules"))["items"]] == [name]
        await api_of.good("DELETE", at)

    @pytest.mark.parametrize(
        ("path", "body"),
        [("/limits", {"running": 1, "all": True}), ("/alerts", {"count": 1}), ("/quotas", {"tasks": 1})],
    )
    @given(name=NAMES)
    @CASES
    async def test_what_has_only_a_name(
        self, path: str, body: dict[str, int], name: str, api_of: Api
    ) -> None:
        at = f"{path}/{quote(name, safe='')}"
        put = await api_of.good("PUT", at, body)
        assert name in (put.get("name"), put.get("tenant"))
        assert len((await api_of.good("GET", path))["items"]) == 1
        await api_of.good("DELETE", at)
        assert (await api_of.good("GET", path))["items"] == []

    @pytest.mark.parametrize("operation", NAMED, ids=lambda one: one.name)
    @given(name=ANY_TEXT)
    @CASES
    async def test_no_text_is_an_internal_error(self, operation: Operation, name: str, api_of: Api) -> None:
        asking = ASKED[operation.name]
        path = operation.path
        for part in PARTS:
            path = path.replace(part, quote(name, safe=""))
        response = await api_of(operation.method, f"{path}{asking.query}", asking.body)
        assert response.status_code < 500, response.text


async def test_a_slash_that_is_not_encoded_belongs_to_the_name_if_it_can(api_of: Api) -> None:
    await api_of.good("PATCH", "/queues/a/b?create=true", {"stripes": 2})
    await api_of.good("POST", "/queues/a/b/pause")
    await api_of.good("POST", "/queues/a/pause?create=true")
    await api_of.good("PATCH", "/queues/a%2Fpause?create=true", {"stripes": 3})
    await api_of.good("POST", "/queues/a%2Fpause/pause")
    found = {one["queue"]: one["paused"] for one in (await api_of.good("GET", "/queues"))["items"]}
    assert found == {"a": True, "a/b": True, "a/pause": True}
    assert (await api_of.good("GET", "/queues/a/pause"))["queue"] == "a/pause"
    problem(await api_of("POST", "/queues/a%2Fpause"), 405, "method-not-allowed")
    problem(await api_of("POST", "/queues%2Fa/pause"), 404, "not-found")
