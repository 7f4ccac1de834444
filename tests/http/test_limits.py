"""Limits over HTTP: put, change, remove, usage; errors name the field."""

from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from tests.http.api_client import Api, lease
from tests.http.problem import problem
from tests.servers.api import ApiServer
from windlass import App
from windlass._client.keys import Keys
from windlass._documents import limits
from windlass._model.filter import Page
from windlass._model.key import Scope
from windlass._model.limit import Limit
from windlass._model.record import Audit
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore

NOTHING: dict[str, Any] = dict.fromkeys(("queue", "type", "tenant", "by", "running", "rate", "burst"))
GOOD: list[dict[str, Any]] = [
    {"running": 0},
    {"running": 1_000_000},
    {"rate": 0.5, "burst": 3},
    {"rate": 1_000_000, "burst": 1_000_000, "running": 5},
    {"queue": "a/b", "type": "shop.welcome", "tenant": "日本", "by": "user_id", "running": 2},
    {"tenant": "", "running": 1},
    {"by": "tenant", "running": 1},
    {"by": "größe", "rate": 1e-3, "burst": 1},
]


def all_if_unscoped(said: dict[str, Any]) -> dict[str, Any]:
    return {} if any(said.get(name) is not None for name in ("queue", "type", "tenant")) else {"all": True}


async def kept_limits(store: Store) -> list[Limit]:
    return [*(await store.records(Limit, Page(limit=100))).items]


async def audits(store: Store) -> list[Audit]:
    return [*(await store.records(Audit, Page(limit=100))).items]


@pytest.mark.parametrize("said", GOOD, ids=str)
async def test_what_is_set_is_what_is_seen(said: dict[str, Any], api_of: Api, store: MemoryStore) -> None:
    made = await api_of.good("PUT", "/limits/n", said | all_if_unscoped(said))
    assert made == {"name": "n", **NOTHING, **said, "declared": False, "in_use": made["in_use"]}
    assert await kept_limits(store) == [Limit(name="n", **said)]
    assert await api_of.good("GET", "/limits/n") == made
    assert await api_of.good("GET", "/limits") == {"items": [made]}
    again = {name: made[name] for name in NOTHING}
    assert await api_of.good("PUT", "/limits/n", again) == made
    assert await api_of.good("PATCH", "/limits/n", again) == made


async def test_a_limit_that_a_program_declares_is_marked(api_of: Api, store: MemoryStore) -> None:
    app = App(store)
    app.limit("coded", running=2)
    await app.open()
    await api_of.good("PUT", "/limits/typed", {"running": 1, "all": True})
    found = (await api_of.good("GET", "/limits"))["items"]
    assert [(one["name"], one["declared"]) for one in found] == [("coded", True), ("typed", False)]
    assert (await api_of.good("PATCH", "/limits/coded", {"running": 3}))["declared"] is True


@pytest.mark.parametrize("name", ["a", "a/b", "a//b/", "日本", "x" * 128, "ticks", "a@b:c+d.e-f"])
async def test_a_limit_of_any_good_name(name: str, api_of: Api) -> None:
    at = f"/limits/{quote(name)}"
    problem(await api_of("GET", at), 404, "not-found")
    assert (await api_of.good("PUT", at, {"running": 1, "all": True}))["name"] == name
    assert (await api_of.good("PATCH", f"/limits/{quote(name, safe='')}", {"running": 2}))["running"] == 2
    await api_of.good("DELETE", at)
    problem(await api_of("DELETE", at), 404, "not-found")


@pytest.mark.parametrize("name", ["", "\0", "a b", "-a", "x" * 129, "x" * 10_000, "😀"])
async def test_what_is_no_name_is_no_limit(name: str, api_of: Api, store: MemoryStore) -> None:
    at = f"/limits/{quote(name, safe='')}"
    for method, body in (("GET", None), ("PATCH", {"running": 1}), ("DELETE", None)):
        missing = problem(await api_of(method, at, body), 404, "not-found")
        assert len(missing["detail"]) < 500
    assert (
        "is not a valid name"
        in problem(await api_of("PUT", at, {"running": 1, "all": True}), 422, "invalid-option")["detail"]
    )
    assert await kept_limits(store) == []


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "needs running, rate or both"),
    ({"running": None}, "needs running, rate or both"),
    ({"burst": 3}, "needs running, rate or both"),
    ({"running": 1, "burst": 3}, "has a burst but no rate"),
    ({"running": -1}, "running"),
    ({"running": 1_000_001}, "running"),
    ({"running": 1.5}, "running"),
    ({"running": True}, "running"),
    ({"rate": 0}, "rate"),
    ({"rate": 1_000_001}, "rate"),
    ({"rate": "100/m"}, "rate"),
    ({"rate": 1, "burst": 0}, "burst"),
    ({"running": 1, "queue": "a b"}, "queue"),
    ({"running": 1, "type": ""}, "type"),
    ({"running": 1, "tenant": "a\0"}, "tenant"),
    ({"running": 1, "tenant": "x" * 129}, "tenant"),
    ({"running": 1, "by": "a.b"}, "by"),
    ({"running": 1, "by": ""}, "by"),
    ({"running": 1, "by": "queue", "queue": "mail"}, "has no effect"),
    ({"running": 1, "in_use": []}, "in_use"),
    ({"running": 1, "name": "other"}, "name"),
    ({"running": 1, "why": "x" * 501}, "why"),
]


@pytest.mark.parametrize(("body", "named"), BAD, ids=lambda value: str(value)[:40])
async def test_what_is_wrong_is_named_and_changes_nothing(
    body: dict[str, Any], named: str, api_of: Api, store: MemoryStore
) -> None:
    for standing in ([], [Limit(name="n", rate=1.0)]):
        for one in standing:
            await store.put(one)
        refused = await api_of("PUT", "/limits/n", body)
        assert named in problem(refused, 422, refused.json()["code"])["detail"]
        assert await kept_limits(store) == standing
    assert await audits(store) == []


async def test_a_change_of_what_is_named(api_of: Api, store: MemoryStore) -> None:
    problem(await api_of("PATCH", "/limits/n", {"running": 1}), 404, "not-found")
    await api_of.good("PUT", "/limits/n", {"queue": "mail", "running": 5, "rate": 2, "burst": 9})

    async def changed(**changes: Any) -> dict[str, Any]:
        found: dict[str, Any] = await api_of.good("PATCH", "/limits/n", changes)
        return {
            name: value for name, value in found.items() if value is not None and name in ("name", *NOTHING)
        }

    assert await changed() == {"name": "n", "queue": "mail", "running": 5, "rate": 2.0, "burst": 9}
    assert await changed(running=6, queue=None, by="tenant", all=True) == {
        "name": "n",
        "by": "tenant",
        "running": 6,
        "rate": 2.0,
        "burst": 9,
    }
    assert await changed(rate=None) == {"name": "n", "by": "tenant", "running": 6}
    problem(await api_of("PATCH", "/limits/n", {"running": None}), 422, "invalid-option")
    problem(await api_of("PATCH", "/limits/n", {"burst": 2}), 422, "invalid-option")
    assert await kept_limits(store) == [Limit(name="n", by="tenant", running=6)]
    assert await changed(rate=3.5) == {"name": "n", "by": "tenant", "running": 6, "rate": 3.5, "burst": 4}


async def test_a_limit_on_all_tasks_must_be_asked_for(api_of: Api, store: MemoryStore) -> None:
    """A misspelt name, or a limit that loses its scope, would hold back everything."""
    await api_of.good("PUT", "/limits/api", {"type": "shop.charge", "rate": 5})
    standing = await kept_limits(store)

    for method, at, body in (
        ("PUT", "/limits/apii", {"rate": 5}),
        ("PUT", "/limits/api", {"rate": 5}),
        ("PATCH", "/limits/api", {"type": None}),
        ("PATCH", "/limits/apii?create=true", {"rate": 5}),
    ):
        told = problem(await api_of(method, at, body), 422, "invalid-option")
        assert "would apply to all tasks" in told["detail"]
    told = problem(await api_of("PATCH", "/limits/apii", {"rate": 5, "all": True}), 404, "not-found")
    assert "did you mean 'api'?" in told["detail"]
    both = {"running": 1, "all": True, "queue": "mail"}
    told = problem(await api_of("PUT", "/limits/other", both), 422, "invalid-option")
    assert "all and queue contradict each other" in told["detail"]
    assert await kept_limits(store) == standing

    made = await api_of.good("PATCH", "/limits/new?create=true", {"rate": 5, "queue": "mail"})
    assert (made["queue"], made["rate"]) == ("mail", 5)
    assert (await api_of.good("PATCH", "/limits/api", {"all": True}))["type"] is None
    assert (await api_of.good("PATCH", "/limits/api", {"rate": 6}))["rate"] == 6


async def test_what_is_in_use(on_each: Api) -> None:
    await on_each.good("PUT", "/limits/each", {"by": "tenant", "running": 2, "all": True})
    await on_each.good("PUT", "/limits/pace", {"rate": 0.001, "burst": 5, "all": True})
    for tenant in ("acme", "acme", "acme", "bob"):
        await on_each.enqueue(tenant=tenant)
    claimed = await on_each.claim(await on_each.session(slots=9), 1, limit=9)
    assert len(claimed) == 3  # of acme's three, two
    each, pace = (await on_each.good("GET", "/limits"))["items"]
    assert each["in_use"] == [
        {"value": "acme", "running": 2, "tokens": None, "share": 1.0},
        {"value": "bob", "running": 1, "tokens": None, "share": 0.5},
    ]
    (used,) = pace["in_use"]
    assert used["running"] == 3
    assert 2 <= used["tokens"] < 2.5
    assert (await on_each.good("GET", "/limits/each"))["in_use"] == each["in_use"]
    await on_each.settle(*({**lease(one), "outcome": "returned"} for one in claimed))
    assert all(one["running"] == 0 for one in (await on_each.good("GET", "/limits/each"))["in_use"])


async def test_of_many_values_those_are_shown_that_use_most(
    api_of: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_USAGES", 3)
    await api_of.good("PUT", "/limits/each", {"by": "tenant", "running": 10, "all": True})
    for number in range(6):
        for _ in range(1 + number % 3):
            await api_of.enqueue(tenant=f"t{number}")
    await api_of.claim(await api_of.session(slots=50), 1, limit=50)
    shown = (await api_of.good("GET", "/limits/each"))["in_use"]
    assert [one["running"] for one in shown] == [3, 3, 2]


async def test_who_did_it_and_why(http: httpx2.AsyncClient, url: str, keys: Keys, store: MemoryStore) -> None:
    key = await keys.create("ops", scopes=[Scope.OPERATE])
    own = Api(http, url, key.text)
    await own.good("PUT", "/limits/n", {"running": 1, "why": "one", "all": True})
    await own.good("PATCH", "/limits/n", {"running": 2, "why": "two"})
    problem(await own("DELETE", "/limits/other?why=x"), 404, "not-found")
    await own.good("DELETE", "/limits/n?why=three")
    lines = await audits(store)
    assert [(one.subject, one.why, one.who) for one in lines] == [
        ("limit n", why, f"key {key.key.name} (ops)") for why in ("one", "two", "three")
    ]


async def test_in_place_of_a_declared_one(api: ApiServer, http: httpx2.AsyncClient) -> None:
    """What a person sets stands, also over a restart, until the program declares something else."""
    store = MemoryStore()
    app = App(store)
    app.limit("n", running=3)
    await app.open()
    own = Api(http, api.serve(store, open_to_all=True))
    assert (await own.good("GET", "/limits/n"))["running"] == 3
    await own.good("PATCH", "/limits/n", {"running": 9})
    again = App(store)
    again.limit("n", running=3)
    await again.open()
    assert (await own.good("GET", "/limits/n"))["running"] == 9


class TestSecrets:
    """What a limit counts by is shown: it must not be what a type keeps secret."""

    @pytest.fixture
    async def shop(self, api: ApiServer, http: httpx2.AsyncClient, store: MemoryStore) -> Api:
        app = App(store)

        @app.task(name="pay", secret=("card",))
        async def pay(card: str, shop: str) -> None: ...

        return Api(http, api.serve_app(app, open_to_all=True))

    @pytest.mark.parametrize("type_name", ["pay", None])
    async def test_a_secret_is_not_counted_by(
        self, shop: Api, store: MemoryStore, type_name: str | None
    ) -> None:
        said = {"type": type_name, "by": "card", "running": 1, "all": type_name is None}
        assert "secret" in problem(await shop("PUT", "/limits/n", said), 422, "invalid-option")["detail"]
        await shop.good("PUT", "/limits/n", {**said, "by": "shop"})
        problem(await shop("PATCH", "/limits/n", {"by": "card"}), 422, "invalid-option")
        assert [one.by for one in await kept_limits(store)] == ["shop"]
        await shop.good("PUT", "/limits/other", {"type": "elsewhere", "by": "card", "running": 1})

    async def test_a_field_that_the_type_has_not(self, shop: Api) -> None:
        told = problem(
            await shop("PUT", "/limits/n", {"type": "pay", "by": "shops", "running": 1}),
            422,
            "invalid-option",
        )
        assert "did you mean 'shop'?" in told["detail"]
