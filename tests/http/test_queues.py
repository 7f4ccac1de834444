"""Queues over HTTP: show, change, pause, resume."""

from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from tests.http.api_client import Api
from tests.http.problem import problem
from tests.loops.workers import Watch, eventually
from tests.servers.api import ApiServer
from windlass import App
from windlass._client.keys import Keys
from windlass._model.filter import Page
from windlass._model.key import Scope
from windlass._model.queue import Fairness, Level, Ordering, QueueSettings, Retention
from windlass._model.record import Audit
from windlass._policy.order.window_options import parse_windows
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass.testing.faults import Fault, FaultyStore

NAMES = [
    "mail",
    "a/b",
    "a//b",
    "a/pause",
    "a/resume/pause",
    "tasks/batch",
    "ä/日本",
    "x" * 128,
    "a@b:c+d.e-f",
]
EMPTY = {"waiting": 0, "scheduled": 0, "ready": 0, "running": 0, "dead": 0}
SET: dict[str, Any] = {
    "fairness": "round_robin",
    "weights": {"acme": 3, "": 2, "日本": 100},
    "shares": {"high": 50, "low": 10},
    "ageing": 90.5,
    "retention": {"completed": 0, "cancelled": None, "dead": 86400.25},
    "stripes": 1,
    "windows": ["mon-fri 22:00-06:00 Europe/Berlin", "00:00-24:00 UTC"],
}


def at(queue: str, then: str = "") -> str:
    return f"/queues/{quote(queue)}{then}"


async def settings(store: Store) -> dict[str, QueueSettings]:
    return {one.name: one for one in (await store.records(QueueSettings, Page(limit=100))).items}


async def audits(store: Store) -> list[Audit]:
    return [*(await store.records(Audit, Page(limit=100))).items]


@pytest.mark.parametrize("queue", NAMES)
async def test_a_queue_of_any_good_name(queue: str, api_of: Api) -> None:
    problem(await api_of("GET", at(queue)), 404, "not-found")
    problem(await api_of("POST", at(queue, "/pause")), 404, "not-found")
    paused = await api_of.good("POST", at(queue, "/pause?create=true"))
    assert (paused["queue"], paused["paused"]) == (queue, True)
    assert await api_of.good("GET", at(queue)) == paused
    assert (await api_of.good("GET", f"/queues/{quote(queue, safe='')}")) == paused
    assert (await api_of.good("PATCH", at(queue), {"paused": False}))["paused"] is False
    assert (await api_of.good("POST", at(queue, "/pause")))["paused"] is True
    assert (await api_of.good("POST", at(queue, "/resume")))["paused"] is False
    assert [one["queue"] for one in (await api_of.good("GET", "/queues"))["items"]] == [queue]


@pytest.mark.parametrize("queue", ["", "\0", "a\0b", "a b", "-a", "😀", "x" * 129, "x" * 10_000])
async def test_what_is_no_name_is_no_queue(queue: str, api_of: Api, store: MemoryStore) -> None:
    problem(await api_of("GET", f"/queues/{quote(queue, safe='')}"), 404, "not-found")
    for method, then, body in (
        ("PATCH", "", {"stripes": 2}),
        ("PATCH", "", {"paused": True}),
        ("POST", "/pause", None),
        ("POST", "/resume", None),
    ):
        refused = await api_of(method, f"/queues/{quote(queue, safe='')}{then}", body)
        told = problem(refused, 422, "invalid-option")
        assert "is not a valid name" in told["detail"]
        assert len(told["detail"]) < 500
    assert await settings(store) == {}


async def test_a_misspelt_queue_is_refused_and_not_made(api_of: Api, store: MemoryStore) -> None:
    await api_of.enqueue(queue="mail")

    for method, then, body in (
        ("PATCH", "", {"paused": True}),
        ("POST", "/pause", None),
        ("POST", "/resume", None),
    ):
        told = problem(await api_of(method, at("mial", then), body), 404, "not-found")
        assert "did you mean 'mail'?" in told["detail"]
    assert await settings(store) == {}
    assert (await api_of.good("POST", at("mail", "/pause")))["paused"] is True


async def test_what_is_set_is_what_is_seen(on_each: Api, kept: Store) -> None:
    made = await on_each.good("PATCH", at("mail", "?create=true"), {**SET, "paused": True})
    assert made == {
        "queue": "mail",
        "paused": True,
        "closed_until": None,
        "counts": EMPTY,
        "exact": True,
        "oldest_ready": 0.0,
        "workers": 0,
        "slots": 0,
        "busy": 0,
        "settings": SET,
        "declared": [],
    }
    assert await on_each.good("GET", at("mail")) == made
    assert (await on_each.good("GET", "/queues"))["items"] == [made]
    assert (await settings(kept))["mail"] == QueueSettings(
        name="mail",
        paused=True,
        fairness=Fairness.ROUND_ROBIN,
        weights={"acme": 3, "": 2, "日本": 100},
        ordering=Ordering(ageing=timedelta(seconds=90.5), shares={Level.HIGH: 50, Level.LOW: 10}),
        retention=Retention(completed=timedelta(0), cancelled=None, dead=timedelta(seconds=86400.25)),
        windows=parse_windows(SET["windows"]),
    )
    again = await on_each.good("PATCH", at("mail"), {**made["settings"], "paused": made["paused"]})
    assert again == made


async def test_an_operators_change_is_seen_at_once(api_of: Api, store: MemoryStore) -> None:
    operator = App(store).operator
    await operator.set_queue("mail", stripes=4, create=True)
    assert (await api_of.good("GET", at("mail")))["settings"]["stripes"] == 4
    await operator.set_queue("mail", stripes=8)
    await operator.pause("mail")
    seen = await api_of.good("GET", at("mail"))
    assert (seen["settings"]["stripes"], seen["paused"]) == (8, True)
    (listed,) = (await api_of.good("GET", "/queues"))["items"]
    assert (listed["settings"]["stripes"], listed["paused"]) == (8, True)


async def test_null_takes_away_and_what_is_not_named_stays(api_of: Api) -> None:
    async def changed(**changes: Any) -> dict[str, Any]:
        found: dict[str, Any] = (await api_of.good("PATCH", at("mail", "?create=true"), changes))["settings"]
        return found

    stands = dict(await changed(**SET))
    assert await changed() == stands == SET
    stands["weights"] = {"acme": 3, "日本": 7}
    assert await changed(weights={"": None, "日本": 7, "never": None}) == stands
    stands["shares"] = {"high": 50}
    assert await changed(shares={"low": None}) == stands
    for name in ("ageing", "retention"):
        stands[name] = None
        assert await changed(**{name: None}) == stands
    stands["weights"] = {}
    assert await changed(weights=None) == stands
    stands["shares"] = {}
    assert await changed(shares=None) == stands
    await changed(weights={"acme": 2})
    stands["fairness"] = "fifo"
    assert await changed(fairness=None) == stands  # and with it go the weights
    stands["windows"] = []
    assert await changed(windows=None) == stands
    stands["stripes"] = 64
    assert await changed(stripes=64) == stands
    stands["stripes"] = 1
    assert await changed(stripes=None) == stands


BAD: list[tuple[dict[str, Any], str]] = [
    ({"stripes": 0}, "stripes"),
    ({"windows": ["22-06"]}, "a window is days, hours and a time zone"),
    ({"windows": "22:00-06:00"}, "windows"),
    ({"stripes": 65}, "stripes"),
    ({"stripes": 2.5}, "stripes"),
    ({"stripes": 2}, "leave stripes at 1"),  # as it has lanes
    ({"fairness": "unfair"}, "fairness"),
    ({"weights": {"acme": 0}}, "weights"),
    ({"weights": {"acme": 101}}, "weights"),
    ({"weights": {"a b": 1}}, "a b"),
    ({"weights": {"a\0": 1}}, "not a valid name"),
    ({"weights": [1]}, "weights"),
    ({"fairness": "fifo", "weights": {"acme": 2}}, "round_robin"),
    ({"shares": {"high": 60, "medium": 40}}, "leave nothing for low"),
    ({"shares": {"urgent": 5}}, "shares"),
    ({"shares": {"high": 100}}, "shares"),
    ({"ageing": 0}, "ageing"),
    ({"ageing": -1}, "ageing"),
    ({"ageing": 1e300}, "ageing"),
    ({"ageing": "5m"}, "ageing"),
    ({"retention": {"dead": 1}}, "completed"),
    ({"retention": {"completed": -1, "cancelled": None, "dead": None}}, "completed"),
    ({"retention": 5}, "retention"),
    ({"paused": None}, "paused"),
    ({"paused": "yes"}, "paused"),
    ({"pause": True}, "pause"),
    ({"why": "x" * 501}, "why"),
]


@pytest.mark.parametrize(("body", "named"), BAD, ids=lambda value: str(value)[:40])
async def test_a_bad_change_changes_nothing(
    body: dict[str, Any], named: str, api_of: Api, store: MemoryStore
) -> None:
    await App(store).operator.set_queue("mail", fairness="round_robin", weights={"acme": 3}, create=True)
    before, told = await settings(store), await audits(store)
    for more in ({}, {"paused": True}, {"retention": None, "paused": True}):
        refused = await api_of("PATCH", at("mail"), {**more, **body})
        assert refused.status_code == 422
        assert named in problem(refused, 422, refused.json()["code"])["detail"]
    assert (await settings(store), await audits(store)) == (before, told)


async def test_a_change_is_one_change(api: ApiServer, http: httpx2.AsyncClient, store: MemoryStore) -> None:
    """One write, one line in the audit log: a store that fails in between leaves nothing half done."""
    watch = Watch()
    served = Api(http, api.serve(FaultyStore(store, watch), open_to_all=True))
    watch.then("put", None, Fault.BEFORE)
    await served.good("PATCH", at("mail", "?create=true"), {"stripes": 3, "paused": True, "why": "too hot"})
    assert watch.calls["put"] == 1
    (line,) = await audits(store)
    assert (line.subject, line.why) == ("queue mail", "too hot")
    problem(await served("PATCH", at("mail"), {"stripes": 5, "paused": False}), 503, "store-unavailable")
    (stands,) = (await settings(store)).values()
    assert (stands.stripes, stands.paused) == (3, True)


async def test_nothing_to_change_is_no_change(api_of: Api, store: MemoryStore) -> None:
    problem(await api_of("PATCH", at("mail"), {}), 404, "not-found")
    problem(await api_of("PATCH", at("mail"), {"why": "x"}), 404, "not-found")
    assert (await settings(store), await audits(store)) == ({}, [])


async def test_who_did_it_and_why(http: httpx2.AsyncClient, url: str, keys: Keys, store: MemoryStore) -> None:
    key = await keys.create("ops", scopes=[Scope.OPERATE])
    own = Api(http, url, key.text)
    await own.good("PATCH", at("a", "?create=true"), {"stripes": 2, "why": "one"})
    await own.good("POST", at("a", "/pause?why=two"))
    await own.good("POST", at("a", "/resume?why=three%20%C3%A4"))
    lines = await audits(store)
    assert [(one.subject, one.why) for one in lines] == [
        ("queue a", "one"),
        ("queue a", "two"),
        ("queue a", "three ä"),
    ]
    assert {one.who for one in lines} == {f"key {key.key.name} (ops)"}
    problem(await own("POST", at("a", f"/pause?why={'x' * 501}")), 422, "invalid-request")


async def test_a_paused_queue_gives_nothing_out(api_of: Api) -> None:
    made = await api_of.enqueue(queue="mail")
    await api_of.good("POST", at("mail", "/pause"))
    session = await api_of.session("mail")
    assert await api_of.claim(session, 1, "mail") == []
    await api_of.good("POST", at("mail", "/resume"))
    (claimed,) = await api_of.claim(session, 1, "mail")
    assert claimed["id"] == made


async def test_counts_are_right_and_soon_fresh(on_each: Api) -> None:
    for _ in range(3):
        await on_each.enqueue(queue="mail")
    await on_each.enqueue(queue="mail", delay=60)
    await on_each.enqueue(queue="mail", type="u")
    await on_each.die(queue="mail")
    session = await on_each.session("mail", slots=4)
    assert len(await on_each.claim(session, 1, "mail", limit=2)) == 2

    async def counted() -> bool:
        seen = await on_each.good("GET", at("mail"))
        assert seen["exact"] is True
        wanted = {"waiting": 0, "scheduled": 1, "ready": 2, "running": 2, "dead": 1}
        return bool(seen["counts"] == wanted)

    await eventually(counted, within=5)
    seen = await on_each.good("GET", at("mail"))
    assert seen["oldest_ready"] > 0
    assert seen["workers"] == 2
    assert (await on_each.good("GET", "/queues"))["items"][0]["counts"] == seen["counts"]


async def test_the_types_in_a_queue_and_whether_a_worker_handles_them(api_of: Api) -> None:
    await api_of.enqueue(queue="mail", type="b")
    await api_of.enqueue(queue="mail", type="a", delay=60)
    await api_of.enqueue(queue="other", type="c")
    a, b = (await api_of.good("GET", at("mail", "/types")))["items"]
    assert (a["type"], a["counts"], a["oldest_ready"]) == ("a", {**EMPTY, "scheduled": 1}, 0)
    assert (b["type"], b["counts"], b["exact"], b["handled"]) == ("b", {**EMPTY, "ready": 1}, True, None)
    assert b["oldest_ready"] > 0
    worker = {"name": "w", "queues": ["mail"], "slots": 3, "types": ["b"]}
    await api_of.good("POST", "/work/sessions", worker)

    async def seen() -> bool:
        queue = await api_of.good("GET", at("mail"))
        return (queue["workers"], queue["slots"], queue["busy"]) == (1, 3, 0)

    await eventually(seen, within=5)
    found = (await api_of.good("GET", at("mail", "/types")))["items"]
    assert [(one["type"], one["handled"]) for one in found] == [("a", False), ("b", True)]
    problem(await api_of("GET", at("nowhere", "/types")), 404, "not-found")


async def test_the_tenants_of_a_queue(on_each: Api) -> None:
    for tenant, number in (("acme", 3), ("", 1), ("ada", 2)):
        for _ in range(number):
            await on_each.enqueue(queue="mail", **({"tenant": tenant} if tenant else {}))
    await on_each.enqueue(queue="other", tenant="elsewhere")
    session = await on_each.session("mail")
    assert len(await on_each.claim(session, 1, "mail")) == 1
    await on_each.good("PATCH", at("mail"), {"fairness": "round_robin", "weights": {"ada": 5}})
    found = await on_each.good("GET", at("mail", "/tenants?limit=2"))
    assert found["number"] == 3
    acme, ada = found["items"]
    assert (acme["tenant"], acme["counts"]) == ("acme", {**EMPTY, "ready": 2, "running": 1})
    assert (acme["weight"], acme["exact"]) == (1, True)
    assert (ada["tenant"], ada["counts"], ada["weight"]) == ("ada", {**EMPTY, "ready": 2}, 5)
    assert acme["oldest_ready"] > 0
    for limit in ("0", "1001", "-1", "1e9", "x"):
        problem(await on_each("GET", at("mail", f"/tenants?limit={limit}")), 422, "invalid-request")
    problem(await on_each("GET", at("nowhere", "/tenants")), 404, "not-found")


async def test_what_a_program_declares_is_marked(api_of: Api, store: MemoryStore) -> None:
    app = App(store)
    app.queue("mail", fairness="round_robin", weights={"acme": 2})
    await app.open()
    assert (await api_of.good("GET", at("mail")))["declared"] == ["fairness", "weights"]
    await api_of.good("PATCH", at("mail"), {"stripes": 1})
    assert (await api_of.good("GET", at("mail")))["declared"] == ["fairness", "weights"]


class TestBounds:
    """What a key that is bound to a tenant or to queues sees of them."""

    @pytest.fixture
    async def whole(self, http: httpx2.AsyncClient, url: str, keys: Keys) -> Api:
        admin = Api(http, url, (await keys.create("all", scopes=[Scope.ADMIN])).text)
        for tenant, queue in (("acme", "mail"), ("bob", "mail"), ("bob", "other")):
            await admin.enqueue(tenant=tenant, queue=queue)
        await admin.session("mail")
        await admin.good("PATCH", at("mail"), {"stripes": 2})
        await admin.good("PATCH", at("set", "?create=true"), {"stripes": 2})
        return admin

    async def by(self, whole: Api, keys: Keys, **bounds: Any) -> Api:
        text = (await keys.create("k", scopes=[Scope.READ, Scope.OPERATE], **bounds)).text
        own = whole.by(text)
        await eventually(lambda: _known(own))
        return own

    async def test_of_a_tenant(self, whole: Api, keys: Keys) -> None:
        own = await self.by(whole, keys, tenant="acme")
        (mail,) = (await own.good("GET", "/queues"))["items"]
        assert mail == await own.good("GET", at("mail"))
        assert mail["oldest_ready"] > 0
        assert {name: one for name, one in mail.items() if name != "oldest_ready"} == {
            "queue": "mail",
            "paused": False,
            "closed_until": None,
            "counts": {**EMPTY, "ready": 1},
            "exact": True,
            "workers": None,
            "slots": None,
            "busy": None,
            "settings": None,
            "declared": None,
        }
        for queue in ("other", "set", "nowhere"):
            problem(await own("GET", at(queue)), 404, "not-found")
        for method, then, body in (("PATCH", "", {"paused": True}), ("POST", "/pause", None)):
            problem(await own(method, at("mail", then), body), 403, "forbidden")

    async def test_of_queues(self, whole: Api, keys: Keys, store: MemoryStore) -> None:
        own = await self.by(whole, keys, queues=["mail", "new"])
        mail, new = (await own.good("GET", "/queues"))["items"]
        assert (mail["counts"]["ready"], mail["settings"]["stripes"], mail["workers"]) == (2, 2, None)
        assert (new["queue"], new["counts"], new["paused"]) == ("new", EMPTY, False)
        for queue in ("other", "set", "nowhere"):
            problem(await own("GET", at(queue)), 404, "not-found")
            problem(await own("POST", at(queue, "/pause")), 403, "forbidden")
            problem(await own("PATCH", at(queue), {"paused": True}), 403, "forbidden")
        assert (await own.good("POST", at("mail", "/pause")))["paused"] is True
        assert [name for name, one in (await settings(store)).items() if one.paused] == ["mail"]


async def _known(api: Api) -> bool:
    """Whether the server knows the key by now."""
    return (await api("GET", "/queues")).status_code == 200


async def test_a_queue_outside_its_hours_is_closed(api_of: Api, store: MemoryStore) -> None:
    now = store.clock.now()
    later = now + timedelta(hours=3)
    window = f"{later:%H}:00-{later + timedelta(hours=1):%H}:00 UTC"

    made = await api_of.good("PATCH", at("mail", "?create=true"), {"windows": [window]})

    assert made["settings"]["windows"] == [window]
    opens = datetime.fromisoformat(made["closed_until"])
    assert opens == later.replace(minute=0, second=0, microsecond=0)
    (seen,) = (await api_of.good("GET", "/queues"))["items"]
    assert seen["closed_until"] == made["closed_until"]


QUEUES = {"b": 1, "B": 3, "c/1": 2, "c/2": 5}


@pytest.fixture
async def several(api_of: Api) -> Api:
    """The API of a store with some queues that have tasks, and one that has settings only."""
    tasks = [{"type": "t", "queue": queue} for queue, number in QUEUES.items() for _ in range(number)]
    await api_of.good("POST", "/tasks/batch", {"tasks": tasks})
    await api_of.good("PATCH", at("a", "?create=true"), {"paused": True})
    return api_of


async def test_queues_come_in_pages_by_name(several: Api) -> None:
    found: list[str] = []
    cursor, pages = "", 0
    while pages < 10:
        page = await several.good("GET", f"/queues?limit=2&cursor={quote(cursor, safe='')}")
        found += [one["queue"] for one in page["items"]]
        assert page["number"] == 5
        pages += 1
        if page["cursor"] is None:
            break
        cursor = page["cursor"]

    assert (found, pages) == (sorted([*QUEUES, "a"]), 3)
    assert (await several.good("GET", "/queues?cursor=zzz"))["items"] == []


async def test_queues_are_found_by_a_part_of_their_name_and_the_worst_first(several: Api) -> None:
    async def listed(query: str) -> tuple[list[str], int, str | None]:
        page = await several.good("GET", f"/queues?{query}")
        return [one["queue"] for one in page["items"]], page["number"], page["cursor"]

    assert await listed("name=C%2F") == (["c/1", "c/2"], 2, None)
    assert await listed("name=b&limit=1") == (["B"], 2, "B")
    assert await listed("order=ready&limit=3") == (["c/2", "B", "c/1"], 5, None)
    assert (await listed("order=oldest"))[0][-1] == "a"
    assert (await listed("order=dead"))[0] == sorted([*QUEUES, "a"])
    for wrong in ("order=worst", "limit=0", "limit=1001", "x=1"):
        problem(await several("GET", f"/queues?{wrong}"), 422, "invalid-request")


TYPES = {"b": 1, "B": 3, "c/1": 2, "c/2": 5}


@pytest.fixture
async def several_types(api_of: Api, monkeypatch: pytest.MonkeyPatch) -> Api:
    """The API of a store with some types in a queue, listed as if there were very many."""
    monkeypatch.setattr("windlass._http.web.off_loop.SMALL", 0)
    monkeypatch.setattr("windlass._documents.queues._MANY", 0)
    tasks = [{"type": name, "queue": "mail"} for name, number in TYPES.items() for _ in range(number)]
    tasks.append({"type": "a", "queue": "mail", "delay": 60})
    await api_of.good("POST", "/tasks/batch", {"tasks": tasks})
    await api_of.enqueue(type="other", queue="other")
    return api_of


async def test_types_of_a_queue_come_in_pages_by_name(several_types: Api) -> None:
    found: list[str] = []
    cursor, pages = "", 0
    while pages < 10:
        page = await several_types.good("GET", at("mail", f"/types?limit=2&cursor={quote(cursor, safe='')}"))
        found += [one["type"] for one in page["items"]]
        assert page["number"] == 5
        pages += 1
        if page["cursor"] is None:
            break
        cursor = page["cursor"]

    assert (found, pages) == (sorted([*TYPES, "a"]), 3)
    assert (await several_types.good("GET", at("mail", "/types?cursor=zzz")))["items"] == []
    whole = await several_types.good("GET", at("mail"))
    assert whole["counts"] == {**EMPTY, "ready": sum(TYPES.values()), "scheduled": 1}
    assert await several_types.good("GET", at("mail")) == whole


async def test_a_page_of_types_has_100_unless_more_are_asked_for(api_of: Api) -> None:
    names = [f"t{number:03}" for number in range(150)]
    await api_of.good("POST", "/tasks/batch", {"tasks": [{"type": name, "queue": "mail"} for name in names]})

    page = await api_of.good("GET", at("mail", "/types"))

    assert [one["type"] for one in page["items"]] == names[:100]
    assert (page["number"], page["cursor"]) == (150, names[99])
    assert len((await api_of.good("GET", at("mail", "/types?limit=1000")))["items"]) == 150


async def test_types_are_found_by_a_part_of_their_name_and_the_worst_first(several_types: Api) -> None:
    async def listed(query: str) -> tuple[list[str], int, str | None]:
        page = await several_types.good("GET", at("mail", f"/types?{query}"))
        return [one["type"] for one in page["items"]], page["number"], page["cursor"]

    assert await listed("name=C%2F") == (["c/1", "c/2"], 2, None)
    assert await listed("name=b&limit=1") == (["B"], 2, "B")
    assert await listed("order=ready&limit=3") == (["c/2", "B", "c/1"], 5, None)
    assert (await listed("order=oldest"))[0][-1] == "a"
    assert (await listed("order=dead"))[0] == sorted([*TYPES, "a"])
    for wrong in ("order=worst", "limit=0", "limit=1001", "x=1"):
        problem(await several_types("GET", at("mail", f"/types?{wrong}")), 422, "invalid-request")


async def test_the_overview_has_the_worst_of_very_many_queues_and_counts_all(
    several: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass._documents.queues.MAX_QUEUES", 3)
    monkeypatch.setattr("windlass._http.web.off_loop.SMALL", 0)  # as with very many

    seen = await several.good("GET", "/overview")

    assert (seen["number"], seen["exact"]) == (5, True)
    assert seen["counts"] == {**EMPTY, "ready": sum(QUEUES.values())}
    names = [one["queue"] for one in seen["queues"]]
    assert (len(names), names) == (3, sorted(names))
    assert "a" not in names


async def test_a_removed_queue_is_gone_at_once(on_each: Api) -> None:
    await on_each.good(
        "PATCH", "/queues/brief?create=true", {"weights": {"acme": 2}, "fairness": "round_robin"}
    )
    await on_each.good("GET", "/overview")  # which is kept for two seconds

    assert (await on_each("DELETE", "/queues/brief")).status_code == 204

    problem(await on_each("GET", "/queues/brief"), 404, "not-found")
    listed = await on_each.good("GET", "/queues")
    assert "brief" not in {one["queue"] for one in listed["items"]}


async def test_a_queue_is_removed_once_nothing_is_in_it(api_of: Api, store: MemoryStore) -> None:
    await api_of.good("PATCH", at("mail", "?create=true"), {"paused": True})
    made = await api_of.good("POST", "/tasks", {"type": "t", "queue": "mail"})

    problem(await api_of("DELETE", at("mail")), 409, "refused")
    await api_of("DELETE", f"/tasks/{made['id']}")
    gone = await api_of("DELETE", at("mail"))

    assert gone.status_code == 204
    problem(await api_of("DELETE", at("mail")), 404, "not-found")
    assert await settings(store) == {}
