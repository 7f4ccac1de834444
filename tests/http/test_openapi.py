"""The OpenAPI document and the HTML page made from it."""

import json
import re
from copy import deepcopy
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx2
import jsonschema_rs
import msgspec
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31

import windlass._http
from tests.http.problem import assert_safe, problem
from tests.servers.api import ApiServer
from windlass import errors
from windlass._client.keys import Keys
from windlass._http.app import OPERATIONS
from windlass._http.docs.examples import BODIES, RESPONSES
from windlass._http.docs.openapi import document
from windlass._http.docs.page import page, sample, style_path
from windlass._http.operation import JSON, Operation
from windlass._http.web.problems import CODES, SAFE_HEADERS
from windlass._model.key import Scope
from windlass._stores.memory import MemoryStore

DOCUMENT = document(OPERATIONS)
NAMES = {one.name for one in OPERATIONS}


async def test_anybody_may_have_the_document(http: httpx2.AsyncClient, url: str) -> None:
    answer = await http.get(f"{url}/openapi.json")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == json.loads(json.dumps(DOCUMENT))
    again = await http.get(f"{url}/openapi.json", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = await http.get(f"{url}/openapi.json", headers={"if-none-match": '"another"'})
    assert other.status_code == 200


async def test_it_says_where_it_is_mounted(
    http: httpx2.AsyncClient, api: ApiServer, store: MemoryStore
) -> None:
    url = api.serve(store, at="/queue", open_to_all=True)
    assert (await http.get(f"{url}/openapi.json")).json()["servers"] == [{"url": "/queue"}]
    (style,) = [link for link in Seen((await http.get(f"{url}/docs")).text).links if link.endswith(".css")]
    assert (await http.get(urljoin(f"{url}/docs", style))).status_code == 200


def test_the_document_is_openapi() -> None:
    jsonschema_rs.validator_for(OPENAPI_31).validate(DOCUMENT)


def test_every_operation_is_in_it_once() -> None:
    told = [(at, method.upper()) for at, methods in DOCUMENT["paths"].items() for method in methods]
    assert sorted(told) == sorted((one.path, one.method) for one in OPERATIONS)
    assert len(NAMES) == len(OPERATIONS)
    assert not [at for at, _ in told if at.startswith("/store")]
    assert "/store/" in DOCUMENT["info"]["description"]


def test_every_operation_says_what_it_does() -> None:
    assert not [one.name for one in OPERATIONS if not one.description[0].endswith(".")]


def test_every_reference_leads_somewhere() -> None:
    text = json.dumps(DOCUMENT)
    for kind, name in re.findall(r'"#/components/(\w+)/([^"]+)"', text):
        assert name in DOCUMENT["components"][kind]
    linked = re.findall(r'"operationId": "(\w+)", "parameters"', text)
    assert linked
    assert set(linked) <= NAMES


def test_who_must_have_which_key() -> None:
    for one in OPERATIONS:
        security = DOCUMENT["paths"][one.path][one.method.lower()]["security"]
        assert security == ([] if one.scope is None else [{"key": [one.scope.value]}])


def test_a_name_that_two_types_share_stays_two() -> None:
    titles = [one["title"] for one in DOCUMENT["components"]["schemas"].values()]
    assert len(titles) == len(DOCUMENT["components"]["schemas"])


@pytest.mark.parametrize("one", [one for one in OPERATIONS if one.body is not None], ids=lambda one: one.name)
async def test_its_example_is_taken(one: Operation, http: httpx2.AsyncClient, url: str, keys: Keys) -> None:
    """Perhaps there is no such task or session; but it is never the request that is wrong."""
    key = await keys.create("examples", scopes=[Scope.ADMIN])
    content = DOCUMENT["paths"][one.path][one.method.lower()]["requestBody"]["content"][one.body_type]
    body = content.get("example") or sample(content["schema"], DOCUMENT["components"]["schemas"])
    sent = {"authorization": f"Bearer {key.text}", "content-type": one.body_type}
    at = re.sub(r"{\w+}", "0199c3a2-7d10-7abc-8def-0123456789ab", one.path)
    answer = await http.request(one.method, url + at, headers=sent, content=msgspec.json.encode(body))
    assert answer.status_code in {one.status, *one.statuses}, answer.text
    assert answer.status_code not in {400, 415, 422}
    assert one.body_type == JSON or "problem" not in answer.text or '"problem":null' in answer.text


@pytest.mark.parametrize("name", sorted(RESPONSES.keys() | BODIES.keys()))
def test_its_example_is_of_its_type(name: str) -> None:
    one = next(one for one in OPERATIONS if one.name == name)
    if name in BODIES:
        msgspec.json.decode(msgspec.json.encode(BODIES[name]), type=one.body)
    if name in RESPONSES:
        msgspec.json.decode(msgspec.json.encode(RESPONSES[name]), type=one.response)


def test_every_code_is_in_the_table() -> None:
    known = {code for codes in CODES.values() for code in codes}
    source = Path(windlass._http.__file__).parent
    for file in source.rglob("*.py"):
        for code in re.findall(r'Problem\(\s*"([\w-]+)"', file.read_text()):
            assert code in known, file.name
    # Of handles, of workers, and of bases.
    unsaid = {"no-result", "task-dead", "task-cancelled", "lifespan-failed", "usage", "error"}
    raised = {one.code for one in vars(errors).values() if isinstance(one, type) and hasattr(one, "code")}
    assert raised - known <= unsaid


async def test_a_plain_path_knows_its_methods(http: httpx2.AsyncClient, open_url: str) -> None:
    answer = await http.delete(f"{open_url}/dead/replay")
    problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == "POST"
    answer = await http.post(f"{open_url}/openapi.json")
    problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("query", ["root=null", "created_after=null", "created_after=0.5", "created_after=1"])
async def test_what_the_document_does_not_allow_in_a_query_is_refused(
    query: str, http: httpx2.AsyncClient, open_url: str
) -> None:
    problem(await http.get(f"{open_url}/tasks?{query}"), 422, "invalid-request")
    assert (await http.get(f"{open_url}/tasks?created_after=2026-08-01T06:00:00Z")).status_code == 200


class Seen(HTMLParser):
    """What a page holds."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in {"meta", "link"}:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on")
            assert name != "style"
            if name == "id":
                self.ids.append(value or "")
            if name in {"href", "src"}:
                self.links.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


async def test_the_page_is_there_for_anybody_and_needs_nothing_from_elsewhere(
    http: httpx2.AsyncClient, url: str
) -> None:
    answer = await http.get(f"{url}/docs")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith(SAFE_HEADERS["content-security-policy"])
    assert "unsafe" not in policy
    assert "script-src" not in policy
    seen = Seen(answer.text)
    assert not seen.open
    assert not seen.tags & {"script", "style", "img", "iframe", "object"}
    assert {one.name for one in OPERATIONS} <= set(seen.ids)
    assert len(seen.ids) == len(set(seen.ids))
    for link in seen.links:
        if link.startswith("#"):
            assert link[1:] in seen.ids
        elif not link.startswith("data:"):
            assert (await http.get(urljoin(f"{url}/docs", link))).status_code == 200
    again = await http.get(f"{url}/docs", headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304


async def test_the_stylesheet_comes_with_the_package(http: httpx2.AsyncClient, url: str) -> None:
    answer = await http.get(f"{url}{style_path()}")
    assert answer.headers["content-type"] == "text/css; charset=utf-8"
    assert "immutable" in answer.headers["cache-control"]
    assert "light-dark(" in answer.text
    assert "url(" not in answer.text
    assert "@import" not in answer.text


def test_nothing_in_the_document_becomes_markup() -> None:
    evil = "<script>alert(1)</script>\"'&"

    def poisoned(value: Any) -> Any:
        match value:
            case dict():
                return {
                    key: one if key in {"$ref", "in", "security"} else poisoned(one)
                    for key, one in value.items()
                }
            case list():
                return [poisoned(one) for one in value]
            case str():
                return value + evil if " " in value else value
            case _:
                return value

    shown = page(poisoned(deepcopy(DOCUMENT)))
    assert "&lt;script&gt;" in shown
    assert "<script" not in shown
    Seen(shown)


async def test_the_rest_is_as_safe_as_ever(http: httpx2.AsyncClient, url: str) -> None:
    assert_safe(await http.get(f"{url}/healthz"))
    for at in ("/openapi.json", "/docs"):
        answer = await http.get(url + at)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-cache"
