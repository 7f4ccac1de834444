"""Sign in with a key: the cookie, when a login ends, lock-out, and where one is led."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urljoin, urlsplit

import httpx2
import pytest

from tests.contents import contents
from tests.dashboard.person import Person
from tests.examples import FULL
from tests.loops.workers import eventually
from tests.servers.api import ApiServer
from windlass._client.keys import Keys, NewKey
from windlass._dashboard import lockout
from windlass._dashboard.lockout import MAX_ADDRESSES, PER_ADDRESS, Lockout
from windlass._dashboard.view import DashboardSettings
from windlass._dashboard.viewers import LOGIN
from windlass._model.filter import Page
from windlass._model.key import Login
from windlass._model.queue import QueueSettings
from windlass._model.record import Audit
from windlass._policy import api_key
from windlass._stores.memory import MemoryStore

FAILED, AT_ONCE = (100, 160) if FULL else (10, 4)  # attempts with wrong keys
WRONG = "wl_" + "a" * 12 + "_" + "b" * 43


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    store = MemoryStore()
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def key(store: MemoryStore) -> NewKey:
    return await Keys(store).create("ann", scopes=["read", "operate"])


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=30, limits=limits) as http:
        yield http


@pytest.fixture
def url(server: ApiServer, store: MemoryStore) -> str:
    """A dashboard behind a proxy on this machine."""
    settings = DashboardSettings(trusted_proxies=("127.0.0.1",))
    return f"{server.serve(store, dashboard=settings)}/dashboard/"


@pytest.fixture
def person(http: httpx2.AsyncClient, url: str, key: NewKey) -> Person:
    return Person(http, url)


async def test_one_signs_in_and_out(person: Person, key: NewKey, store: MemoryStore) -> None:
    response = await person.get("queues?x=1")
    assert (response.status_code, response.headers["location"]) == (303, "./login?next=queues%3Fx%3D1")
    signed_in = await person.sign_in(key.text, "queues?x=1")
    assert signed_in.headers["location"] == "./login/check?next=queues%3Fx%3D1"
    (line,) = [one for one in signed_in.headers.get_list("set-cookie") if one.startswith(LOGIN)]
    assert line.partition(";")[2].lower() == " httponly; max-age=28800; path=/; samesite=strict; secure"
    assert (await person.get("login/check?next=queues%3Fx%3D1")).headers["location"] == "../queues?x=1"
    page = await person.get("queues")
    assert page.status_code == 200
    assert "ann" in page.text
    assert (await person.get("login")).headers["location"] == "./"
    kept = await person.get("logout")
    assert kept.status_code == 404

    left = person.with_cookies()
    response = await person.post("logout", {}, token=await person.token())
    assert (response.status_code, response.headers["location"]) == (303, "./login")
    assert LOGIN not in person.cookies
    for one in (person, left):
        assert (await one.get()).status_code == 303
    lines = [(one.who, one.action) for one in (await store.records(Audit, Page())).items]
    assert lines == [(f"key {key.key.name} (ann)", one) for one in ("create", "remove")]


async def test_the_value_is_new_each_time_and_not_in_the_store(
    person: Person, key: NewKey, store: MemoryStore
) -> None:
    """A value that someone else has chosen is not taken over (session fixation)."""
    person.cookies[LOGIN] = "chosen"
    values = []
    for _ in range(2):
        await person.sign_in(key.text)
        values.append(person.cookies.pop(LOGIN))
    assert len({"chosen", *values}) == 3
    assert all(len(value) == 43 for value in values)
    logins = (await store.records(Login, Page())).items
    assert len(logins) == 2
    assert not any(value in contents(logins) for value in values)
    assert key.text.rpartition("_")[2] not in contents(logins)


async def test_a_login_is_known_to_every_server_at_once(
    person: Person, key: NewKey, store: MemoryStore, server: ApiServer, http: httpx2.AsyncClient
) -> None:
    """Also to one that has just read all logins."""
    other = Person(http, f"{server.serve(store, dashboard=DashboardSettings())}/dashboard/")
    for _ in range(3):
        other.cookies = {LOGIN: "unknown"}
        assert (await other.get()).status_code == 303
        await person.sign_in(key.text)
        other.cookies = {LOGIN: person.cookies.pop(LOGIN)}
        assert (await other.get()).status_code == 200


@pytest.mark.parametrize("how", ["revoke", "rotate", "sign_out", "expire"])
async def test_it_ends_within_two_seconds_and_so_do_its_streams(
    how: str, person: Person, key: NewKey, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, lasting = Keys(store), person.with_cookies()
    if how == "expire":
        key = await keys.create("short", scopes=["read"], expires_in=3)
    await eventually(lambda: _is_new(person, key))
    if how == "rotate":  # one who signed in with the new secret stays
        again = await keys.rotate(key.key.name, overlap=60)
        await eventually(lambda: _is_new(lasting, again))
    told = {"cookie": f"{LOGIN}={person.cookies[LOGIN]}"}
    async with person.http.stream("GET", f"{person.url}queues?live=1", headers=told) as stream:
        assert stream.status_code == 200
        lines = stream.aiter_lines()
        await anext(lines)
        if how == "revoke":
            await keys.revoke(key.key.name)
        elif how == "rotate":
            await keys.rotate(key.key.name, overlap=0)
        elif how == "sign_out":
            assert await keys.sign_out(key.key.name) == 1
        async with asyncio.timeout(10):
            async for _ in lines:
                pass
    assert (await person.get()).status_code == 303
    assert (await person.get("queues?live=1")).status_code == 401


async def _is_new(person: Person, key: NewKey) -> bool:
    return (await person.sign_in(key.text)).status_code == 303


async def test_a_form_belongs_to_a_login(person: Person, key: NewKey, store: MemoryStore) -> None:
    await store.put(QueueSettings(name="mail"))
    other = person.with_cookies()
    for one in (person, other):
        await one.sign_in(key.text)
    token = await other.token()
    response = await person.post("queues/mail/pause", {}, token=token)
    assert response.status_code == 403
    assert (await person.post("queues/mail/pause", {}, token=await person.token())).status_code == 303


async def test_the_page_for_signing_in_is_for_those_who_read_it(person: Person, key: NewKey) -> None:
    """Nobody is signed in by a page of another site."""
    token = await person.token("login")
    for headers in ({"origin": "https://evil.example"}, {"sec_fetch_site": "cross-site"}):
        response = await person.post("login", {"key": key.text}, token=token, **headers)
        assert response.status_code == 403
    assert (await person.post("login", {"key": key.text})).status_code == 403
    assert (await person.post("login", {"key": key.text}, token="0" * 64)).status_code == 403
    assert LOGIN not in person.cookies


async def test_a_key_without_read_cannot_sign_in(person: Person, store: MemoryStore) -> None:
    blind = await Keys(store).create("producer", scopes=["enqueue"])

    async def refused() -> bool:
        response = await person.sign_in(blind.text)
        return response.status_code == 403 and "lacks the scope read" in response.text

    await eventually(refused)


async def test_who_fails_too_often_must_wait(
    person: Person, key: NewKey, caplog: pytest.LogCaptureFixture
) -> None:
    token = await person.token("login")

    async def attempt(text: str, address: str) -> httpx2.Response:
        return await person.post("login", {"key": text}, token=token, x_forwarded_for=address)

    for _ in range(PER_ADDRESS):
        response = await attempt(WRONG, "spoofed, 192.0.2.7")
        assert response.status_code == 401
        assert "unknown, expired or revoked" in response.text
        assert WRONG not in response.text
    response = await attempt(WRONG, "192.0.2.7")
    assert response.status_code == 429
    assert 1 <= int(response.headers["retry-after"]) <= 10
    assert (await attempt(WRONG, "192.0.2.8")).status_code == 401
    assert (await attempt(key.text, "192.0.2.7")).status_code == 303
    said = [one.message for one in caplog.records if "refused POST /dashboard/login" in one.message]
    assert any("unknown_key" in one for one in said)
    assert any("locked_out" in one for one in said)
    assert "b" * 43 not in caplog.text


def test_failures_are_forgotten_one_by_one_and_memory_is_bounded() -> None:
    now = 0.0
    counted = Lockout(lambda: now)
    for _ in range(PER_ADDRESS):
        assert counted.seconds_left("192.0.2.7") == 0
        counted.note_failure("192.0.2.7")
    assert counted.seconds_left("192.0.2.7") == lockout.ADDRESS_SECONDS
    assert counted.seconds_left("192.0.2.8") == 0
    now += lockout.ADDRESS_SECONDS
    assert counted.seconds_left("192.0.2.7") == 0
    counted.note_failure("192.0.2.7")
    assert counted.seconds_left("192.0.2.7") > 0

    for number in range(PER_ADDRESS):
        counted.note_failure(f"2001:db8::{number:x}")
    assert counted.seconds_left("2001:db8::ffff") > 0  # one client has them all
    assert counted.seconds_left("2001:db8:0:1::1") == 0

    assert not counted.is_flooded
    for number in range(MAX_ADDRESSES + 5):
        counted.note_failure(f"host {number}")
    assert counted.is_flooded
    assert len(counted._addresses) == MAX_ADDRESSES
    now += lockout.IN_ALL_SECONDS
    assert not counted.is_flooded


async def test_the_address_that_others_invent_is_not_believed(
    server: ApiServer, store: MemoryStore, http: httpx2.AsyncClient, key: NewKey
) -> None:
    served = server.serve(store, dashboard=DashboardSettings(trusted_proxies=("192.0.2.1",)))
    person = Person(http, f"{served}/dashboard/")
    token = await person.token("login")

    statuses = [
        (
            await person.post("login", {"key": WRONG}, token=token, x_forwarded_for=f"198.51.100.{number}")
        ).status_code
        for number in range(PER_ADDRESS + 2)
    ]

    assert statuses == [401] * PER_ADDRESS + [429] * 2
    assert (await person.post("login", {"key": key.text}, token=token)).status_code == 303


@pytest.mark.more
async def test_the_right_key_signs_in_at_once_during_a_flood(
    person: Person, key: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass._dashboard.sign_in.SLOW_SECONDS", 60)  # longer than this test
    monkeypatch.setattr("windlass._dashboard.sign_in.MAX_SLOW", AT_ONCE - 1)
    monkeypatch.setattr(lockout, "IN_ALL", FAILED)
    monkeypatch.setattr(lockout, "IN_ALL_SECONDS", 3600)
    token = await person.token("login")

    async def fail(number: int) -> int:
        address = f"192.0.{number // 250}.{number % 250}"
        return (await person.post("login", {"key": WRONG}, token=token, x_forwarded_for=address)).status_code

    assert {await fail(number) for number in range(FAILED)} == {401}
    flood = {asyncio.create_task(fail(FAILED + number)) for number in range(AT_ONCE)}
    done, waiting = await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
    try:
        for number in range(15):
            visitor = person.with_cookies(x_forwarded_for=f"203.0.113.{number}")
            response = await visitor.post("login", {"key": key.text}, token=token)
            assert response.status_code == 303
    finally:
        for one in waiting:
            one.cancel()
    assert [one.result() for one in done] == [429]


@pytest.mark.parametrize(
    "page",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example",
        "\\evil.example",
        "javascript:alert(1)",
        "../../evil",
        "queues/..",
        "queues/%2e%2e",
        "nowhere",
        "queues\r\nX-Injected: 1",
        "././/evil.example",
        "logout",
        "login",
    ],
)
async def test_one_is_led_to_pages_of_the_dashboard_only(person: Person, key: NewKey, page: str) -> None:
    response = await person.sign_in(key.text, page)
    assert response.headers["location"] == "./login/check?next="
    response = await person.http.get(
        f"{person.url}login/check", params={"next": page}, headers={"cookie": f"{LOGIN}=x"}
    )
    assert response.headers["location"] == "../"
    assert "x-injected" not in response.headers
    assert urlsplit(urljoin(str(response.url), "../")).path == urlsplit(person.url).path


async def test_a_name_with_a_slash_is_one_part_of_the_page(person: Person) -> None:
    response = await person.get("queues/a%2Fb%3F")
    assert response.headers["location"] == "../login?next=queues%2Fa%252Fb%253F"
    person.cookies[LOGIN] = "x"
    response = await person.get("login/check?next=queues%2Fa%252Fb%253F")
    assert response.headers["location"] == "../queues/a%2Fb%3F"


async def test_it_tells_when_a_browser_cannot_stay_signed_in(person: Person, key: NewKey) -> None:
    assert "needs HTTPS" not in (await person.get("login")).text
    remote = await person.get("login", host="windlass.example")
    assert "Signing in needs HTTPS" in remote.text
    for sign in ({"x_forwarded_proto": "https"}, {"sec_fetch_site": "none"}):
        behind = await person.get("login", host="windlass.example", **sign)
        assert "needs HTTPS" not in behind.text
    await person.sign_in(key.text)
    del person.cookies[LOGIN]
    response = await person.get("login/check?next=queues")
    assert response.status_code == 403
    assert "did not keep the login" in response.text


async def test_logins_are_few(
    person: Person, key: NewKey, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_key, "MAX_LOGINS", 2)
    first = person.with_cookies()
    for one in (first, person.with_cookies(), person):
        await one.sign_in(key.text)
    assert len((await store.records(Login, Page())).items) == 2
    await eventually(lambda: _is_out(first))


async def _is_out(person: Person) -> bool:
    return (await person.get()).status_code == 303


async def test_without_keys_nobody_signs_in(
    http: httpx2.AsyncClient, server: ApiServer, store: MemoryStore
) -> None:
    served = server.serve(store, dashboard=DashboardSettings(), open_until_keys=True)
    person = Person(http, f"{served}/dashboard/")
    assert (await person.get("login")).headers["location"] == "./"
    person.cookies[LOGIN] = "of another server on this machine"
    assert (await person.get()).status_code == 200
    await Keys(store).create("ann", scopes=["admin"])
    await eventually(lambda: _is_out(person))


async def test_a_key_in_the_header_still_does(person: Person, key: NewKey) -> None:
    assert (await person.get(authorization=f"Bearer {key.text}")).status_code == 200
    assert (await person.get(authorization=f"Bearer {WRONG}")).status_code == 401
