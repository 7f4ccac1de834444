"""Task types over HTTP: what apps have published, and workers that say which types they handle."""

from datetime import timedelta

import httpx2

from tests.http.api_client import Api
from tests.http.problem import problem
from tests.servers.api import ApiServer
from windlass import App
from windlass._model.options import DeclaredType, Defaults
from windlass._model.queue import Retention
from windlass._stores.memory import MemoryStore

PAY = DeclaredType(
    name="pay",
    aliases=("charge",),
    defaults=Defaults(queue="bank", timeout=timedelta(minutes=1), secret=("iban",), unique=True),
    backoff={"base": 5.0},
    retention=Retention(completed=timedelta(days=1), dead=None),
)


async def test_types_are_listed_and_removed(api_of: Api, store: MemoryStore) -> None:
    await store.put(PAY)
    await store.put(DeclaredType(name="note", delays=(1.0, 2.0)))

    note, pay = (await api_of.good("GET", "/types"))["items"]

    assert (note["name"], note["delays"], note["retention"]) == ("note", [1.0, 2.0], None)
    assert pay == {
        "name": "pay",
        "aliases": ["charge"],
        "queue": "bank",
        "priority": 0,
        "max_attempts": 8,
        "timeout": 60.0,
        "expires": None,
        "unique": True,
        "unique_for": None,
        "secret": ["iban"],
        "encrypted": False,
        "backoff": {"base": 5.0},
        "delays": [],
        "retention": {"completed": 86400.0, "cancelled": 604800.0, "dead": None},
    }
    assert (await api_of("DELETE", "/types/pay")).status_code == 204
    assert (await api_of("DELETE", "/types/pay")).status_code == 404


async def test_a_worker_may_say_which_types_it_handles(api_of: Api) -> None:
    await api_of.good("POST", "/work/sessions", {"name": "any"})
    await api_of.good("POST", "/work/sessions", {"name": "one", "types": ["pay"]})

    workers = (await api_of.good("GET", "/workers"))["items"]

    assert {one["name"]: one["types"] for one in workers} == {"any": None, "one": ["pay"]}


async def test_the_payload_of_an_edited_replay_is_checked(api: ApiServer, http: httpx2.AsyncClient) -> None:
    app = App(MemoryStore())

    @app.task(name="pay")
    async def pay(amount: int) -> None: ...

    own = Api(http, api.serve_app(app, open_to_all=True))
    task_id = await own.enqueue(type="pay", payload={"amount": 1})
    await own.good("DELETE", f"/tasks/{task_id}")

    wrong = await own("POST", f"/tasks/{task_id}/replay", {"payload": {"amount": "1"}})
    found = problem(wrong, 422, "invalid-payload")
    assert "does not fit pay(amount: int)" in found["detail"]
    await own.good("POST", f"/tasks/{task_id}/replay", {"payload": {"amount": 2}})
